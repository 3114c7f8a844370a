// Package webhook receives webhooks: it verifies deliveries, and finds the name of an event.
//
// Senders deliver at least once, and each has its own way to name an event and to sign it. A
// [Sender] is what is known of one of them: [Stripe], [GitHub], [Shopify], [Slack], [Twilio],
// [Standard] for Standard Webhooks, [CloudEvents], [SNS], [PayPal] and [Adyen]. [Verify] makes
// the middleware that stands before the guard, and [Scope] tells the guard whom it has verified:
//
//	guard, err := idempotency.New(store, webhook.Scope)
//	verify, err := webhook.Verify(webhook.Stripe(), []string{secret})
//	mux.Handle("POST /hooks/stripe", verify(guard.With(webhook.Stripe().Options()...).Handler(h)))
//
// So a delivery that is forged, changed or late never claims a key, and all deliveries of one
// event run the handler once, although time, signature and counters differ in each.
//
// A signature does not make a name safe where the sender does not sign the name: GitHub, Shopify
// and Twilio. Somebody who has captured one of their deliveries can send it again under a new
// name, and it runs again. Those of Stripe, Slack and Standard Webhooks are good for five
// minutes only, and under their own name.
//
// For other senders, [HeaderKey], [JSONKey] and [CloudEventKey] find a name where it usually is.
// A request that has no name where they look has no key, and passes unprotected unless
// [idempotency.WithRequired] is set, as it is by [Sender.Options]. A request whose name is
// malformed is refused.
package webhook
