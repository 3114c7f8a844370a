package webhook

// Senders returns the senders that this package knows. Those that anybody can be have the name of
// their specification.
func Senders() []Sender {
	return []Sender{
		Stripe(), GitHub(), Shopify(), Slack(), Twilio(), Standard("Standard Webhooks"),
		CloudEvents("CloudEvents"), SNS(), PayPal(), Adyen(),
	}
}
