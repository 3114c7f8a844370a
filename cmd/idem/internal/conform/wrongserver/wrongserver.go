// Package wrongserver is a server that handles idempotency keys, with one defect that is chosen, or with
// none. It shares no code with the library, so that the one can test the other.
package wrongserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// A Server has the routes POST and PATCH /charges and /refunds, GET /count with the number of effects and the
// bodies of their requests, and GET /policy.
type Server struct {
	// Downstream is a URL that is called for each effect, unless it is empty.
	Downstream string
	// Late is how long after the answer an effect comes.
	Late time.Duration

	defect string
	ttl    time.Duration
	delay  time.Duration
	policy http.Handler

	mu      sync.Mutex
	effects int
	made    []string
	records map[string]*record
}

// A record is what is known of a key.
type record struct {
	print   string
	done    bool
	answer  answer
	replays int
	expires time.Time
}

type answer struct {
	status          int
	header, trailer http.Header
	body            string
}

const (
	maxKey  = 255
	maxBody = 64 << 10
)

// New returns a server with a defect, which is a member of Defects or empty. Its effects take a delay.
func New(defect string, ttl, delay time.Duration) *Server {
	s := &Server{defect: defect, ttl: ttl, delay: delay, records: map[string]*record{}}
	p := policy.Policy{
		Methods: []string{"POST", "PATCH"}, Required: true,
		Key: policy.Key{Header: "Idempotency-Key", MaxBytes: maxKey}, Binding: policy.Exact, MaxRequestBody: maxBody,
		TTL: ttl, MaxResponseBody: 1 << 20, ReplayedHeader: "Idempotent-Replayed", ErrorHeader: "Idempotency-Error", ExpiryHeader: "Idempotency-TTL", Problems: true,
	}
	for _, code := range []problem.Code{problem.KeyMissing, problem.KeyInvalid, problem.KeyReused, problem.InFlight, problem.BodyTooLarge} {
		p.Refusals = append(p.Refusals, policy.NewRefusal(code))
	}
	if s.is("policy-not-required") {
		p.Required = false
	}
	if s.is("policy-other-status") {
		p.Refusals[2].Statuses = []int{http.StatusUnprocessableEntity}
	}
	s.policy = policy.Handler(p)
	return s
}

// Crash forgets what a server forgets that is killed: nothing of a durable store.
func (s *Server) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is("crash-forgets") {
		clear(s.records)
	}
}

func (s *Server) is(defect string) bool { return s.defect == defect }

// without returns a value, or nothing if the server has a defect.
func (s *Server) without(defect, value string) string {
	if s.is(defect) {
		return ""
	}
	return value
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/count":
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"effects": s.effects, "made": s.made})
	case "/policy":
		s.policy.ServeHTTP(w, r)
	case "/charges", "/refunds":
		s.protect(w, r)
	default:
		http.NotFound(w, r)
	}
}

// protect answers a request with a key.
func (s *Server) protect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && r.Method != http.MethodPatch {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	caller := r.Header.Get("Authorization")
	known := strings.HasPrefix(caller, "Bearer ")
	switch {
	case !known && s.is("stranger-sees"):
		caller = "Bearer alice"
	case !known:
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	key, code := s.key(r.Header["Idempotency-Key"])
	if code != "" {
		s.refuse(w, code, answer{})
		return
	}
	if s.is("eager") {
		s.Effect("")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	if len(body) > maxBody && !s.is("no-body-limit") {
		s.refuse(w, problem.BodyTooLarge, answer{})
		return
	}
	name := s.name(caller, key, string(body))
	bound := s.bound(r, string(body))
	rec, mine, code := s.claim(name, bound)
	switch {
	case code != "":
		s.refuse(w, code, rec.answer)
	case !mine:
		switch n := s.again(rec); {
		case n == 3 && s.is("third-retry-runs"):
			s.Effect(string(body))
		case s.is("retry-runs-late"):
			time.AfterFunc(later, func() { s.Effect(string(body)) })
		}
		s.replay(w, rec.answer)
	case !known:
		s.forget(name)
		w.WriteHeader(http.StatusUnauthorized)
	default:
		s.run(w, r, name, bound, string(body))
	}
}

// key reads the key of a request, or says why it is refused.
func (s *Server) key(lines []string) (string, problem.Code) {
	if len(lines) == 0 {
		return "", problem.KeyMissing
	}
	raw := lines[0]
	switch quoted := len(raw) > 1 && strings.HasPrefix(raw, `"`) && strings.HasSuffix(raw, `"`); {
	case len(lines) > 1 && !s.is("two-fields"), quoted && s.is("quotes-refused"):
		return "", problem.KeyInvalid
	case quoted && !s.is("quotes-kept"):
		raw = raw[1 : len(raw)-1]
	}
	bad := raw == "" && !s.is("empty-key") ||
		strings.Contains(raw, ",") && !s.is("list-key") ||
		strings.ContainsFunc(raw, func(r rune) bool { return r > '~' }) && !s.is("any-bytes") ||
		len(raw) > maxKey && !s.is("long-keys") || len(raw) > 200 && s.is("short-keys")
	if bad {
		return "", problem.KeyInvalid
	}
	if s.is("truncated-keys") {
		raw = raw[:min(len(raw), 64)]
	}
	if s.is("case-lost") {
		raw = strings.ToLower(raw)
	}
	return raw, ""
}

// name is that of the record.
func (s *Server) name(caller, key, body string) string {
	switch {
	case s.is("one-scope"):
		caller = ""
	case s.is("key-ignored"):
		key = body
	}
	return caller + "\n" + key
}

// bound is what the request must have in common with the first one.
func (s *Server) bound(r *http.Request, body string) string {
	if s.is("body-not-compared") {
		body = ""
	}
	return strings.Join([]string{
		s.without("method-not-compared", r.Method), s.without("path-not-compared", r.URL.Path), s.without("query-not-compared", r.URL.RawQuery),
		s.without("type-not-compared", r.Header.Get("Content-Type")), body,
	}, "\n")
}

// claim tells whether a request may run, or what is there.
func (s *Server) claim(name, bound string) (rec *record, mine bool, code problem.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec = s.records[name]
	switch {
	case rec == nil, rec.done && time.Now().After(rec.expires) && !s.is("never-ends"), s.is("retry-runs"), s.is("no-lock") && !rec.done:
		s.records[name] = &record{print: bound}
		return s.records[name], true, ""
	case rec.print != bound && s.is("other-payload-runs"):
		return rec, true, ""
	case rec.print != bound && s.is("other-spelling-runs") && squeezed(rec.print) == squeezed(bound):
		return rec, true, ""
	case rec.print != bound:
		if s.is("mismatch-forgets") {
			delete(s.records, name)
		}
		return rec, false, problem.KeyReused
	case !rec.done:
		return rec, false, problem.InFlight
	}
	return rec, false, ""
}

// again counts the replays of a record.
func (s *Server) again(rec *record) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec.replays++
	return rec.replays
}

func squeezed(s string) string { return strings.Join(strings.Fields(s), "") }

// Effect makes an effect of a request.
func (s *Server) Effect(body string) {
	if s.Downstream != "" {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.Downstream, strings.NewReader(body))
		if err == nil {
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects++
	s.made = append(s.made, body)
}

// later is when the second effect comes of defects that have a late one.
const later = 150 * time.Millisecond

func (s *Server) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, name)
}

// run makes the effect, records the answer and sends it.
func (s *Server) run(w http.ResponseWriter, r *http.Request, name, bound, body string) {
	switch {
	case s.Late > 0:
		time.AfterFunc(s.delay+s.Late, func() { s.Effect(body) })
	case !s.is("eager"):
		s.Effect(body)
	}
	if s.is("two-effects") {
		s.Effect(body)
	}
	time.Sleep(s.delay)
	if r.Context().Err() != nil { // the client has gone
		switch s.defect {
		case "gone-runs-again":
			s.forget(name)
			return
		case "gone-stays-locked":
			return
		case "gone-runs-late":
			time.AfterFunc(later, func() { s.Effect(body) })
		}
	}
	a := answer{http.StatusCreated, http.Header{
		"Content-Type": {"application/json"}, "Location": {r.URL.Path + "/" + rand.Text()}, "Set-Cookie": {"visit=" + rand.Text()},
	}, http.Header{"Checksum": {rand.Text()}}, fmt.Sprintf("{\"id\":%q,\"order\":%q}\n", rand.Text(), body)}
	s.mu.Lock()
	s.records[name] = &record{bound, true, a, 0, time.Now().Add(s.life())}
	s.mu.Unlock()
	s.send(w, a)
	if strings.HasPrefix(s.defect, "lost-") {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			s.lost(name)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lost is what defects do about an answer that did not arrive.
func (s *Server) lost(name string) {
	if s.is("lost-runs-again") {
		s.forget(name)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec := s.records[name]; rec != nil {
		changed := *rec
		changed.answer.body = "{}\n"
		s.records[name] = &changed
	}
}

func (s *Server) life() time.Duration {
	if s.is("ends-early") {
		return s.ttl / 2
	}
	return s.ttl
}

func (s *Server) replay(w http.ResponseWriter, a answer) {
	a.header, a.trailer = a.header.Clone(), a.trailer.Clone()
	switch s.defect {
	case "replay-status":
		a.status = http.StatusOK
	case "replay-body":
		a.body = a.body[:len(a.body)/2]
	case "replay-header":
		a.header.Del("Location")
	case "replay-header-doubled":
		a.header.Add("Location", a.header.Get("Location"))
	case "replay-trailer":
		a.trailer = nil
	}
	if !s.is("cookie-replayed") {
		a.header.Del("Set-Cookie")
	}
	if !s.is("no-mark") {
		a.header.Set("Idempotent-Replayed", "true")
	}
	s.send(w, a)
}

func (s *Server) send(w http.ResponseWriter, a answer) {
	maps.Copy(w.Header(), a.header)
	for name := range a.trailer {
		w.Header().Add("Trailer", name)
	}
	if !s.is("no-expiry") {
		w.Header().Set("Idempotency-TTL", fmt.Sprint(int(s.ttl/time.Second)))
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
	maps.Copy(w.Header(), a.trailer)
}
