package wiretest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// FuzzRequest sends each request that net/http can read to a guard, twice. The handler runs
// at most once, reads exactly what the client sent, and runs only under a recorded key. The
// second answer equals the first.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(message("POST /charges", wirePlain, "")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read := func() *http.Request {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
			if err != nil {
				return nil
			}
			return r
		}
		first, second, bare := read(), read(), read()
		if first == nil || first.Method != http.MethodPost {
			return
		}
		store, runs := idempotency.NewMemoryStore(idempotency.WithMaxEntries(2)), 0
		guard, err := idempotency.New(store, guardtest.TenantScope, idempotency.WithRequired(true), idempotency.WithLimits(idempotency.Limits{RequestBody: 1000}))
		if err != nil {
			t.Fatal(err)
		}
		h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			body, err := io.ReadAll(r.Body)
			want, bareErr := io.ReadAll(bare.Body)
			if err != nil || bareErr != nil || !bytes.Equal(body, want) || r.ContentLength != int64(len(want)) {
				t.Errorf("read %q, %v of %q, %v", body, err, want, bareErr)
			}
			_, _ = w.Write(body)
		}))
		answers := make([]*httptest.ResponseRecorder, 2)
		for i, r := range []*http.Request{first, second} {
			answers[i] = httptest.NewRecorder()
			h.ServeHTTP(answers[i], r)
		}
		if runs != store.Len() || runs > 1 {
			t.Errorf("%d runs, %d records", runs, store.Len())
		}
		a, b := answers[0], answers[1]
		if a.Code != b.Code || !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) || a.Code >= 500 {
			t.Errorf("%d %s, and then %d %s", a.Code, a.Body, b.Code, b.Body)
		}
		if replayed := b.Header().Get("Idempotent-Replayed") != ""; replayed != (runs == 1) {
			t.Errorf("%d runs, replayed: %v", runs, replayed)
		}
		if runs == 0 && (a.Code < 400 || !json.Valid(a.Body.Bytes())) {
			t.Errorf("refused with %d %s", a.Code, a.Body)
		}
	})
}
