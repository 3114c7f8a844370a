// Package journal keeps, in a file, what a program intends to do over HTTP, and under which
// idempotency key, beyond the life of its process:
//
//	j, err := journal.Open("/var/lib/shop/intents")
//	err = j.Resume(ctx, c, keep) // at the start: what the process before has left open
//	entry, err := j.Do(ctx, c, "charge "+order.ID, journal.Request{
//		Method: http.MethodPost, URL: url, ContentType: "application/json", Body: body,
//	}, keep)
//
// An intent is durable before the first byte of its request is sent, and each process that
// is started later sends the same bytes with the same key. So the process may be killed at
// any moment, and an honest server has one effect for each name. A name that is finished
// stays known for [WithRetention]: doing it again returns what is known and sends nothing.
//
// A key that can be computed again (client.IntentFor) needs no journal if something else
// remembers the work to do. A table in the program's own database is often better than a
// file, because the intent and its cause are then one transaction.
//
// # What the file promises
//
// An entry survives the death of the process once [Journal.Begin] has returned, and the
// death of the machine as far as the disk keeps what it was told to keep. The line that was
// being written at that moment was never acknowledged, and is removed. Any other damage of a line, and a
// file that was cut off, is [ErrCorrupt] with the number of the line: a missing
// line might be a key that was sent. Nothing notices lines that somebody has taken out whole, or has put into another order. A file of a version that this one does not know is
// [ErrVersion], and is left as it is. Nothing protects against a file that is replaced by an older
// copy of itself.
package journal
