package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/problem"
)

// writeProblem is the default of WithErrorWriter.
func writeProblem(w http.ResponseWriter, r *http.Request, p problem.Document) {
	text := renderingOf(&p)
	h := w.Header()
	space := answer.NewSpace()
	h["Content-Type"] = space.Value(problem.ContentType)
	if lengthAllowed(h, r.Method) {
		h["Content-Length"] = space.Value(text.length)
	}
	space.Free()
	w.WriteHeader(p.Status)
	_, _ = w.Write(text.body) // a client that is gone needs no answer
}

// lengthAllowed reports whether a refusal may carry its length. The header h, which outer handlers may
// have set fields in, can forbid it: with a trailer HTTP/1.1 needs the chunked coding instead, and an
// outer handler with a content coding of its own sends a body of another length. An answer of a handler
// has the length that the handler has declared, or none.
func lengthAllowed(h http.Header, method string) bool {
	return method != http.MethodHead && len(h["Trailer"]) == 0 && len(h["Content-Encoding"]) == 0
}

// A rendering is a problem document as it is sent.
type rendering struct {
	body   []byte
	length string // the Content-Length
}

func render(p problem.Document) *rendering {
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: strings and numbers
		body = nil
	}
	return &rendering{body, strconv.Itoa(len(body))}
}

// problemKinds has what is made once of the problems that are sent again and again.
var problemKinds = makeProblemKinds()

// A kindOfProblem is what the problems of one code have in common.
type kindOfProblem struct {
	usual problem.Document

	mu   sync.RWMutex
	made map[variant]*rendering // as many as policies
}

// A variant is all in which problems of one code differ that say nothing of their own request.
type variant struct {
	typ    string
	status int
}

func makeProblemKinds() map[problem.Code]*kindOfProblem {
	kinds := make(map[problem.Code]*kindOfProblem)
	for _, c := range problem.Codes() {
		kinds[c] = &kindOfProblem{usual: problem.New(c), made: make(map[variant]*rendering)}
	}
	return kinds
}

// renderingOf returns the rendering of a problem. Nobody may change it.
func renderingOf(p *problem.Document) *rendering {
	k := problemKinds[p.Code]
	if k == nil || p.Detail != k.usual.Detail || p.OriginalStatus != 0 || p.OriginalLocation != "" {
		return render(*p)
	}
	v := variant{p.Type, p.Status}
	k.mu.RLock()
	r := k.made[v]
	k.mu.RUnlock()
	if r == nil {
		r = render(*p)
		k.mu.Lock()
		k.made[v] = r
		k.mu.Unlock()
	}
	return r
}

// retryAfter is the Retry-After, in seconds, of the refusals that a retry with the same key
// can end. One second is the smallest value that every client understands.
const retryAfter = "1"
