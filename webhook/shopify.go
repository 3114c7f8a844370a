package webhook

// Shopify is the sender of Shopify's webhooks over HTTPS.
//
// The field X-Shopify-Webhook-Id names the delivery to one subscription. X-Shopify-Event-Id does
// not serve as a key: the deliveries of several topics that one action of a merchant causes have
// it in common, and all but the first would be lost. Shopify signs the body, and nothing else,
// with HMAC-SHA256 in X-Shopify-Hmac-Sha256. Neither the name, the topic nor the shop in the
// header is protected; so the body and X-Shopify-Topic count in a mismatch, and the shop must be taken
// from the body or checked otherwise. A redelivery has the original body. Shopify redelivers 8 times in
// 4 hours. The secret is the client secret of the app; its rotation takes up to an hour.
//
// Sources:
//
//   - https://shopify.dev/docs/apps/build/webhooks/verify-deliveries
//   - https://shopify.dev/docs/apps/build/webhooks/delivery-structure
//   - https://shopify.dev/changelog/updates-to-webhook-retry-mechanism
//   - https://github.com/Shopify/shopify-app-js/pull/3129
func Shopify() Sender {
	return Sender{
		Name:        "Shopify",
		Key:         HeaderKey("X-Shopify-Webhook-Id"),
		Fingerprint: typeAndBody("X-Shopify-Topic"),
		TTL:         2 * day,
		signing:     bodyScheme("X-Shopify-Hmac-Sha256", "", decodeBase64),
	}
}
