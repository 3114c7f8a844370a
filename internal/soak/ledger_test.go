//go:build unix

package soak

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// An effect is one thing that a run has done to the world, as it tells the ledger.
type effect struct {
	ID      string
	Intent  string // scope and key
	Process string
	Attempt int
	Arrived time.Time // of the request, before its claim
	Began   time.Time // of the handler, after its claim
	Body    string    // digest of the request's
}

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A ledger is the world outside of the processes: what was done to it is done. It notes
// an effect before it answers the run that made it.
type ledger struct {
	url string
	// judge is called for each effect, with those of the same intent before it. It is
	// set before the first.
	judge func(now effect, before []effect)

	mu        sync.Mutex
	effects   map[string][]effect // by intent
	gates     map[string]*gate    // by intent
	overtaken map[string]int      // by intent
}

// A gate holds the first run of an intent right behind its effect.
type gate struct {
	reached chan effect
	open    chan struct{}
}

func newLedger(t testing.TB) *ledger {
	l := &ledger{
		judge:     func(effect, []effect) {},
		effects:   make(map[string][]effect),
		gates:     make(map[string]*gate),
		overtaken: make(map[string]int),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects", l.serveEffect)
	mux.HandleFunc("POST /overtaken", l.serveOvertaken)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections() // a run may stand at a gate
		server.Close()
	})
	l.url = server.URL
	return l
}

func (l *ledger) serveEffect(w http.ResponseWriter, r *http.Request) {
	var e effect
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	before := l.effects[e.Intent]
	l.effects[e.Intent] = append(before[:len(before):len(before)], e)
	g := l.gates[e.Intent]
	delete(l.gates, e.Intent)
	l.mu.Unlock()
	l.judge(e, before)
	if g != nil {
		g.reached <- e
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// serveOvertaken notes that a run has found, after its effect, that its claim is not
// sure any more.
func (l *ledger) serveOvertaken(w http.ResponseWriter, r *http.Request) {
	var e effect
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	l.overtaken[e.Intent]++
	l.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// gate puts a gate before the first run of an intent.
func (l *ledger) gate(intent string) *gate {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := &gate{reached: make(chan effect, 1), open: make(chan struct{})}
	l.gates[intent] = g
	return g
}

// of returns the effects of an intent, in their order.
func (l *ledger) of(intent string) []effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.effects[intent]
}

// forget removes what is known of an intent.
func (l *ledger) forget(intent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.effects, intent)
	delete(l.overtaken, intent)
}
