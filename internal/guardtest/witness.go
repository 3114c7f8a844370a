package guardtest

import (
	"errors"
	"net/http"
)

// ErrCut is what a client sees of a run that panicked, exited or died with its process.
var ErrCut = errors.New("the connection was cut")

// Boom is what handlers panic with. Any other panic is a bug, and is not caught.
const Boom = "boom"

// A Witness is the client's end of a connection. It reports the moment at which the client
// sees the first byte of an answer. All that the guard promises to do first must have
// happened by then.
type Witness struct {
	http.ResponseWriter
	// Shown is called at that moment.
	Shown func(header http.Header, status int)
	saw   bool
}

// WriteHeader shows the client a status.
func (w *Witness) WriteHeader(status int) {
	w.see(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write shows the client a part of the body.
func (w *Witness) Write(p []byte) (int, error) {
	w.see(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

func (w *Witness) see(status int) {
	if !w.saw && status >= http.StatusOK {
		w.saw = true
		w.Shown(w.Header(), status)
	}
}

// Unwrap serves http.ResponseController.
func (w *Witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }
