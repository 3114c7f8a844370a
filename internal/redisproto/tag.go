package redisproto

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"example.com/idempotency/store"
)

// TagIndex returns what the prefix of a store is followed by in the name of the index of a tag. No record has that
// name, because no key has a space.
func TagIndex(t store.Tag) string { return "tag " + hex.EncodeToString(t[:]) }

// FoundFields are the [SummaryFields] and the tags.
func FoundFields() []string { return append(SummaryFields(), fieldTags) }

// joinTags returns the stored form of tags.
func joinTags(tags []store.Tag) []byte {
	b := make([]byte, 0, len(tags)*len(store.Tag{}))
	for i, t := range tags {
		if !slices.Contains(tags[:i], t) {
			b = append(b, t[:]...)
		}
	}
	return b
}

// splitTags reads the stored form. What is left at the end is a mark of the scripts.
func splitTags(stored string) (tags []store.Tag) {
	for size := len(store.Tag{}); len(stored) >= size; stored = stored[size:] {
		tags = append(tags, store.Tag([]byte(stored[:size])))
	}
	return tags
}

// A Result is what a script says that has changed a record: a number and, if the record has tags whose entries have to
// be kept for longer or shorter, the tags and for how long.
type Result struct {
	N    int64
	Kept time.Duration
	Tags []store.Tag
}

// ParseResult reads the reply of such a script.
func ParseResult(reply any) (r Result, err error) {
	if n, ok := reply.(int64); ok {
		return Result{N: n}, nil
	}
	if list, ok := reply.([]any); ok && len(list) == 3 {
		n, isNumber := list[0].(int64)
		kept, isTime := list[1].(int64)
		tags, isText := list[2].(string)
		if isNumber && isTime && isText {
			return Result{n, time.Duration(kept) * time.Millisecond, splitTags(tags)}, nil
		}
	}
	return r, fmt.Errorf("the result of a script is a %T", reply)
}

// Kept returns for how long the record of the claim is kept.
func (h *Header) Kept() time.Duration { return h.expiry() }

// EnterTag returns the call that enters a record in the index of a tag, of that name, for as long as the record is
// kept, or longer if the index has it for longer. Exactly says that it may become shorter.
func EnterTag(index, key string, kept time.Duration, exactly bool) Call {
	shorter := "0"
	if exactly {
		shorter = "1"
	}
	return newCall(&tagScript, index, key, kept.Milliseconds(), shorter)
}

// ScanTag returns the call that reads about n entries of the index of a tag. [ParseScan] reads its reply.
func ScanTag(index string, cursor uint64, n int) Call { return newCall(&scanScript, index, cursor, n) }

// A Tagged is an entry in the index of a tag.
type Tagged struct {
	Key  string
	Time uint64
}

// ParseScan reads a part of the index of a tag, and where to go on: at 0 there is no more.
func ParseScan(reply []any) (entries []Tagged, next uint64, err error) {
	if len(reply) == 2 {
		text, _ := reply[0].(string)
		next, err = strconv.ParseUint(text, 10, 64)
		list, ok := reply[1].([]any)
		for i := 1; i < len(list); i += 2 {
			key, _ := list[i-1].(string)
			time, _ := list[i].(string)
			at, failed := strconv.ParseFloat(time, 64)
			ok = ok && failed == nil
			entries = append(entries, Tagged{key, uint64(at)})
		}
		if ok && err == nil {
			return entries, next, nil
		}
	}
	return nil, 0, errors.New("the reply to a scan of a tag is none")
}

// DropTagged returns the call that takes entries out of the index of a tag which have still these times.
func DropTagged(index string, entries []Tagged) Call {
	args := make([]any, 0, 2*len(entries))
	for _, e := range entries {
		args = append(args, e.Key, e.Time)
	}
	return newCall(&dropScript, index, args...)
}

// ReadTags returns the call that reads the tags of a record. [ParseTags] reads its reply.
func ReadTags(name string) Call { return newCall(&surveyScript, name, fieldTags) }

// ParseTags reads the tags of a record, and for how long it is kept.
func ParseTags(reply []any) (r Result) {
	if len(reply) == 2 {
		ms, _ := reply[0].(int64)
		stored, _ := reply[1].(string)
		r.Kept, r.Tags = time.Duration(ms)*time.Millisecond, splitTags(stored)
	}
	return r
}
