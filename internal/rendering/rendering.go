// Package rendering makes each problem document that says nothing of its own request once.
package rendering

import (
	"encoding/json"
	"strconv"
	"sync"

	"example.com/idempotency/problem"
)

// A Rendering is a problem document as it is sent.
type Rendering struct {
	Body   []byte
	Length string // the Content-Length
}

func render(p problem.Document) *Rendering {
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: strings and numbers
		body = nil
	}
	return &Rendering{body, strconv.Itoa(len(body))}
}

// kinds has what is made once of the problems that are sent again and again.
var kinds = makeKinds()

// A kind is what the problems of one code have in common.
type kind struct {
	usual problem.Document

	mu   sync.RWMutex
	made map[variant]*Rendering // as many as policies
}

// A variant is all in which problems of one code differ that say nothing of their own request.
type variant struct {
	typ    string
	status int
}

func makeKinds() map[problem.Code]*kind {
	kinds := make(map[problem.Code]*kind)
	for _, c := range problem.Codes() {
		kinds[c] = &kind{usual: problem.New(c), made: make(map[variant]*Rendering)}
	}
	return kinds
}

// Of returns the rendering of a problem. Nobody may change it.
func Of(p *problem.Document) *Rendering {
	k := kinds[p.Code]
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
