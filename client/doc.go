// Package client is the other half of safe retries: an http.RoundTripper that gives each
// request one idempotency key and keeps it on every attempt. Most double charges begin
// with a client that makes a new key for each try.
//
//	transport, err := client.New(nil, client.WithServer(profile.Guard(), "payments.example.com"))
//	c := &http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}
//	resp, err := c.Post(url, "application/json", body) // one charge, however often it is sent
//
// At a server that honours keys, a request has at most one effect, and the caller is never
// told that it had none when it had one. A request with a key ends in the answer, or in an
// [*Error] that says whether it may have been executed, with the key to try again with. A
// server that ignores keys gets no request twice that it may have executed.
//
// The [Transport] retries within bounds: attempts, a timeout, random pauses, the least pause
// that the server asks for, a budget for each host, and a circuit breaker if there is one.
// [Classify] has the rules for one attempt. Package profile has what servers say about keys,
// and [WithServer] names the hosts that do.
//
// # Which key
//
//   - None chosen: a random one for each request. It is lost with the process.
//   - [IntentFor]: the intent has an identity, such as the number of an order. Every process
//     that tries again uses the same key.
//   - Package journal: the intent is noted with its key before the first byte is sent, and
//     the next process finds it.
//   - Inside a step of a run (idempotency.Step): made from the step, the same in each
//     attempt of the run.
//
// # Pitfalls
//
//   - A loop around the http.Client makes new requests, with new keys, unless it hands
//     the same key on with [Error.Context] or [WithKey]. The same goes for a retrying client
//     above the Transport; below it there is no such problem.
//   - http.Client.Timeout replaces the error of the Transport, and the key in it is lost.
//     Use [WithTimeout], or the context.
//   - A body that differs from attempt to attempt, by a timestamp for example, is another
//     request to the server. Within one request the Transport sees to it that the bytes
//     stay the same; between processes the journal keeps them.
//   - A host that [WithServer] names and that ignores keys has an effect for each attempt.
package client
