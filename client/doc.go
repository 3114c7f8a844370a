// Package client is the other half of safe retries: an http.RoundTripper that gives each
// request one idempotency key and keeps it on every attempt. Most double charges begin
// with a client that makes a new key for each try.
//
//	transport, err := client.New(nil)
//	c := &http.Client{Transport: transport}
//	resp, err := c.Post(url, "application/json", body) // one charge, however often it is sent
//
// The [Transport] retries what can be retried, within bounds: attempts, a deadline, random
// pauses, what the server asks for, a budget that all requests share, and a circuit
// breaker if there is one. [Classify] has the rules. A request with a key ends in the
// answer, or in an [*Error] that says whether it may have been executed, with the key to
// try again with.
//
// # Which key
//
//   - None chosen: a random one for each request. It is lost with the process.
//   - [KeyFor]: what is intended has an identity, such as the number of an order.
//     Whoever tries again, from wherever, uses the same key.
//   - A [Journal]: what is intended is noted with its key before the first byte is sent,
//     and found again by the process that is started next.
//   - Inside a step of a run (idempotency.Step): made from the step, the same in each
//     attempt of the run.
//
// # Pitfalls
//
//   - A loop around the http.Client makes new requests, with new keys, unless it hands
//     the same key on with [WithKey]. The same goes for a retrying client above the
//     Transport; below it there is no such problem.
//   - http.Client.Timeout replaces the error of the Transport, and the key in it is lost.
//     Use [WithDeadline], or the context.
//   - A body that differs from attempt to attempt, by a timestamp for example, is another
//     request to the server. Within one request the Transport sees to it that the bytes
//     stay the same; between processes the [Journal] keeps them.
package client
