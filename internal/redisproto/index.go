package redisproto

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/idempotency/store"
)

// IndexKey is what the prefix of a store is followed by in the name of the index. No record has
// that name, because no key has a space.
const IndexKey = "holding index"

// A Member is a claim in the index: the owner, and the key of the record. It is of one claim only,
// so settling that one does not take a later claim of the record out.
type Member string

// NewMember returns the member of a claim.
func NewMember(owner store.Owner, key string) Member { return Member(owner[:]) + Member(key) }

// Owner returns the owner of the claim.
func (m Member) Owner() store.Owner { return store.Owner([]byte(m[:16])) }

// Key returns the key of the record.
func (m Member) Key() string { return string(m[16:]) }

// Enter returns the call that adds a claim to the index, and takes settled claims out. If anew is
// set, a claim that is there already becomes the last one.
func Enter(index string, m Member, anew bool, settled []Member) Call {
	option := "NX"
	if anew {
		option = "CH" // which changes only the reply of the command
	}
	args := append(make([]any, 0, 2+len(settled)), string(m), option)
	for _, m := range settled {
		args = append(args, string(m))
	}
	return newCall(&enterScript, index, args...)
}

// A Place is where a claim was found in the index.
type Place struct {
	Member Member
	Time   uint64
}

// Oldest returns the call that reads the first n claims which were entered after a time.
// [ParseOldest] reads its reply.
func Oldest(index string, after uint64, n int) Call {
	return newCall(&oldestScript, index, after, n)
}

// ParseOldest reads the places of claims, without those that no [Enter] has made, and the time of the last place.
func ParseOldest(reply []string) (places []Place, last uint64, err error) {
	places = make([]Place, 0, len(reply)/2)
	for i := 1; i < len(reply); i += 2 {
		time, err := strconv.ParseFloat(reply[i], 64)
		if err != nil || time < 0 || time >= 1<<53 {
			return nil, 0, errors.New("the index has a place that is no time")
		}
		if last = uint64(time); len(reply[i-1]) > len(store.Owner{}) && float64(last) == time {
			places = append(places, Place{Member(reply[i-1]), last})
		}
	}
	return places, last, nil
}

// Drop returns the call that takes claims out of the index which are still in these places.
func Drop(index string, places []Place) Call {
	args := make([]any, 0, 2*len(places))
	for _, p := range places {
		args = append(args, string(p.Member), p.Time)
	}
	return newCall(&dropScript, index, args...)
}

// Survey returns the call that reads what a list shows of a record. [ParseSurvey] reads its reply.
func Survey(name string) Call {
	return newCall(&surveyScript, name, FieldHeader, fieldNote, fieldLabel, fieldKey)
}

// ParseSurvey reads the reply of a survey. The error is [store.ErrNotFound] if there is no record.
func ParseSurvey(reply []any) (Record, error) {
	if len(reply) == 0 {
		return Record{}, errors.New("the reply to a survey is empty")
	}
	ms, ok := reply[0].(int64)
	switch {
	case !ok:
		return Record{}, fmt.Errorf("the expiry in the reply to a survey is a %T", reply[0])
	case ms == -2:
		return Record{}, store.ErrNotFound
	}
	return ParseSummary(time.Duration(ms)*time.Millisecond, reply[1:])
}
