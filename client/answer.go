package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"example.com/idempotency/client/profile"
	"example.com/idempotency/problem"
)

// This file reads an answer: what its header says, and the beginning of its body where that
// tells more.

// An answer is a response as the client understands it.
type answer struct {
	status     int
	meaning    profile.Meaning
	replayed   bool // it is marked as a recorded one
	echoes     bool // it repeats the key
	declared   bool // the program has said how the server speaks
	nowhere    bool // it is a redirect to what is no URL
	retryAfter bool
	again      bool // another attempt makes sense, if hinted
	hinted     bool
	coded      bool // a problem document names a code
	problem    *problem.Document
	document   []byte // the beginning of the body, if it was read
}

// readAnswer reads an answer as the server means it. The body can be read again afterwards.
func readAnswer(resp *http.Response, server *profile.Server) (answer, error) {
	a := answer{
		status: resp.StatusCode, replayed: server.IsReplay(resp),
		retryAfter: resp.Header.Get("Retry-After") != "",
	}
	a.again, a.hinted = server.Hint(resp)
	isProblem := isProblem(resp)
	if resp.Body != nil && (isProblem || server.Reads(resp)) {
		var err error
		if a.document, err = peek(resp); err != nil {
			return a, err
		}
	}
	a.meaning = server.Meaning(resp, a.document)
	if isProblem {
		a.problem = parseProblem(a.document)
		a.coded = a.problem != nil && a.problem.Code != ""
	}
	return a, nil
}

// useless reports whether the server says that another attempt makes no sense. That does not
// tell what a server error has done.
func (a *answer) useless() bool { return a.hinted && !a.again }

// inFlight reports whether an answer says that the request is being executed. Servers that
// do not name the reason tell this conflict from others by Retry-After.
func (a *answer) inFlight() bool {
	if a.meaning != profile.Silent || a.coded {
		return a.meaning == profile.InFlight
	}
	return a.status == http.StatusConflict && a.retryAfter
}

// shows reports whether an answer proves that its server honours keys.
func (a *answer) shows() bool {
	return a.replayed || a.echoes || a.meaning != profile.Silent && a.meaning != profile.Own
}

// peek returns the beginning of a body and puts it back.
func peek(resp *http.Response) ([]byte, error) {
	start, err := io.ReadAll(io.LimitReader(resp.Body, profile.MaxDocument))
	body := resp.Body
	resp.Body = prefixed(start, body)
	return start, err
}

func isProblem(resp *http.Response) bool {
	if resp.StatusCode < http.StatusBadRequest {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && mediaType == problem.ContentType
}

// parseProblem returns the problem document in a body, or nil. A member of the wrong type is
// ignored.
func parseProblem(body []byte) *problem.Document {
	if len(body) >= profile.MaxDocument {
		return nil
	}
	p := new(problem.Document)
	err := json.Unmarshal(body, p)
	var member *json.UnmarshalTypeError
	if err != nil && (!errors.As(err, &member) || member.Field == "") {
		return nil
	}
	return p
}

// prefixed puts the beginning of a body back that has been read already.
func prefixed(start []byte, body io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), body), body}
}

var guardProfile = profile.Guard()

// Replayed reports whether a response is a recorded one of this library's server half: the
// request had been executed before, and the server has repeated the answer of that time.
func Replayed(resp *http.Response) bool {
	return resp != nil && guardProfile.IsReplay(resp)
}
