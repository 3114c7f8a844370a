package client

import (
	"context"
	"time"
)

// A Journal remembers what a program intends to do, and under which key, beyond the life
// of its process. Used like this, a process may be killed at any moment:
//
//	e, err := journal.Begin(ctx, "charge "+order.ID, body)
//	resp, err := c.Do(newRequest(e.Context(ctx), e.Payload))
//	// … keep the answer …
//	err = journal.Done(ctx, e.Name)
//
// And at its start it does the same with each entry of Pending. What was not sent is sent
// then, and what was sent is answered again. [OpenJournal] keeps a journal in a file; a
// table next to the program's own data, written in the same transaction, is another way.
//
// A key that can be computed again ([KeyFor]) needs no journal, if something else
// remembers what is to be done.
type Journal interface {
	// Begin notes an intent with a new key and the bytes that will be sent, or whatever
	// else they can be made from. When it returns, the entry is durable; before, nothing
	// may be sent. If the intent is pending already, the entry that was made then is
	// returned, with its key and payload and marked as resumed.
	Begin(ctx context.Context, name string, payload []byte) (Entry, error)
	// Done says that the answer is kept, or not needed: there is nothing to resume. The
	// same name can be begun again, with a new key. It is no error if it is not pending.
	Done(ctx context.Context, name string) error
	// Pending returns the entries that are not done, the oldest first.
	Pending(ctx context.Context) ([]Entry, error)
}

// An Entry is an intent in a [Journal].
type Entry struct {
	// Name is what the intent was begun under.
	Name string
	// Key is the one to send it with; [Entry.Context] does.
	Key string
	// Payload is what was noted with it.
	Payload []byte
	// Since is when the intent was begun. The server must not have forgotten the key.
	Since time.Time
	// Resumed says that the key may have been sent before, by this process or by one that
	// has ended, with what result is not known.
	Resumed bool
}

// Context returns a context for the request of the intent. A [Transport] sends it with
// the key of the entry, and not at all if the key is older than the server remembers
// ([WithTTL]).
func (e Entry) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, chosenKeyContext{}, chosenKey{key: e.Key, since: e.Since, resumed: e.Resumed})
}
