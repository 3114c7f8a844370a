// Package idempotency makes HTTP APIs safe to retry. A [Guard] runs a handler for the first
// request with an Idempotency-Key, records the answer, and gives that answer to every retry.
//
// # Guarantee
//
// For one scope and key, while the store keeps what it acknowledged:
//
//  1. One run at a time. At most one run of the handler holds a key at a time.
//  2. One answer. Once a run's answer is recorded, every request with that key and that
//     payload gets that answer or a refusal, until the record expires. The answer is the
//     handler's status, header, body and trailers, without the fields that belong to one
//     connection, moment or client: hop-by-hop fields, Date, Set-Cookie, authentication and
//     token fields, and those of [WithUnrecorded]. Of an answer above [Limits].ResponseBody,
//     or one that the store does not take, only the fact is recorded, and later requests are
//     told so. A buffered answer is recorded before the client sees its first byte, unless
//     the store does not take it in time: then the client has it first, and recording goes
//     on.
//  3. No silent second run. The handler reruns only if its last run is known to have done
//     nothing, or if it recorded no answer and the route's recovery policy allows a rerun;
//     the new run knows that it is attempt 2 and which steps are already done.
//  4. No cross-talk. A record is never used for another scope, key or payload.
//
// And its limit: no middleware can make an external effect exactly-once. A process that
// dies between an effect and its record leaves an unknown outcome. Three things help:
// [Hold], under which a key is never run again by itself; steps with derived keys for
// downstream calls ([Step], [DeriveKey]); and in your own database, one commit for your
// rows and the record ([WithTransaction]), or a unique constraint on [Operation.ID].
//
// # Use
//
// A [Guard] needs a [Store] and a [ScopeFunc], which tells whose key a request carries:
//
//	guard, err := idempotency.New(idempotency.NewMemoryStore(), scope)
//	mux.Handle("POST /charges", guard.Handler(http.HandlerFunc(createCharge)))
//
// [Guard.With] changes settings for one route. Inside a run, [FromContext] returns the
// [Operation], with its key and its attempt, and [Step] records parts of the run. [Do]
// protects functions that are not HTTP handlers.
//
// # Shutdown
//
// Call http.Server.Shutdown and [Guard.Shutdown] together, with one deadline. When both
// have returned, close the store. This function does both shutdowns:
//
//	func shutdown(server *http.Server, guard *idempotency.Guard) error {
//		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
//		defer cancel()
//		recorded := make(chan error, 1)
//		go func() { recorded <- guard.Shutdown(ctx) }()
//		return errors.Join(server.Shutdown(ctx), <-recorded)
//	}
//
// The server lets requests in flight finish. The guard refuses every further request that
// has a key, also where an answer is recorded. It ends the waits for other runs, and returns
// when every run is recorded.
//
// # Pitfalls
//
//   - Put authentication, authorization, CORS, compression, size limits and
//     http.TimeoutHandler outside the guard. There they see every request, and the guard
//     records nothing of what they do.
//   - Take the scope from authentication. Clients that choose their scope freely can read
//     each other's answers.
//   - Choose a TTL that outlasts the retries of all clients. A key that comes back after
//     its TTL runs again.
//   - A store that evicts records, or loses what it acknowledged, causes second runs. So
//     does a handler that starts its effect in a goroutine and answers before it is done.
//   - The client receives a flushed answer, and one above [Limits].ResponseBody, as the
//     handler writes it, before it is recorded.
//
// # Words
//
// A key is the client's name for one intent, and the scope says whose key it is. The store
// holds one record for each scope and key. The fingerprint is the digest of the request that
// the key is bound to. A claim is the right to run; an owner token holds it, under a lease.
// A run is one execution of the handler; the attempt is its number, and the [Outcome] says
// how it ended. The run's answer is recorded for the TTL and replayed. A key is held when the
// outcome of its run is unknown and nobody may run. A held key, and one claimed under [Hold],
// has no end of its own: it is kept until somebody resolves or forgets it, unless
// [WithRetention] sets an end. Retention is how long any other record without an answer is
// kept, unless nothing was done under it: then it ends sooner.
package idempotency
