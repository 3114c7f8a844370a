package webhook

import (
	"net/http"
	"strings"

	"example.com/idempotency"
)

// Versions of the fingerprints of this package. They never change their meaning.
const (
	versionName = 1 // 2 is taken, by the body alone
	// 3 is taken, by URL and body without the method
	versionType = 4
	versionURL  = 5
)

// nameOnly is the fingerprint where the name of an event says it all. It is right for senders
// that sign the name: nobody else can use it for another payload. Differences between
// deliveries, such as counters and times of sending, are not mistakes.
func nameOnly(*http.Request, []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(versionName), nil
}

// typeAndBody is the fingerprint for senders that do not sign the name and the type of an event, and send
// the same body each time. It ties both to the body, which is signed. So a captured delivery cannot take the
// name of another event. If one with another type comes before the sender's own, that is refused, and not
// taken for a repetition, so that somebody hears of it.
func typeAndBody(field string) idempotency.FingerprintFunc {
	return func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(versionType, []byte(strings.Join(r.Header.Values(field), "\n")), body), nil
	}
}

// methodQueryAndBody is that for senders that sign the URL too, and put what they have to say into it. They do not
// sign the method, by which a handler finds its parameters.
func methodQueryAndBody(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(versionURL, []byte(r.Method), []byte(r.URL.RawQuery), body), nil
}
