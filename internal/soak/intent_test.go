//go:build unix

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"example.com/idempotency/problem"
)

// An intent is what a client wants to happen once: it sends the same request, with the
// same key, until it is answered.
type intent struct {
	tenant, key, route string
	order              order
	body               []byte

	mu     sync.Mutex
	born   time.Time
	asked  map[*process]bool // processes that have got the request
	first  *answered         // the first definite answer
	record *answered         // the first that was replayed
	held   bool
}

// An answered request: what the client saw, in a form that is small to keep.
type answered struct {
	digest   string // of status, header and body
	effect   string
	attempt  int
	process  *process // that gave the answer
	replayed bool
}

func newIntent(route, tenant, key string, o order) *intent {
	body, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return &intent{
		route: route, tenant: tenant, key: key, order: o, body: body,
		born: time.Now(), asked: make(map[*process]bool),
	}
}

func (in *intent) name() string { return in.tenant + "/" + in.key }

// A reply is an answer that has been read to its end, or why there is none.
type reply struct {
	sent   time.Time
	status int
	header http.Header
	body   []byte
	code   problem.Code // of a refusal by the guard
	err    error
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// attempt is that of the run that made the answer, or 0.
func (r reply) attempt() int {
	n, _ := strconv.Atoi(r.header.Get("X-Attempt"))
	return n
}

func (r reply) String() string {
	if r.err != nil {
		return r.err.Error()
	}
	return fmt.Sprintf("%d %s %.100q", r.status, r.code, r.body)
}

// digest covers what the handler has said.
func (r reply) digest() string {
	parts := [][]byte{fmt.Append(nil, r.status), r.body}
	for _, name := range []string{"Content-Type", "Location", "X-Effect", "X-Attempt"} {
		parts = append(parts, fmt.Append(nil, "\n", name, len(r.header[name]), r.header.Get(name)))
	}
	return digest(parts...)
}

// send sends the intent's request once.
func (in *intent) send(ctx context.Context, client *http.Client, p *process, body []byte) reply {
	in.mu.Lock()
	in.asked[p] = true
	in.mu.Unlock()
	got := reply{sent: time.Now()}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+in.route, bytes.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	r.Header.Set("X-Tenant", in.tenant)
	r.Header.Set("Idempotency-Key", in.key)
	resp, err := client.Do(r)
	if err != nil {
		got.err = err
		return got
	}
	defer resp.Body.Close()
	got.status, got.header = resp.StatusCode, resp.Header
	got.body, got.err = io.ReadAll(resp.Body)
	if got.err == nil && got.header.Get("Content-Type") == "application/problem+json" {
		var document problem.Document
		got.err = json.Unmarshal(got.body, &document)
		got.code = document.Code
	}
	return got
}

// A verdict is what a client makes of a reply.
type verdict int

const (
	again   verdict = iota // nothing is settled yet
	settled                // there is an answer, or the key is held
)

var errHungUp = errors.New("the client has hung up")

// take judges a reply and keeps what it says. The error says what no reply may ever be.
func (in *intent) take(p *process, got reply) (verdict, error) {
	disturbed := p.disturbed(got.sent)
	switch {
	case errors.Is(got.err, errHungUp):
		return again, nil
	case got.err != nil && disturbed:
		return again, nil
	case errors.Is(got.err, context.DeadlineExceeded):
		return again, fmt.Errorf("unanswered: %w", got.err)
	case got.err != nil:
		return again, fmt.Errorf("cut off: %w", got.err)
	case got.status == http.StatusCreated:
		return settled, in.compare(p, got)
	case got.code == problem.InFlight,
		got.code == problem.StoreUnavailable:
		if got.header.Get("Retry-After") == "" {
			return again, errors.New("without Retry-After")
		}
		return again, nil
	case got.code == problem.ShuttingDown && disturbed:
		return again, nil
	case got.code == problem.OutcomeUnknown:
		return settled, in.hold()
	case got.code != "":
		return again, errors.New("unexpected refusal")
	case in.order.TurnAway && got.status == http.StatusTooManyRequests,
		in.route == once && got.status == http.StatusBadGateway,
		string(got.body) == notSure+"\n":
		return again, nil
	default:
		return again, errors.New("unexpected answer")
	}
}

// compare checks that there is one answer. What was replayed has been recorded, and
// nothing else is ever replayed. An answer that was not may be another one if its run
// could not be recorded: the store was away, or the answer was sent in pieces, and then
// the process was killed, or stopped for so long that another took over.
func (in *intent) compare(p *process, got reply) error {
	a := &answered{
		digest: got.digest(), effect: got.header.Get("X-Effect"), attempt: got.attempt(),
		process: p, replayed: got.replayed(),
	}
	if a.attempt == 0 || !bytes.Equal(got.body, in.order.answer(in.name(), a.effect)) {
		return errors.New("not the answer to this request")
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if a.replayed {
		if in.record == nil {
			in.record = a
		}
		if in.record.digest != a.digest {
			return fmt.Errorf("two recorded answers: %+v and %+v", in.record, a)
		}
	}
	if in.first == nil {
		in.first = a
	}
	for _, other := range []*answered{in.first, in.record} {
		if other == nil || other.digest == a.digest {
			continue
		}
		earlier, later := a, other
		if later.attempt < earlier.attempt {
			earlier, later = later, earlier
		}
		if in.route == hold || earlier.attempt == later.attempt || earlier.replayed || !earlier.process.disturbed(in.born) {
			return fmt.Errorf("two answers: %+v and %+v", earlier, later)
		}
	}
	return nil
}

// hold notes that the key is held. That happens to a run whose process did not survive
// it or was stopped in it, and to a step that is made at most once also when its mark
// could not be recorded.
func (in *intent) hold() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.held = true
	if in.route == once {
		return nil
	}
	for p := range in.asked {
		if in.route == hold && p.disturbed(in.born) {
			return nil
		}
	}
	return errors.New("held although no process was disturbed")
}
