package response

import (
	"io"
	"net/http"
)

// The types of the writers of a Tap. Each offers what it embeds, and nothing else.

// The abilities of a writer, as bits.
const (
	flushes = 1 << iota
	hijacks
	pushes
	readsFrom
	notifies
	controlled
)

// The writers of net/http: of HTTP/1.1, and of HTTP/2.
const (
	http1 = flushes | hijacks | readsFrom | notifies | controlled
	http2 = flushes | pushes | notifies | controlled
)

func has[T any](w http.ResponseWriter, ability int) int {
	if _, ok := w.(T); ok {
		return ability
	}
	return 0
}

func abilitiesOf(w http.ResponseWriter) int {
	return has[http.Flusher](w, flushes) | has[http.Hijacker](w, hijacks) | has[http.Pusher](w, pushes) |
		has[io.ReaderFrom](w, readsFrom) | has[oldCloseNotifier](w, notifies) | has[controller](w, controlled)
}

// Writer returns the writer that a handler gets. It has the optional methods of the writer behind
// the Tap. Those for deadlines and the full duplex are behind Unwrap, unless it is a server's.
func (t *Tap) Writer() http.ResponseWriter { return t.writer(abilitiesOf(t.ResponseWriter)) }

func (t *Tap) writer(abilities int) http.ResponseWriter {
	f, h, p, r, n, c := flusher{t}, hijacker{t}, pusher{t}, readerFrom{t}, closeNotifier{t}, controls{t}
	switch abilities {
	case http1:
		return struct {
			*Tap
			flusher
			hijacker
			readerFrom
			closeNotifier
			controls
		}{t, f, h, r, n, c}
	case http2:
		return struct {
			*Tap
			flusher
			pusher
			closeNotifier
			controls
		}{t, f, p, n, c}
	}
	switch abilities &^ controlled {
	case flushes:
		return struct {
			*Tap
			flusher
		}{t, f}
	case hijacks:
		return struct {
			*Tap
			hijacker
		}{t, h}
	case flushes | hijacks:
		return struct {
			*Tap
			flusher
			hijacker
		}{t, f, h}
	case pushes:
		return struct {
			*Tap
			pusher
		}{t, p}
	case flushes | pushes:
		return struct {
			*Tap
			flusher
			pusher
		}{t, f, p}
	case hijacks | pushes:
		return struct {
			*Tap
			hijacker
			pusher
		}{t, h, p}
	case flushes | hijacks | pushes:
		return struct {
			*Tap
			flusher
			hijacker
			pusher
		}{t, f, h, p}
	case readsFrom:
		return struct {
			*Tap
			readerFrom
		}{t, r}
	case flushes | readsFrom:
		return struct {
			*Tap
			flusher
			readerFrom
		}{t, f, r}
	case hijacks | readsFrom:
		return struct {
			*Tap
			hijacker
			readerFrom
		}{t, h, r}
	case flushes | hijacks | readsFrom:
		return struct {
			*Tap
			flusher
			hijacker
			readerFrom
		}{t, f, h, r}
	case pushes | readsFrom:
		return struct {
			*Tap
			pusher
			readerFrom
		}{t, p, r}
	case flushes | pushes | readsFrom:
		return struct {
			*Tap
			flusher
			pusher
			readerFrom
		}{t, f, p, r}
	case hijacks | pushes | readsFrom:
		return struct {
			*Tap
			hijacker
			pusher
			readerFrom
		}{t, h, p, r}
	case flushes | hijacks | pushes | readsFrom:
		return struct {
			*Tap
			flusher
			hijacker
			pusher
			readerFrom
		}{t, f, h, p, r}
	case notifies:
		return struct {
			*Tap
			closeNotifier
		}{t, n}
	case flushes | notifies:
		return struct {
			*Tap
			flusher
			closeNotifier
		}{t, f, n}
	case hijacks | notifies:
		return struct {
			*Tap
			hijacker
			closeNotifier
		}{t, h, n}
	case flushes | hijacks | notifies:
		return struct {
			*Tap
			flusher
			hijacker
			closeNotifier
		}{t, f, h, n}
	case pushes | notifies:
		return struct {
			*Tap
			pusher
			closeNotifier
		}{t, p, n}
	case flushes | pushes | notifies:
		return struct {
			*Tap
			flusher
			pusher
			closeNotifier
		}{t, f, p, n}
	case hijacks | pushes | notifies:
		return struct {
			*Tap
			hijacker
			pusher
			closeNotifier
		}{t, h, p, n}
	case flushes | hijacks | pushes | notifies:
		return struct {
			*Tap
			flusher
			hijacker
			pusher
			closeNotifier
		}{t, f, h, p, n}
	case readsFrom | notifies:
		return struct {
			*Tap
			readerFrom
			closeNotifier
		}{t, r, n}
	case flushes | readsFrom | notifies:
		return struct {
			*Tap
			flusher
			readerFrom
			closeNotifier
		}{t, f, r, n}
	case hijacks | readsFrom | notifies:
		return struct {
			*Tap
			hijacker
			readerFrom
			closeNotifier
		}{t, h, r, n}
	case flushes | hijacks | readsFrom | notifies:
		return struct {
			*Tap
			flusher
			hijacker
			readerFrom
			closeNotifier
		}{t, f, h, r, n}
	case pushes | readsFrom | notifies:
		return struct {
			*Tap
			pusher
			readerFrom
			closeNotifier
		}{t, p, r, n}
	case flushes | pushes | readsFrom | notifies:
		return struct {
			*Tap
			flusher
			pusher
			readerFrom
			closeNotifier
		}{t, f, p, r, n}
	case hijacks | pushes | readsFrom | notifies:
		return struct {
			*Tap
			hijacker
			pusher
			readerFrom
			closeNotifier
		}{t, h, p, r, n}
	case flushes | hijacks | pushes | readsFrom | notifies:
		return struct {
			*Tap
			flusher
			hijacker
			pusher
			readerFrom
			closeNotifier
		}{t, f, h, p, r, n}
	default:
		return t
	}
}
