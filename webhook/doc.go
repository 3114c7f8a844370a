// Package webhook takes idempotency keys from the deliveries of webhooks.
//
// Senders of webhooks deliver at least once, and name each delivery or event in a place of
// their own: a header field, a member of the JSON body, or the attributes of a CloudEvent.
// The functions here find that name. Hand one of them to [idempotency.WithKeyFunc], and a
// guarded handler processes each event once:
//
//	guard.With(
//		idempotency.WithKeyFunc(webhook.HeaderKey("X-GitHub-Delivery")),
//		idempotency.WithRequired(true),
//	)
//
// A request that has no name where the function looks has no key. It passes unprotected
// unless [idempotency.WithRequired] is set. A request whose name is malformed is refused.
//
// Two senders may use the same name for different events. Give each sender a scope of its
// own, and verify the signature of a delivery before the guard sees it.
package webhook
