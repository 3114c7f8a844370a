package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/internal/modeltest/versions"
)

// A visit is one request on its way to the handler.
type visit struct {
	do      string
	reply   *versions.Reply
	waiting chan<- struct{} // closed when the handler waits for gate
	gate    <-chan struct{}
}

func (v *visit) wait() {
	if v.waiting != nil {
		close(v.waiting)
		<-v.gate
	}
}

type visitKey struct{}

// request sends a request through the guard.
func (p *process) request(ctx context.Context, g *guard, c *versions.Call, v *visit) (r versions.Reply) {
	if v == nil {
		v = &visit{}
	}
	v.do, v.reply = c.Do, &r
	req := httptest.NewRequestWithContext(context.WithValue(ctx, visitKey{}, v), http.MethodPost, "/charges", strings.NewReader(c.Body))
	req.Header.Set("Idempotency-Key", c.Key)
	req.Header.Set("Content-Type", "text/plain")
	w := httptest.NewRecorder()
	g.Handler(http.HandlerFunc(handle)).ServeHTTP(w, req)
	result := w.Result()
	body, _ := io.ReadAll(result.Body)
	r.Status, r.Header, r.Body = result.StatusCode, maps.Clone(result.Header), string(body)
	return r
}

// start sends a request, and returns when its handler waits, or else its reply.
func (p *process) start(ctx context.Context, g *guard, c *versions.Call) (versions.Reply, error) {
	waiting, gate, reply := make(chan struct{}), make(chan struct{}), make(chan versions.Reply, 1)
	p.mu.Lock()
	p.gates[c.Guard+c.Key], p.running[c.Guard+c.Key] = gate, reply
	p.mu.Unlock()
	go func() { reply <- p.request(context.WithoutCancel(ctx), g, c, &visit{waiting: waiting, gate: gate}) }()
	select {
	case <-waiting:
		return versions.Reply{}, nil
	case r := <-reply:
		return r, fmt.Errorf("the handler was not reached: %v", r)
	}
}

// finish lets a handler go on, and returns the reply to its request.
func (p *process) finish(ctx context.Context, c *versions.Call) (versions.Reply, error) {
	p.mu.Lock()
	gate, reply := p.gates[c.Guard+c.Key], p.running[c.Guard+c.Key]
	p.mu.Unlock()
	close(gate)
	select {
	case r := <-reply:
		return r, nil
	case <-ctx.Done():
		return versions.Reply{}, ctx.Err()
	}
}

// handle does what the call says.
func handle(w http.ResponseWriter, r *http.Request) {
	v := r.Context().Value(visitKey{}).(*visit)
	op, _ := idempotency.FromContext(r.Context())
	v.reply.Ran = true
	switch do := v.do; do {
	case "answer":
		v.wait()
		w.Header().Set("Location", "/charges/1")
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Vary", "Origin")
		w.Header().Set("Trailer", "X-Checksum")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "hello from attempt %d", op.Attempt())
		w.Header().Set("X-Checksum", "123")
	case "empty":
		w.WriteHeader(http.StatusNoContent)
	case "large":
		w.Header().Set("Location", "/charges/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, strings.Repeat("x", 2000))
	case "refuse":
		op.SetOutcome(idempotency.NotExecuted)
		w.WriteHeader(http.StatusUnprocessableEntity)
	case "fail":
		op.SetOutcome(idempotency.Unknown)
		w.WriteHeader(http.StatusInternalServerError)
	case "step", "step-fail", "step-wait":
		n, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
			v.reply.Steps++
			return 7, nil
		})
		if do == "step-wait" {
			v.wait()
		}
		if err != nil || do == "step-fail" {
			op.SetOutcome(idempotency.Unknown)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, "charge %d", n)
	case "once": // begins what must not happen twice
		_, err := idempotency.Step(r.Context(), "mail", func(context.Context) (int, error) {
			v.reply.Steps++
			v.wait()
			return 1, nil
		}, idempotency.AtMostOnce())
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	default:
		panic("nothing to do: " + do)
	}
}
