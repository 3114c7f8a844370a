package client_test

import (
	"io"
	"net/http"
	"testing"
)

// BenchmarkRoundTrip compares a request over a loopback connection with and without a
// transport, and the transport by itself.
func BenchmarkRoundTrip(b *testing.B) {
	s := serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	}))
	instant := instantBase{}
	for name, c := range map[string]struct {
		transport http.RoundTripper
		url       string
	}{
		"loopback/plain":     {newBase(b), s.URL},
		"loopback/transport": {newTransport(b, newBase(b)), s.URL},
		"instant/plain":      {instant, place},
		"instant/transport":  {newTransport(b, instant), place},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := send(c.transport, post(b.Context(), c.url, `{"amount":100}`)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An instantBase answers without a network.
type instantBase struct{}

func (instantBase) RoundTrip(r *http.Request) (*http.Response, error) {
	return answer{status: http.StatusCreated}.response(r), nil
}
