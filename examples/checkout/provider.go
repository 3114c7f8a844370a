package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A provider stands in for the services that a shop depends on: it charges, ships and mails.
// It honours idempotency keys. Tests can tell it to fail, or to act and not to answer.
type provider struct {
	mux http.ServeMux

	mu      sync.Mutex
	effects []effect
	faults  map[string]string // by kind and order
	calls   map[string]int    // by kind and order
}

type effect struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Order     string `json:"order"`
	Reference string `json:"reference"`
	key       string
}

// The faults of a provider. Each happens once.
const (
	faultFail = "fail" // 503, and nothing is done
	faultHang = "hang" // the effect is made, and no answer comes
)

// declinedAbove is the largest amount that a card pays.
const declinedAbove = 10_000

func newProvider() *provider {
	p := &provider{faults: make(map[string]string), calls: make(map[string]int)}
	p.mux.HandleFunc("POST /{kind}", p.serveAct)
	p.mux.HandleFunc("GET /{kind}/{reference}", p.serveFind)
	p.mux.HandleFunc("PUT /faults/{kind}/{order}", p.serveFault)
	p.mux.HandleFunc("GET /orders/{order}", p.serveOrder)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// An instruction is the body of a request to the provider.
type instruction struct {
	Order     string `json:"order"`
	Amount    int64  `json:"amount"`
	Reference string `json:"reference"`
}

func (p *provider) serveAct(w http.ResponseWriter, r *http.Request) {
	var in instruction
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind := r.PathValue("kind")
	e, fault := p.act(kind, r.Header.Get("Idempotency-Key"), in)
	switch {
	case fault == faultHang:
		<-r.Context().Done()
	case fault == faultFail:
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	case e == nil:
		http.Error(w, "card declined", http.StatusPaymentRequired)
	default:
		_ = json.NewEncoder(w).Encode(e)
	}
}

// act makes an effect and returns it. It returns the earlier effect if the key is known, and
// nil if the card is declined.
func (p *provider) act(kind, key string, in instruction) (*effect, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place := kind + "/" + in.Order
	p.calls[place]++
	fault := p.faults[place]
	delete(p.faults, place)
	if fault == faultFail {
		return nil, fault
	}
	for _, e := range p.effects {
		if key != "" && e.Kind == kind && e.key == key {
			return &e, fault
		}
	}
	if in.Amount > declinedAbove {
		return nil, fault
	}
	e := effect{ID: fmt.Sprintf("%s-%d", kind, len(p.effects)+1), Kind: kind, Order: in.Order, Reference: in.Reference, key: key}
	p.effects = append(p.effects, e)
	return &e, fault
}

func (p *provider) serveFind(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.effects {
		if e.Kind == r.PathValue("kind") && e.Reference == r.PathValue("reference") {
			_ = json.NewEncoder(w).Encode(e)
			return
		}
	}
	http.NotFound(w, r)
}

func (p *provider) serveFault(_ http.ResponseWriter, r *http.Request) {
	fault, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[r.PathValue("kind")+"/"+r.PathValue("order")] = string(fault)
}

// A tally counts what the provider did for an order, and how often it was asked.
type tally struct {
	Done  map[string]int `json:"done"`
	Asked map[string]int `json:"asked"`
}

func (p *provider) serveOrder(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	order := r.PathValue("order")
	t := tally{map[string]int{}, map[string]int{}}
	for _, e := range p.effects {
		if e.Order == order {
			t.Done[e.Kind]++
		}
	}
	for _, kind := range []string{"charges", "shipments", "mails"} {
		if n := p.calls[kind+"/"+order]; n > 0 {
			t.Asked[kind] = n
		}
	}
	_ = json.NewEncoder(w).Encode(t)
}
