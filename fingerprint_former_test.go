package idempotency_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// An earlier version of this package has recorded a request whose body it did not compare byte for byte. A
// retry and another request that it took for the same cannot be told apart: neither is replayed nor refused
// for good, and neither runs. Any other request is refused, and those that were always compared whole are
// replayed.
func TestRecordOfAnEarlierReading(t *testing.T) {
	t.Parallel()
	form := func(boundary, value string) guardtest.Call {
		return guardtest.Call{
			Key: "k", Body: "--" + boundary + "\r\n\r\n" + value + "\r\n--" + boundary + "--\r\n",
			Header: http.Header{"Content-Type": {"multipart/form-data; boundary=" + boundary}, "Content-Encoding": {"x"}},
		}
	}
	latin1 := func(body string) guardtest.Call {
		return guardtest.Call{Key: "k", Body: body, Header: http.Header{"Content-Type": {"application/json; charset=iso-8859-1"}}}
	}
	amount := idempotency.FieldsFingerprint("amount")
	functions := map[string]idempotency.FingerprintFunc{
		"raw": idempotency.RawFingerprint, "JSON": idempotency.JSONFingerprint, "fields": amount,
	}
	for name, before := range functions {
		for what, tt := range map[string]struct {
			call, taken, other guardtest.Call
			was                bool // one of those that were taken for the same
		}{
			"form": {form("one", "1"), form("two", "1"), form("one", "2"), true},
			"JSON": {latin1(`{"amount":1}`), latin1(`{"amount": 1}`), latin1(`{"amount":2}`), name != "raw"},
			"another": {
				guardtest.Call{Key: "k", Body: `{"amount":1}`}, guardtest.Call{Key: "k", Body: `{"amount":3}`}, guardtest.Call{Key: "k", Body: `{"amount":2}`}, false,
			},
		} {
			for _, after := range []idempotency.Option{
				idempotency.WithFingerprint(before), idempotency.WithFingerprint(idempotency.RawFingerprint, before), idempotency.WithFingerprint(amount, before),
			} {
				seen := &guardtest.Events{}
				store, h := idempotency.NewMemoryStore(), &guardtest.Counter{}
				earlier := guardtest.NewGuard(t, store, idempotency.WithFingerprint(idempotency.Formerly(before)))
				later := guardtest.NewGuard(t, store, after, idempotency.WithFailOpen(true), idempotency.WithObserver(seen.Observe))
				old, now := guardtest.ServeRecorder(t, earlier.Handler(h)), guardtest.ServeRecorder(t, later.Handler(h))
				require.Equal(t, http.StatusCreated, old.Do(t, tt.call).Status)
				if tt.was {
					for _, c := range []guardtest.Call{tt.call, tt.taken} {
						guardtest.RequireProblem(t, now.Do(t, c), http.StatusServiceUnavailable, problem.StoreUnavailable)
					}
					require.Equal(t, 2, seen.Count(event.Corrupt))
				} else {
					require.True(t, now.Do(t, tt.call).Replayed(), "%s, %s", name, what)
					guardtest.RequireProblem(t, now.Do(t, tt.taken), http.StatusConflict, problem.KeyReused)
				}
				guardtest.RequireProblem(t, now.Do(t, tt.other), http.StatusConflict, problem.KeyReused)
				require.EqualValues(t, 1, h.Runs.Load())
			}
		}
	}
}

// What this version has recorded of such a request is compared by every process of this version, whichever
// function it has.
func TestCodedRequestIsComparedByEachFunction(t *testing.T) {
	t.Parallel()
	body := "--b\r\n\r\n1\r\n--b--\r\n"
	calls := map[string]guardtest.Call{
		"form": {Key: "form", Body: body, Header: http.Header{"Content-Type": {"multipart/form-data; boundary=b"}, "Content-Encoding": {"gzip"}}},
		"JSON": {Key: "json", Body: `{"amount":1}`, Header: http.Header{"Content-Type": {"application/json; charset=utf-16"}}},
	}
	own := func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(1, []byte(r.URL.Path), body), nil
	}
	functions := []idempotency.FingerprintFunc{
		idempotency.RawFingerprint, idempotency.JSONFingerprint, idempotency.FieldsFingerprint("amount"), own,
	}
	for i, before := range functions[:3] {
		for j, after := range functions {
			store, h := idempotency.NewMemoryStore(), &guardtest.Counter{}
			first := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithFingerprint(before)).Handler(h))
			then := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithFingerprint(after)).Handler(h))
			for name, c := range calls {
				require.Equal(t, http.StatusCreated, first.Do(t, c).Status)
				require.True(t, then.Do(t, c).Replayed(), "%s, %d and %d", name, i, j)
				c.Body = strings.Replace(c.Body, "1", "2", 1)
				guardtest.RequireProblem(t, then.Do(t, c), http.StatusConflict, problem.KeyReused)
			}
			require.EqualValues(t, 2, h.Runs.Load())
		}
	}
}
