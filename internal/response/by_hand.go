package response

import (
	"cmp"
	"fmt"
	"net/http"

	"example.com/idempotency/internal/answer"
)

// ByHand returns the answer that a person gives in place of a run, or why it could not be one: status is 200 unless
// it says otherwise. isJob says that it is the result of a function. refusal is the field of refusals, which no
// answer has.
func ByHand(status int, h http.Header, body []byte, isJob bool, refusal string, s Settings) (*answer.Answer, error) {
	a := &answer.Answer{Kind: answer.KindKept, Status: cmp.Or(status, http.StatusOK), Body: body}
	if isJob {
		a.Kind = answer.KindValue
	}
	if a.Status < 200 || a.Status > 999 {
		return nil, fmt.Errorf("idempotency: Resolve: %d is not the status of an answer", status)
	}
	if len(body) > 0 && !BodyAllowed(a.Status) {
		return nil, fmt.Errorf("idempotency: Resolve: an answer with status %d has no body", a.Status)
	}
	header, err := Checked(h, refusal)
	if err != nil {
		return nil, fmt.Errorf("idempotency: Resolve: %w", err)
	}
	if _, ok := header["Content-Type"]; !ok && len(body) > 0 && !isJob {
		header.Set("Content-Type", http.DetectContentType(body))
	}
	a.Header = Recorded(header, s)
	if !a.Fits(s.Limit) {
		return nil, fmt.Errorf("idempotency: Resolve: body of %d bytes, and its header; Limits.ResponseBody allows %d, and %d beside for the header",
			len(body), s.Limit, answer.MaxFields)
	}
	return a, nil
}
