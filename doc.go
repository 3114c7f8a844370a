// Package idempotency makes HTTP APIs safe to retry: the retries of a request that
// carries an Idempotency-Key get its first answer back instead of running again.
//
// # Guarantee
//
// For one scope and key, while the store keeps what it acknowledged:
//
//  1. One run at a time. At most one handler run holds the key.
//  2. One answer. Once a run's answer is recorded, every request with that key and that
//     payload gets exactly that answer until the record expires. A buffered answer is
//     recorded before the client sees its first byte.
//  3. No silent second run. A handler runs again only when its previous run is known to
//     have done nothing, or ended with no definite answer and the route's recovery
//     policy says so; the new run knows that it is attempt 2 and which steps are
//     already done.
//  4. No cross-talk. A record answers no other scope, key or payload.
//
// And its limit: no middleware can make an external effect exactly-once. A process that
// dies between an effect and its record leaves an unknown outcome. For that there are
// [Hold], under which a key is never run again by itself, steps with derived keys for
// downstream calls ([Step], [DeriveKey]), and a unique constraint on [Operation.ID] in
// your own database.
//
// # Use
//
// A [Guard] needs a [Store] and a [ScopeFunc]:
//
//	guard, err := idempotency.New(idempotency.NewMemoryStore(), scope)
//	mux.Handle("POST /charges", guard.Handler(http.HandlerFunc(createCharge)))
//
// [Guard.With] changes the settings for one route, and [Guard.Shutdown] finishes what is
// still to be recorded. Inside a run, [FromContext] tells key, attempt and more, and [Step]
// records parts of it. [Do] protects functions that are no handlers.
//
// # Pitfalls
//
//   - Authentication, authorization, CORS, compression, size limits and
//     http.TimeoutHandler belong outside the guard, so that they see every request and
//     none of them is recorded.
//   - The scope must come from authentication. A scope that the client chooses freely
//     lets it read the answers of others.
//   - The TTL must outlast the retry window of all clients: a key that comes back after
//     its TTL runs again.
//   - A store that evicts, or loses what it acknowledged, causes second runs. So does a
//     handler that starts its effect in a goroutine and answers before it is done.
//   - Answers that are flushed while they are written reach the client before they are
//     recorded.
//
// # Words
//
// A key is the client's name for one intent, its scope whose key it is. A record is what
// the store holds for both; the fingerprint is the digest of the request that the key is
// bound to. A claim is the right to run, held by an owner token under a lease. A run is
// one execution of the handler, its number the attempt, its end the [Outcome]. A run's
// answer is recorded for the TTL and replayed. A held record is one whose outcome is
// unknown and that nobody may run; retention is how long a record without an answer is
// kept.
package idempotency
