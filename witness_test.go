package idempotency_test

import (
	"context"
	"errors"
	"net/http"
)

// errCut is what a client sees of a run that panicked, exited or died with its process.
var errCut = errors.New("the connection was cut")

// boom is what handlers panic with. Any other panic is a bug, and is not caught.
const boom = "boom"

// tryAlone is try on a goroutine of its own, which the handler may end.
func (s *server) tryAlone(ctx context.Context, c call) (got reply, err error) {
	err = errCut
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if v := recover(); v != nil && v != boom {
				panic(v)
			}
		}()
		got, err = s.try(ctx, c)
	}()
	<-ended
	return got, err
}

// A witness is a client's end of the connection. It reports the moment at which the
// client sees the first byte of an answer, which is later than any promise about what
// has happened before.
type witness struct {
	http.ResponseWriter
	shown func(header http.Header, status int)
	saw   bool
}

func (w *witness) WriteHeader(status int) {
	w.see(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *witness) Write(p []byte) (int, error) {
	w.see(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

func (w *witness) see(status int) {
	if !w.saw && status >= http.StatusOK {
		w.saw = true
		w.shown(w.Header(), status)
	}
}

// Unwrap serves http.ResponseController.
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }
