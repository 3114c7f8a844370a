package webhook

// GitHub is the sender of GitHub's webhooks.
//
// The field X-GitHub-Delivery names the delivery. It is the same when the delivery is made again.
// GitHub signs the body, and nothing else, with HMAC-SHA256 in X-Hub-Signature-256. So neither
// the time, the name nor the type in X-GitHub-Event is protected. The body and the type count in a
// mismatch: a captured delivery cannot take the name of another one. GitHub makes a delivery again only if somebody asks for
// it, which its documentation allows for up to 30 days. Its payloads may have 25 MB.
//
// Sources:
//
//   - https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
//   - https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks
//   - https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries
//   - https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks
func GitHub() Sender {
	return Sender{
		Name:        "GitHub",
		Key:         HeaderKey("X-GitHub-Delivery"),
		Fingerprint: typeAndBody("X-GitHub-Event"),
		TTL:         31 * day,
		signing:     bodyScheme("X-Hub-Signature-256", "sha256=", decodeHex),
	}
}
