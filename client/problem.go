package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
)

// A Problem is an RFC 9457 problem document, with the members of the server side of this
// library.
type Problem struct {
	// Type, Title, Status and Detail are as the server has set them; other servers of
	// RFC 9457 may leave any of them out.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code is the stable name of the problem, such as in-flight or key-reused; empty if
	// the server is another one.
	Code string `json:"code"`
	// OriginalStatus and OriginalLocation are of an answer that was too large to keep.
	OriginalStatus   int    `json:"original_status,omitempty"`
	OriginalLocation string `json:"original_location,omitempty"`
}

// Codes of problems: those of package idempotency, which a client need not link.
const (
	codeKeyMissing        = "key-missing"
	codeKeyInvalid        = "key-invalid"
	codeBodyUnreadable    = "body-unreadable"
	codeBodyTooLarge      = "body-too-large"
	codeFingerprintFailed = "fingerprint-failed"
	codeScopeUnresolved   = "scope-unresolved"
	codeReplayDenied      = "replay-denied"
	codeKeyReused         = "key-reused"
	codeInFlight          = "in-flight"
	codeOutcomeUnknown    = "outcome-unknown"
	codeResponseNotKept   = "response-not-kept"
	codeAnswerUnreadable  = "answer-unreadable"
	codeStoreUnavailable  = "store-unavailable"
	codeShuttingDown      = "shutting-down"
)

// maxProblem is the largest problem document that is looked at.
const maxProblem = 64 << 10

// readProblem returns the problem document of an answer, or nil. The body can be read
// again afterwards.
func readProblem(resp *http.Response) (*Problem, error) {
	if resp.StatusCode < http.StatusBadRequest || resp.Body == nil {
		return nil, nil
	}
	if mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || mediaType != "application/problem+json" {
		return nil, nil //nolint:nilerr // an answer without a media type is no problem document
	}
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	body := resp.Body
	resp.Body = &prefixedBody{Reader: io.MultiReader(bytes.NewReader(start), body), Closer: body}
	if err != nil {
		return nil, err
	}
	p := new(Problem)
	err = json.Unmarshal(start, p)
	var member *json.UnmarshalTypeError // of another type than it should have: it is ignored
	if err != nil && (!errors.As(err, &member) || member.Field == "") {
		return nil, nil //nolint:nilerr // what is no document is an answer like any other
	}
	return p, nil
}

// A prefixedBody is a body of which the beginning has been read already.
type prefixedBody struct {
	io.Reader
	io.Closer
}
