package wiretest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// Who owns the values of header fields: a handler outside of the guard, and the handler inside, may
// change theirs in place, whenever net/http allows it. No other answer may show it.

// A marker appends its mark to each value of the header that it is given, in place.
type marker struct {
	http.ResponseWriter
	mark string
}

func (w marker) WriteHeader(status int) {
	for _, values := range w.Header() {
		for i := range values {
			values[i] += w.mark
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w marker) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A fieldCase is a request, and the status of its answer.
type fieldCase struct {
	method, path, key, body string
	status                  int
}

// fieldCases are requests that get every field that a guard makes, from a fieldAPI.
var fieldCases = []fieldCase{
	{"POST", "/charges", "k", "1", http.StatusCreated},
	{"POST", "/charges", "k", "1", http.StatusCreated},  // a replay
	{"POST", "/charges", "k", "2", http.StatusConflict}, // another payload
	{"POST", "/flushed", "f", "1", http.StatusCreated},
	{"POST", "/flushed", "f", "1", http.StatusCreated},
	{"POST", "/charges", "k,k", "1", http.StatusBadRequest},
	{"POST", "/charges", "", "1", http.StatusBadRequest},
	{"POST", "/later", "k", "1", http.StatusServiceUnavailable}, // with Retry-After
	{"GET", "/keys", "k", "", http.StatusOK},
}

// A fieldAPI has a route for each way in which a guard makes an answer.
type fieldAPI struct{ mux http.ServeMux }

func newFieldAPI(t *testing.T) *fieldAPI {
	options := []idempotency.Option{
		idempotency.WithRequired(true), idempotency.WithExpiryHeader(guardtest.ExpiryHeader),
		idempotency.WithPolicyURL("https://api.example.com/policy"),
	}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), options...)
	later := guardtest.NewGuard(t, idempotency.NewMemoryStore(), append(options,
		idempotency.WithFingerprint(func(*http.Request, []byte) (idempotency.Fingerprint, error) {
			return idempotency.Fingerprint{}, idempotency.ErrTryLater
		}))...)
	api := new(fieldAPI)
	api.mux.Handle("/charges", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Own"] = []string{"one", "two"}
		w.WriteHeader(http.StatusCreated)
	})))
	api.mux.Handle("/flushed", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Own"] = []string{"one", "two"}
		w.WriteHeader(http.StatusCreated)
		_ = http.NewResponseController(w).Flush()
	})))
	api.mux.Handle("/later", later.Handler(guardtest.Answering(0, "")))
	api.mux.Handle("/keys", guard.LookupHandler())
	return api
}

// do makes a request of a tenant and returns the values of the answer's header, of which there is
// one for each field that a guard makes. The mark, if there is one, is that of the handler outside.
func (a *fieldAPI) do(t *testing.T, c fieldCase, tenant, mark string) string {
	r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
	r.Header.Set("X-Tenant", tenant)
	if c.key != "" {
		r.Header.Set("Idempotency-Key", c.key)
	}
	got := httptest.NewRecorder()
	var w http.ResponseWriter = got
	if mark != "" {
		w = marker{got, mark}
	}
	a.mux.ServeHTTP(w, r)
	assert.Equal(t, c.status, got.Code)
	assert.Equal(t, c.key, r.Header.Get("Idempotency-Key"), "the header of the request was changed")
	return fmt.Sprint(got.Header())
}

func TestChangedValuesAreOfOneAnswer(t *testing.T) {
	t.Parallel()
	api := newFieldAPI(t)
	for _, c := range fieldCases {
		require.NotContains(t, api.do(t, c, "first", ""), "<mark>")
	}
	for _, c := range fieldCases {
		marked := api.do(t, c, "marked", "<mark>")
		require.Contains(t, marked, "<mark>")
		require.NotContains(t, marked, "<mark><mark>", "two fields share their values")
	}
	for _, tenant := range []string{"marked", "later"} {
		for _, c := range fieldCases {
			require.NotContains(t, api.do(t, c, tenant, ""), "<mark>")
		}
	}
}

// With the race detector this finds values that two answers share, even if no value is wrong.
func TestValuesAreChangedAtTheSameTime(t *testing.T) {
	t.Parallel()
	api := newFieldAPI(t)
	var wg sync.WaitGroup
	for n := range 8 {
		own := fmt.Sprintf("<mark %d>", n)
		wg.Go(func() {
			for i := range 30 {
				tenant := fmt.Sprintf("t%d-%d", n, i)
				for _, c := range fieldCases {
					got := api.do(t, c, tenant, own)
					assert.NotContains(t, strings.ReplaceAll(got, own, ""), "<mark")
				}
			}
		})
	}
	wg.Wait()
}

// A handler may have its values from a pool, and give them back as it returns. With the race detector
// this finds values that are read after that, even if no value is wrong.
func TestValuesFromAPool(t *testing.T) {
	t.Parallel()
	pool := sync.Pool{New: func() any { return new([3]string) }}
	h := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := pool.Get().(*[3]string)
		defer pool.Put(values)
		key := r.Header.Get("Idempotency-Key")
		*values = [3]string{key, key, key}
		w.Header()["X-For"], w.Header()["Set-Cookie"], w.Header()["Location"] = values[0:1], values[1:2], values[2:3]
		w.WriteHeader(http.StatusCreated)
		if strings.HasSuffix(key, "0") {
			_ = http.NewResponseController(w).Flush()
		}
	}))
	s := guardtest.ServeHTTP1(t, h)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 30 {
				key := fmt.Sprintf("k-%d-%d", n, i)
				for _, name := range []string{"Set-Cookie", "X-For"} { // a replay has no Set-Cookie
					got := s.Attempt(t, guardtest.Call{Key: key})
					assert.Equal(t, key, got.Header.Get(name))
					assert.Equal(t, key, got.Header.Get("X-For"))
					assert.Equal(t, key, got.Header.Get("Location"))
				}
			}
		})
	}
	wg.Wait()
}
