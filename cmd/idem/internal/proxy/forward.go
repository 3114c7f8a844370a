package proxy

import (
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// This file passes a request on and its answer back: what the service is told, and what stays behind.

// The fields that tell the service of a run.
const (
	keyField     = "Idempotency-Key"
	attemptField = "Idempotency-Attempt"
	derivedField = "Idempotency-Derived-Key"
)

// A forwarder is the handler that the guards protect.
type forwarder struct {
	to         *url.URL
	config     *Config
	scopeField string // that says whose a key is
	log        *slog.Logger
	proxy      *httputil.ReverseProxy
}

func newForwarder(c *Config, to *url.URL, transport http.RoundTripper, log *slog.Logger) *forwarder {
	f := &forwarder{to: to, config: c, scopeField: scopeField(c.Scope), log: log}
	f.proxy = &httputil.ReverseProxy{
		Rewrite: f.rewrite, ModifyResponse: f.judge, ErrorHandler: f.fail, Transport: transport,
		BufferPool: &buffers{sync.Pool{New: func() any { return new([32 << 10]byte) }}},
		ErrorLog:   slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return f
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, run := idempotency.FromContext(r.Context()); run {
		w = whole{writer{w}}
	} else {
		w = passing{writer{w}}
	}
	f.proxy.ServeHTTP(w, r)
	delete(w.Header(), outcomeField) // in a trailer
	delete(w.Header(), http.TrailerPrefix+outcomeField)
}

// rewrite makes the request for the service. What tells of a run is ours: clients cannot set it.
func (f *forwarder) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.RawPath = spelled(p.In.URL.RawPath) // as it came: without it, net/url would spell the path in its own way
	p.SetURL(f.to)
	p.Out.Host, p.Out.URL.RawQuery = p.In.Host, spelled(p.In.URL.RawQuery)
	if f.config.TrustForwarded {
		p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	}
	p.SetXForwarded()
	for name := range p.Out.Header {
		if f.isOurs(name) {
			delete(p.Out.Header, name)
		}
	}
	p.Out.Header["Traceparent"] = p.In.Header["Traceparent"][:1] // although Connection may name it, as the key
	ctx := p.In.Context()
	op, run := idempotency.FromContext(ctx)
	if !run {
		return
	}
	delete(p.Out.Header, "Connection") // a run ends with an answer, so no other protocol is offered
	delete(p.Out.Header, "Upgrade")
	p.Out.Header[keyField] = p.In.Header[keyField]
	p.Out.Header.Set(attemptField, strconv.Itoa(op.Attempt()))
	p.Out.Header.Del("Expect") // the body is here
	if f.config.DerivedKey {
		p.Out.Header.Set(derivedField, idempotency.DeriveKey(ctx, "proxy"))
	}
}

// isOurs reports whether a client cannot say a field to the service. CGI and what came of it read an underscore in a name
// as a hyphen, and join the values of both: a field with a meaning here passes in the spelling that has it.
func (f *forwarder) isOurs(name string) bool {
	read := asCGI(name)
	switch read {
	case outcomeField, attemptField, derivedField:
		return true
	case keyField, "Forwarded", "Traceparent", "Tracestate":
		return name != read
	case asCGI(f.scopeField):
		return name != f.scopeField
	}
	return name != read && strings.HasPrefix(read, "X-Forwarded-")
}

func asCGI(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// judge takes the outcome out of an answer.
func (*forwarder) judge(resp *http.Response) error {
	outcome := said(resp.Header)
	delete(resp.Header, outcomeField)
	if op, run := idempotency.FromContext(resp.Request.Context()); run && outcome != 0 {
		op.SetOutcome(outcome)
	}
	return nil
}

// fail answers in place of the service.
func (f *forwarder) fail(w http.ResponseWriter, r *http.Request, err error) {
	met := broken
	if known, ok := errors.AsType[*failure](err); ok {
		met = known.fate
	}
	v := verdicts[met]
	f.log.WarnContext(r.Context(), "no answer of the service", "fate", v.name, "error", err.Error())
	op, run := idempotency.FromContext(r.Context())
	if !run {
		http.Error(w, v.detail, v.bare)
		return
	}
	op.SetOutcome(v.outcome)
	p := problem.New(v.code)
	p.Type, p.Detail = "about:blank", v.detail
	refuse(w, p)
}

// refuse writes a refusal as a guard does.
func refuse(w http.ResponseWriter, p problem.Document) {
	h := w.Header()
	h.Set("Content-Type", problem.ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", "1")
	h.Set(problem.Header, string(p.Code))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// A writer takes the outcome out of informational answers and of trailers. A 101 comes this way only from HTTP/2, which has none (RFC
// 9113, section 8.6): that of HTTP/1 goes past it, on a connection that is taken over.
type writer struct{ http.ResponseWriter }

func (w writer) WriteHeader(status int) {
	if status == http.StatusSwitchingProtocols {
		return
	}
	delete(w.Header(), outcomeField)
	w.ResponseWriter.WriteHeader(status)
}

// passing is for a request without a run: what the service flushes, and connections that are taken over, pass.
type passing struct{ writer }

func (w passing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// whole is for a run. The proxy of net/http flushes each answer without a declared length. An answer that is
// flushed leaves before it is recorded, so only that is which its type makes a stream.
type whole struct{ writer }

// streams are the types whose readers wait for each part.
var streams = map[string]bool{"text/event-stream": true, "application/x-ndjson": true, "application/json-seq": true}

func (w whole) FlushError() error {
	kind, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if !streams[strings.ToLower(kind)] {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// buffers are what bodies are copied with.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	return b.pool.Get().(*[32 << 10]byte)[:] //nolint:forcetypeassert // nothing else is put in
}
func (b *buffers) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }
