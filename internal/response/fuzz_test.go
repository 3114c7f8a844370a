package response_test

import (
	"bytes"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/response"
)

// A modelWriter does with an answer what net/http does, as far as this package may change it.
type modelWriter struct {
	header  http.Header
	status  int
	sent    http.Header // as it was written
	body    []byte
	trailer http.Header
}

func (w *modelWriter) Header() http.Header { return w.header }

func (w *modelWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *modelWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !response.BodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

// end collects the trailer when the handler has returned.
func (w *modelWriter) end() {
	w.WriteHeader(http.StatusOK)
	w.trailer = http.Header{}
	for _, line := range w.sent["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			if values := w.header[name]; len(values) > 0 && name != "Trailer" {
				w.trailer[name] = slices.Clone(values)
			}
		}
	}
	for name, values := range w.header { // which wins, as over HTTP/2
		if plain, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			w.trailer[plain] = slices.Clone(values)
		}
	}
}

type flushingModel struct{ *modelWriter }

func (w flushingModel) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return nil
}

// outerWriter returns a writer of one of several kinds, in front of a model, with the fields of outer
// handlers and, if it is not the bare one, those of the caller.
func outerWriter(kind byte, isBare bool) (http.ResponseWriter, *modelWriter) {
	m := &modelWriter{header: http.Header{"Vary": {"Origin"}, "X-Outer": {"1"}}}
	if !isBare {
		m.header["X-Echo"] = []string{"key"}
	}
	var w http.ResponseWriter = m
	if kind&1 != 0 {
		w = flushingModel{m}
	}
	if kind&2 != 0 {
		w = outward{w}
	}
	if kind&4 != 0 {
		w = delegating{outward{w}}
	}
	return w, m
}

var (
	fuzzedNames = []string{
		"X-A", "X-B", "x-lower", "Vary", "X-Outer", "X-Echo", "x-echo", "X-Expiry", "Idempotent-Replayed", "Set-Cookie",
		"Connection", "Trailer", http.TrailerPrefix + "X-A", http.TrailerPrefix + "X-Echo", http.TrailerPrefix + "Set-Cookie", "X-Dropped",
	}
	fuzzedValues   = []string{"1", "2", "X-A", "X-B, X-Echo", "x-lower,X-Dropped", "Set-Cookie, X-A,X-A"}
	fuzzedStatuses = []int{http.StatusOK, http.StatusCreated, http.StatusNoContent, http.StatusBadRequest, http.StatusInternalServerError}
)

const fuzzedLimit = 64

// handle is a handler that does what a text of operations says.
func handle(w http.ResponseWriter, operations []byte) {
	for len(operations) >= 2 {
		op, arg := operations[0], int(operations[1])
		operations = operations[2:]
		name := fuzzedNames[arg%len(fuzzedNames)]
		value := fuzzedValues[arg/len(fuzzedNames)%len(fuzzedValues)]
		switch op % 8 {
		case 0:
			w.Header()[name] = []string{value}
		case 1:
			w.Header()[name] = append(w.Header()[name], value)
		case 2:
			delete(w.Header(), name)
		case 3:
			w.Header()[name] = nil
		case 4:
			w.WriteHeader(fuzzedStatuses[arg%len(fuzzedStatuses)])
		case 5, 6:
			_, _ = w.Write(bytes.Repeat([]byte("x"), arg%50))
		case 7:
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// FuzzRecorder checks that a client gets the same answer from a handler with a Recorder as from the bare
// one, whatever its writer can do, but for the fields of the caller; and that the replay is that answer
// without what must not be repeated.
func FuzzRecorder(f *testing.F) {
	f.Add(byte(0), []byte{7, 0, 4, 4})                            // a flush in vain, and a server error
	f.Add(byte(4), []byte{5, 9, 7, 0, 5, 49, 5, 49})              // the same, and a body over the limit
	f.Add(byte(1), []byte{0, 5, 1, 7, 7, 0, 5, 1})                // fields of the caller in a stream
	f.Add(byte(3), []byte{0, 11 + 16*3, 4, 0, 0, 1, 0, 5, 0, 13}) // and in a trailer
	f.Add(byte(2), []byte{0, 10 + 16*4, 1, 3, 2, 4, 0, 2, 0, 9})  // connection, outer fields
	f.Add(byte(0), []byte{5, 32, 5, 32, 0, 0})                    // a body of just the limit
	f.Fuzz(func(t *testing.T, kind byte, operations []byte) {
		if len(operations) > 200 {
			return
		}
		w, unguarded := outerWriter(kind, true)
		handle(w, operations)
		unguarded.end()

		w, first := outerWriter(kind, false)
		rec := started(w, response.Settings{Echo: "X-Echo", Expiry: "X-Expiry", Limit: fuzzedLimit, Drop: answer.NamesOf("X-Dropped")}, nil)
		defer rec.DropBuffer()
		handle(rec, operations)
		rec.Close(true)
		a := rec.Answer()
		rec.Respond()
		first.end()
		if first.status != unguarded.status || !bytes.Equal(first.body, unguarded.body) {
			t.Fatalf("%d with %d bytes, and bare %d with %d", first.status, len(first.body), unguarded.status, len(unguarded.body))
		}
		checkFields(t, "header", first.sent, unguarded.sent, http.Header{"X-Echo": {"key"}})
		checkFields(t, "trailer", first.trailer, unguarded.trailer, nil)

		if kept := a.Kind == answer.KindKept; kept != (len(unguarded.body) <= fuzzedLimit) {
			t.Fatalf("a body of %d bytes is kept: %v", len(unguarded.body), kept)
		} else if !kept {
			return
		}
		w, again := outerWriter(kind, false)
		response.Send(w, &a, nil)
		again.end()
		if again.status != first.status || !bytes.Equal(again.body, first.body) {
			t.Fatalf("%d with %d bytes, and replayed %d with %d", first.status, len(first.body), again.status, len(again.body))
		}
		if !slices.Equal(again.sent["X-Echo"], []string{"key"}) || !slices.Equal(again.sent["Idempotent-Replayed"], []string{"true"}) {
			t.Fatalf("a replay has the header %v", again.sent)
		}
		for name, values := range again.trailer {
			if !slices.Equal(values, first.trailer[name]) || isFuzzedSecret(name) {
				t.Fatalf("%s is %q in the trailer of a replay, and first %q", name, values, first.trailer[name])
			}
		}
		for name, values := range again.sent {
			own := name == "Idempotent-Replayed" || name == "Trailer" || name == "Content-Type"
			outer := slices.Equal(values, map[string][]string{"Vary": {"Origin"}, "X-Outer": {"1"}}[name])
			if !own && !outer && (!slices.Equal(values, first.sent[name]) || len(values) > 0 && isFuzzedSecret(name)) {
				t.Fatalf("%s is %q in the header of a replay, and first %q", name, values, first.sent[name])
			}
		}
	})
}

func isFuzzedSecret(name string) bool {
	return name == "Set-Cookie" || name == "X-Dropped" || name == "Connection"
}

// checkFields checks that two headers are the same but for the fields of the caller, which has set own.
func checkFields(t *testing.T, what string, got, unguarded, own http.Header) {
	t.Helper()
	got, want := maps.Clone(got), maps.Clone(unguarded)
	maps.DeleteFunc(want, func(name string, _ []string) bool {
		return slices.ContainsFunc([]string{"X-Echo", "X-Expiry", "Idempotent-Replayed"}, func(own string) bool { return strings.EqualFold(name, own) })
	})
	maps.Copy(want, own)
	for _, h := range []http.Header{got, want} {
		maps.DeleteFunc(h, func(name string, values []string) bool {
			return len(values) == 0 || name == "Trailer" || name == "Content-Type" || strings.HasPrefix(name, http.TrailerPrefix)
		})
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("the %s is %v, and bare %v", what, got, want)
	}
}
