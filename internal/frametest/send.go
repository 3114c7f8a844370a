package frametest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An answer is what a client got.
type answer struct {
	cut             bool // the connection ended before the answer did
	status          int
	header, trailer http.Header
	body            string
}

// sender opens a connection for each request: Go's client repeats a request with a key by itself
// when a connection that it has used before is cut.
var sender = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       20 * time.Second,
}

// send sends the request of a case, for a tenant and with a key, if that is not empty.
func send(t testing.TB, url string, c Case, tenant, key string) answer {
	t.Helper()
	got, err := try(t.Context(), url, c, tenant, key)
	require.NoError(t, err, c.Name)
	return got
}

// try is send outside of the goroutine of the test.
func try(ctx context.Context, url string, c Case, tenant, key string) (answer, error) {
	body := strings.NewReader(c.Body)
	if c.Method == http.MethodGet || c.Method == http.MethodHead {
		body = strings.NewReader("")
	}
	r, err := http.NewRequestWithContext(ctx, c.Method, url+c.Path, body)
	if err != nil {
		return answer{}, err
	}
	r.Host = "frametest.example" // some answers name it
	r.Header = c.Header.Clone()
	r.Header.Set(TenantHeader, tenant)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := sender.Do(r)
	if err != nil {
		return cut(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return cut(err)
	}
	slices.Sort(resp.Header["Allow"]) // chi takes them from a map
	if resp.Trailer == nil {
		resp.Trailer = http.Header{}
	}
	return answer{status: resp.StatusCode, header: resp.Header, trailer: resp.Trailer, body: string(got)}, nil
}

// cut takes an error for an answer that the server has cut short, unless the time is over.
func cut(err error) (answer, error) {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return answer{}, err
	}
	return answer{cut: true}, nil
}

// stream reads a stream, each chunk before the next one is written.
func (f Framework) stream(t testing.TB, url string, app *App) {
	t.Helper()
	if f.WholeStreams {
		return
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/stream/paused", strings.NewReader("x"))
	require.NoError(t, err)
	r.Header.Set(TenantHeader, "tenant")
	r.Header.Set("Idempotency-Key", "paused")
	resp, err := sender.Do(r)
	if err != nil {
		f.report("a stream does not begin before it ends: %v", err)
		close(app.pause)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	for _, chunk := range app.replies["paused"].Chunks {
		got := make([]byte, len(chunk))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != chunk {
			f.report("a chunk of a stream is %q: %v", got, err)
		}
		app.pause <- struct{}{}
	}
}

// A difference is a part in which two answers differ: status, body, cut, header NAME or
// trailer NAME.
type difference struct{ part, was, is string }

func (d difference) String() string {
	return fmt.Sprintf("%s: %.300q became %.300q", d.part, d.was, d.is)
}

// compare returns the parts in which b differs from a.
func compare(a, b answer) []difference {
	if a.cut || b.cut {
		if a.cut != b.cut {
			return []difference{{"cut", fmt.Sprint(a.cut), fmt.Sprint(b.cut)}}
		}
		return nil
	}
	var all []difference
	if a.status != b.status {
		all = append(all, difference{"status", fmt.Sprint(a.status), fmt.Sprint(b.status)})
	}
	if a.body != b.body {
		all = append(all, difference{"body", a.body, b.body})
	}
	all = append(all, compareFields("header", a.header, b.header)...)
	return append(all, compareFields("trailer", a.trailer, b.trailer)...)
}

func compareFields(what string, a, b http.Header) []difference {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	var all []difference
	for name := range names {
		if !slices.Equal(a[name], b[name]) {
			all = append(all, difference{what + " " + name, fmt.Sprint(a[name]), fmt.Sprint(b[name])})
		}
	}
	slices.SortFunc(all, func(x, y difference) int { return strings.Compare(x.part, y.part) })
	return all
}
