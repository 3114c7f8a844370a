package webhook

// PayPal is the sender of PayPal's webhooks of the REST API. Use it with [VerifyWith].
//
// The member "id" of the body names the event. PayPal signs the fields Paypal-Transmission-Id and
// Paypal-Transmission-Time, the ID of the webhook and a CRC-32 of the body with RSA, with a
// certificate whose address is in Paypal-Cert-Url. The function for VerifyWith has to post the
// fields, the ID of the webhook and the body as it came to
// /v1/notifications/verify-webhook-signature, and to accept "SUCCESS" only. It wraps
// [idempotency.ErrTryLater] if PayPal cannot be asked. A check of its own has to take the
// certificate from a host of PayPal alone, and to refuse an old time. A CRC is not a digest:
// somebody who has captured a delivery can write another body with the same CRC.
//
// Deliveries of one event differ in these fields, so they do not count in a mismatch. PayPal
// redelivers 25 times in three days, and again if somebody asks for it.
//
// Sources:
//
//   - https://developer.paypal.com/api/rest/webhooks/
//   - https://developer.paypal.com/api/rest/webhooks/rest/
//   - https://developer.paypal.com/api/webhooks/v1/definitions/verify_webhook_signature
//   - https://developer.paypal.com/api/webhooks/v1/definitions/event_resend/
func PayPal() Sender {
	return Sender{
		Name:        "PayPal",
		Key:         JSONKey("id"),
		Fingerprint: nameOnly,
		TTL:         7 * day,
	}
}
