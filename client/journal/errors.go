package journal

import "errors"

// Errors of a [Journal].
var (
	// ErrLocked says that somebody else has the journal open.
	ErrLocked = errors.New("journal: in use by another process or journal")

	// ErrCorrupt says that the file is damaged elsewhere than in the line that was being
	// written last, or is not a journal. It is left as it is: a missing line might be a key that
	// was sent. The text of the error names the line.
	ErrCorrupt = errors.New("journal: corrupt")

	// ErrVersion says that another version of this package has written the file, in a form that
	// this one does not know. The file is whole and is left as it is: open it with that version.
	ErrVersion = errors.New("journal: written by another version")

	// ErrBroken says that the journal is closed, or that an earlier write has failed in such
	// a way that nobody knows what the file contains. Open it anew.
	ErrBroken = errors.New("journal: closed or broken")

	// ErrMoved says that the file was moved, removed or replaced while it was open, or that
	// it has a second name (a hard link). A line that is written to it might not be found again.
	ErrMoved = errors.New("journal: the file is not the only one of its name")

	// ErrDone says that an entry is finished, and has no request any more.
	ErrDone = errors.New("journal: the intent is finished")

	// ErrUnserved says that the server has not executed the request and may do so later: the last answer
	// was one that client.Unserved is true for, as 429 or 503, or a redirect after ten others. The intent
	// stays pending. The text of the error has the status.
	ErrUnserved = errors.New("journal: not served yet, and still to be sent")

	// ErrNoKey says that an http.Client does not send the keys of entries: its transport is not a
	// client.Transport. Nothing was sent.
	ErrNoKey = errors.New("journal: the http.Client has no client.Transport, and would send no key")
)
