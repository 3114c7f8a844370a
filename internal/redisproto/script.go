package redisproto

import (
	"crypto/sha1" //nolint:gosec // names a script to the server, protects nothing
	"embed"
	"encoding/hex"
	"maps"
	"time"

	"example.com/idempotency/internal/history"
	"example.com/idempotency/store"
)

//go:embed lua/*.lua
var lua embed.FS

// A script is one atomic step of the Redis store. A server that has seen its source knows
// it by its digest.
type script struct {
	source string
	digest any // a string, as an argument of a command
}

var digests = make(map[string]string)

// Digests returns the digests by the names of the scripts. A message to a server that
// executes a script contains its digest, by which a test finds it.
func Digests() map[string]string { return maps.Clone(digests) }

// newScript returns the script in the files of these names. The last one is its own.
func newScript(files ...string) script {
	var source []byte
	for _, name := range files {
		part, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // at the start of each program and test
		}
		source = append(source, part...)
	}
	sum := sha1.Sum(source) //nolint:gosec // see the import
	digest := hex.EncodeToString(sum[:])
	digests[files[len(files)-1]] = digest
	return script{string(source), digest}
}

// File record has what scripts know of the form of a record.
var (
	claimScript   = newScript("record", "claim")
	settleScript  = newScript("record", "told", "covers", "settle")
	renewScript   = newScript("record", "claimof", "told", "renew")
	stepScript    = newScript("record", "claimof", "step")
	getScript     = newScript("record", "get")
	resolveScript = newScript("record", "told", "seen", "resolve")
	forgetScript  = newScript("record", "seen", "forget")
	enterScript   = newScript("enter")
	dropScript    = newScript("drop")
	oldestScript  = newScript("oldest")
	surveyScript  = newScript("survey")
	wholeScript   = newScript("whole")
	tagScript     = newScript("covers", "tag")
	scanScript    = newScript("scan")
)

// The results of the scripts that return a number. The constructor of each [Call] says what
// Refused means. None of them is 0, the value of a reply that has not been read.
const (
	Done    = 1
	Entered = 2 // done, and the claim has been entered in the index
	Absent  = -1
	Damaged = -2 // there is no header, or one that cannot be read
	Newer   = -3 // see [store.ErrUnreadableHere]
	Refused = -4
)

// A Call is the execution of a script on one record, or on the index.
type Call struct {
	script *script
	line   []any
}

// newCall returns a call of the script on the record of that name, or on the index.
func newCall(s *script, name string, args ...any) Call {
	line := make([]any, 0, 4+len(args))
	return Call{s, append(append(line, "evalsha", s.digest, "1", name), args...)}
}

// Name returns the name of the record.
func (c Call) Name() string { return c.line[3].(string) }

// ByDigest returns the command that a server which knows the script executes. The others
// answer NOSCRIPT.
func (c Call) ByDigest() []any { return c.line }

// BySource returns the command that every server executes. It replaces the one that
// ByDigest has returned.
func (c Call) BySource() []any {
	c.line[0], c.line[1] = "eval", c.script.source
	return c.line
}

// Claim returns the call that asks for the right to run, with h as the header of a first
// claim. [Header.ParseClaim] reads its reply. With watch the caller will wait for the
// record to settle. Note and label have at most [MaxNote] bytes.
func (h *Header) Claim(name string, watch bool, note []byte, label string, sealedKey []byte, tags []store.Tag) Call {
	call := h.claim(name, watch, note, label, len(sealedKey)+len(tags) > 0)
	if len(sealedKey) > 0 {
		call.line = append(call.line, fieldKey, sealedKey)
	}
	if len(tags) > 0 {
		call.line = append(call.line, fieldTags, joinTags(tags)) // last, as the script says
	}
	return call
}

// claim returns the call without the sealed key and the tags. It has the field n if kept says so.
func (h *Header) claim(name string, watch bool, note []byte, label string, kept bool) Call {
	var flag any = "0" // a constant, which takes no memory as an argument
	if watch {
		flag = "1"
	}
	// One allocation for both.
	b := h.appendTo(make([]byte, 0, headerSize+1+len(note)+len(label)))
	b = append(append(b, byte(len(note))), note...)
	switch header, expiry := b[:headerSize:headerSize], h.expiry().Milliseconds(); {
	case len(note)+len(label) == 0 && !kept:
		return newCall(&claimScript, name, header, expiry, flag)
	case 1+len(note)+len(label) > headerSize:
		return newCall(&claimScript, name, header, expiry, flag, fieldNote, b[headerSize:], fieldLabel, label)
	default:
		return newCall(&claimScript, name, header, expiry, flag, fieldNote, append(b, label...)[headerSize:])
	}
}

// Renew returns the call that starts lease and lifetime anew. Refused: the owner does not
// hold the claim.
func Renew(name string, owner store.Owner) Call {
	return newCall(&renewScript, name, owner[:])
}

// SaveStep returns the call that records a step. Refused: the owner does not hold the
// claim.
func SaveStep(name string, owner store.Owner, step string, value []byte) Call {
	return newCall(&stepScript, name, owner[:], fieldStep+step, value)
}

// Hold returns the call that holds a record for its owner. The script announces it on the
// channel if somebody waits. Note replaces that of the claim, unless it is empty. Refused: the owner does not hold
// the claim.
func Hold(name string, owner store.Owner, channel string, note []byte) Call {
	return newCall(&settleScript, name, owner[:], int(store.Held), channel, "", "", 0, note)
}

// Release returns the call that gives a claim back under which something may have been done.
// It is announced and refused as a [Hold].
func Release(name string, owner store.Owner, channel string) Call {
	return newCall(&settleScript, name, owner[:], int(store.Released), channel, "")
}

// ReleaseUndone returns the call that gives a claim back under which nothing was done. A blank
// record is kept for keep, which is one that [RoundTTL] has returned, or zero for its lifetime.
// With unbind the next claim may have any fingerprint, and with unused it may if this one could.
func ReleaseUndone(name string, owner store.Owner, channel string, keep time.Duration, unbind, unused bool) Call {
	span, flags := []byte(nil), flagBlank
	if keep > 0 {
		span = encodeLifetime(keep)
	}
	switch {
	case unbind:
		flags |= flagUnbound
	case unused:
		flags |= asFound
	}
	return newCall(&settleScript, name, owner[:], int(store.Released), channel, span, "", flags)
}

// An Answer is what a record is completed with. TTL is one that [RoundTTL] has returned.
type Answer struct {
	Status int
	Bytes  []byte
	TTL    time.Duration
}

// header returns what the header of the completed record tells of the answer.
func (a Answer) header() []byte {
	return appendAbout(encodeLifetime(a.TTL), a.Status, int64(len(a.Bytes)))
}

// Complete returns the call that records an answer and keeps it for its TTL. Refused: the
// owner does not hold the claim.
func Complete(name string, owner store.Owner, channel string, a Answer) Call {
	return newCall(&settleScript, name, owner[:], int(store.Completed), channel, a.header(), a.Bytes)
}

// CompleteDetached is [Complete] for an answer that an HSETNX in the same transaction has
// put into [AnswerField]. When the call is refused it takes that field away again.
func CompleteDetached(name string, owner store.Owner, channel string, a Answer) Call {
	return newCall(&settleScript, name, owner[:], int(store.Completed), channel, a.header(), "", flagDetached)
}

// Get returns the call that reads a record without its answer. [ParseGet] reads its reply.
func Get(name string) Call { return newCall(&getScript, name) }

// Whole returns the call that reads a record with its answer. [ParseWhole] reads its reply.
func Whole(name string) Call { return newCall(&wholeScript, name) }

// ResolveReleased returns the call that makes a held record claimable and takes away the
// steps that are undone. Note is that of the decision. Refused: the record is not held, is not that attempt
// of the owner, or one of the steps has another value; or it was released with another note.
func ResolveReleased(name string, owner store.Owner, attempt int, channel string, note []byte, undone map[string][]byte) Call {
	args := []any{owner[:], attempt, int(store.Released), channel, "", "", history.Decision(note)}
	for step, value := range undone {
		args = append(args, fieldStep+step, value)
	}
	return newCall(&resolveScript, name, args...)
}

// ResolveCompleted returns the call that gives a held record an answer and keeps it for the
// TTL of the answer. Note is that of the decision. Refused: the record is not held, or is not that attempt of
// the owner; or it was completed with another note.
func ResolveCompleted(name string, owner store.Owner, attempt int, channel string, note []byte, a Answer) Call {
	return newCall(&resolveScript, name, owner[:], attempt, int(store.Completed), channel, a.header(), a.Bytes, history.Decision(note))
}

// Forget returns the call that removes a record. Refused: the record is not that attempt of the
// owner, has another state, or its lease has not ended.
func Forget(name string, owner store.Owner, attempt int, state store.State) Call {
	return newCall(&forgetScript, name, owner[:], attempt, int(state))
}

// ForgetUnread returns the call that removes a record which cannot be read. Refused: the
// record has another header by now.
func ForgetUnread(name, header string) Call {
	return newCall(&forgetScript, name, "", 0, 0, header)
}
