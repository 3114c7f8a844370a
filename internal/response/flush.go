package response

import "net/http"

// Whether a flush can reach the client. A Recorder has to know before it sends anything: the
// header cannot be taken back.

// canFlush reports whether [http.ResponseController] finds a writer that flushes, and whether
// the innermost writer does so too. Many wrappers have the method and pass the call on, for which
// there must be somebody.
func canFlush(w http.ResponseWriter) bool {
	found := false
	for {
		if rec, ok := w.(*Recorder); ok {
			return rec.canFlush()
		}
		flushes := false
		switch w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			found, flushes = true, true
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return found && flushes
		}
		w = inner.Unwrap()
	}
}

// canFlush reports whether FlushError would send something now.
func (rec *Recorder) canFlush() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return !rec.closed && !rec.held && (rec.mode != buffering || canFlush(rec.w))
}
