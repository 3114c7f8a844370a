package webhook

import (
	"net/http"

	"example.com/idempotency"
)

// Versions of the fingerprints of this package. They never change their meaning.
const (
	versionName = 1
	versionBody = 2
	versionURL  = 3
)

// nameOnly is the fingerprint where the name of an event says it all. It is right for senders
// that sign the name: nobody else can use it for another payload. Differences between
// deliveries, such as counters and times of sending, are not mistakes.
func nameOnly(*http.Request, []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(versionName), nil
}

// bodyOnly is the fingerprint for senders that do not sign the name, and send the same body
// each time. It ties the name to the body, which is signed. So a captured delivery cannot take
// the name of another event.
func bodyOnly(_ *http.Request, body []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(versionBody, body), nil
}

// queryAndBody is bodyOnly for senders that sign the URL too, and put what they have to say into it.
func queryAndBody(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(versionURL, []byte(r.URL.RawQuery), body), nil
}
