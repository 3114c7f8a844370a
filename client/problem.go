package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"example.com/idempotency/problem"
)

// maxProblem is the largest problem document that is looked at.
const maxProblem = 64 << 10

// readProblem returns the problem document of an answer, or nil. The body can be read
// again afterwards.
func readProblem(resp *http.Response) (*problem.Document, error) {
	if resp.StatusCode < http.StatusBadRequest || resp.Body == nil {
		return nil, nil
	}
	if mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || mediaType != problem.ContentType {
		return nil, nil //nolint:nilerr // an answer without a media type is no problem document
	}
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	body := resp.Body
	resp.Body = &prefixedBody{Reader: io.MultiReader(bytes.NewReader(start), body), Closer: body}
	if err != nil {
		return nil, err
	}
	p := new(problem.Document)
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
