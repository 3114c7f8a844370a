package webhook

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// A refusal is why a delivery is not let in. It is written for the developer who looks at the
// failed deliveries on the sender's pages.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return "webhook: " + r.detail }

func unsigned(detail string) error  { return &refusal{http.StatusUnauthorized, detail} }
func malformed(detail string) error { return &refusal{http.StatusBadRequest, detail} }

// tryLaterSeconds is the Retry-After of a delivery that could not be verified now.
const tryLaterSeconds = 30

// refuse answers with a problem document. It has no code of package problem: those are of
// guards, and this is in front of one.
func refuse(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*refusal](err)
	switch {
	case ok:
	case errors.Is(err, idempotency.ErrTryLater):
		p = &refusal{http.StatusServiceUnavailable, "The delivery cannot be verified now."}
		w.Header().Set("Retry-After", strconv.Itoa(tryLaterSeconds))
	default:
		p = &refusal{http.StatusUnauthorized, "The delivery was not verified."}
	}
	if p.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Webhook") // RFC 9110 wants one, and none is registered
	}
	document, _ := json.Marshal(map[string]any{ // of strings and a number
		"type": "about:blank", "title": http.StatusText(p.status), "status": p.status, "detail": p.detail,
	})
	w.Header().Set("Content-Type", problem.ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.status)
	_, _ = w.Write(document)
}
