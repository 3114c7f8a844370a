package conform

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// This file is the only one that sends requests. It sends none to a host that was not named, and no
// more than was allowed.

// Errors that end a check, and say nothing of the server.
var (
	errBudget = errors.New("the requests that --max-requests allows are used up")
	errHost   = errors.New("the host is not one that was named")
)

// Of a body, maxKept bytes are kept. What follows is compared by its digest, up to maxAnswer bytes in all. Nothing
// more is read.
const (
	maxKept   = 1 << 20
	maxAnswer = 16 << 20
)

// A wire sends requests.
type wire struct {
	client  *http.Client
	hosts   map[string]bool
	timeout time.Duration
	every   time.Duration

	mu   sync.Mutex
	most int
	n    int
	next time.Time
	long int // answers that were not read to their end
}

func newWire(c *Config) *wire {
	w := &wire{hosts: map[string]bool{}, timeout: c.Timeout, most: c.MaxRequests, every: time.Duration(float64(time.Second) / c.Rate)}
	for _, named := range []string{c.Template.URL, c.Effects.URL, c.Policy} {
		if u, err := url.Parse(named); err == nil && u.Host != "" {
			w.hosts[u.Host] = true
		}
	}
	w.client = &http.Client{
		// Each request has a connection of its own: on one that is used again, net/http itself sends a
		// request with a key a second time if the connection breaks. A proxy of the environment is
		// another host.
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w
}

// sent returns how many requests were sent.
func (w *wire) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// take waits until n more requests may be sent, all at once.
func (w *wire) take(ctx context.Context, n int) error {
	w.mu.Lock()
	if w.n+n > w.most {
		w.mu.Unlock()
		return errBudget
	}
	w.n += n
	now := time.Now()
	if w.next.Before(now) {
		w.next = now
	}
	w.next = w.next.Add(time.Duration(n) * w.every)
	pause := w.next.Sub(now) - w.every
	w.mu.Unlock()
	return sleep(ctx, pause)
}

// sleep waits, or returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// An answer is what came back.
type answer struct {
	status          int // 0 if there was no answer
	header, trailer http.Header
	body            string // its beginning, up to maxKept
	size            int64  // of the whole body, as far as it was read
	rest            string // the digest of what is not in body
	more            bool   // the answer goes on after what was read
	err             error  // why there was no answer
	wrote, began    time.Time
	lost            bool // the client did not get it
}

// request makes a request of a shot, if its host was named.
func (w *wire) request(ctx context.Context, s shot, keyHeader string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, s.method, s.url, strings.NewReader(s.body))
	if err != nil {
		return nil, err
	}
	if !w.hosts[r.URL.Host] {
		return nil, fmt.Errorf("%w: %s", errHost, r.URL.Host)
	}
	if s.header != nil {
		r.Header = s.header.Clone()
	}
	r.GetBody = nil
	if len(s.keys) > 0 {
		r.Header[http.CanonicalHeaderKey(keyHeader)] = s.keys
	}
	return r, nil
}

// send sends a request that take has allowed.
func (w *wire) send(ctx context.Context, s shot, keyHeader string) answer {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var wrote, began atomic.Pointer[time.Time] // the transport calls from goroutines of its own, and may be late
	now := func() *time.Time { t := time.Now(); return &t }
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest:         func(httptrace.WroteRequestInfo) { wrote.Store(now()) },
		GotFirstResponseByte: func() { began.Store(now()) },
	})
	r, err := w.request(ctx, s, keyHeader)
	if err != nil {
		return answer{err: err}
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := read(resp, cmp.Or(s.keep, maxKept))
	if a.more {
		w.mu.Lock()
		w.long++
		w.mu.Unlock()
	}
	for moment, at := range map[*time.Time]*time.Time{&a.wrote: wrote.Load(), &a.began: began.Load()} {
		if at != nil {
			*moment = *at
		}
	}
	return a
}

// read reads an answer, as far as it is compared.
func read(resp *http.Response, keep int64) answer {
	body, err := io.ReadAll(io.LimitReader(resp.Body, keep))
	digest := sha256.New()
	n, restErr := io.Copy(digest, io.LimitReader(resp.Body, maxAnswer-keep))
	a := answer{
		status: resp.StatusCode, header: resp.Header, body: string(body),
		size: int64(len(body)) + n, rest: string(digest.Sum(nil)),
	}
	if err == nil && restErr == nil && a.size == maxAnswer {
		var one [1]byte
		k, _ := io.ReadFull(resp.Body, one[:])
		a.more = k > 0
	}
	a.trailer = resp.Trailer
	if err := cmp.Or(err, restErr); err != nil {
		return answer{err: fmt.Errorf("the answer %d broke off: %w", resp.StatusCode, err)}
	}
	return a
}

// shown are the fields of an answer that a report shows.
var shown = []string{"Content-Type", "Location", "Retry-After", "Idempotency-Error", "Idempotent-Replayed", "Link"}

// String says what came.
func (a answer) String() string {
	if a.err != nil {
		return "no answer: " + a.err.Error()
	}
	var b strings.Builder
	if a.lost {
		b.WriteString("lost on its way: ")
	}
	fmt.Fprintf(&b, "%d", a.status)
	for _, name := range shown {
		if v := a.header.Values(name); len(v) > 0 {
			fmt.Fprintf(&b, ", %s: %s", name, strings.Join(v, ", "))
		}
	}
	fmt.Fprintf(&b, ", %d bytes", max(a.size, int64(len(a.body))))
	if a.more {
		b.WriteString(" and more that were not read")
	}
	if a.body != "" {
		fmt.Fprintf(&b, ": %s", clip(strings.TrimSpace(a.body), 120))
	}
	return b.String()
}

// sameBody reports whether two bodies are the same, as far as they were read.
func (a answer) sameBody(b answer) bool {
	return a.body == b.body && a.size == b.size && a.rest == b.rest && a.more == b.more
}

func (a answer) ok() bool      { return a.status >= 200 && a.status < 300 }
func (a answer) refused() bool { return a.status >= 400 && a.status < 500 }
