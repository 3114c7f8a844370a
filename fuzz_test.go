package idempotency_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/response"
)

// FuzzRequest sends what net/http can read as a request to a guard, twice: the handler
// runs at most once, reads what the client sent, and runs for nobody whose key is not
// recorded; and the second answer is that of the first.
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
		guard, err := idempotency.New(store, guardtest.TenantScope, idempotency.WithRequired(true), idempotency.WithMaxRequestBody(1000))
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

// FuzzSealed: a guard with a sealer takes nothing that the sealer has not made for this
// record, be it an answer or a step, and one without takes nothing that is sealed.
func FuzzSealed(f *testing.F) {
	key := make([]byte, 32) // of this process: what another one has sealed is not to be opened
	_, _ = rand.Read(key)
	sealer, err := idempotency.NewSealer(key)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := idempotency.Seal(sealer, "body", answerKey, answerFingerprint)
	if err != nil {
		f.Fatal(err)
	}
	answer := response.Answer{Kind: response.KindKept, Status: http.StatusOK, Body: []byte("body")}
	plain := answer.Encode(answerKey, answerFingerprint)
	otherKey, err := idempotency.Seal(sealer, "body", "other", answerFingerprint)
	if err != nil {
		f.Fatal(err)
	}
	for _, stored := range [][]byte{sealed, plain, otherKey, sealed[1:], append([]byte{0x81}, plain...), nil} {
		f.Add(stored)
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		err := idempotency.Unseal(sealer, stored, answerKey, answerFingerprint)
		if bytes.Equal(stored, sealed) {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if !errors.Is(err, idempotency.ErrCorrupt) && !errors.Is(err, response.ErrVersion) {
			t.Errorf("an answer that was not sealed: %v", err)
		}
		if value, err := idempotency.UnsealStep(sealer, stored, answerKey, answerFingerprint, "step"); !errors.Is(err, idempotency.ErrCorrupt) || value != nil {
			t.Errorf("a step that was not sealed: %q, %v", value, err)
		}
		if len(stored) > 0 && stored[0]&0x80 != 0 {
			if err := idempotency.Unseal(nil, stored, answerKey, answerFingerprint); !errors.Is(err, response.ErrVersion) {
				t.Errorf("a sealed answer, read without a sealer: %v", err)
			}
		}
	})
}
