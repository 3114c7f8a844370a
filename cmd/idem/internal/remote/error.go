package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"unicode"
	"unicode/utf8"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is about errors: those of a console mean what those of a store mean.

// An Error is why a service has not done what was asked.
type Error struct {
	// Code is the exit code.
	Code int
	says string
	err  error
}

// Error says why.
func (e *Error) Error() string { return e.says }

// Unwrap returns the error of a store that it stands for, if there is one.
func (e *Error) Unwrap() error { return e.err }

// ExitCode returns the exit code.
func (e *Error) ExitCode() int { return e.Code }

// refusal returns the error that a console has told.
func refusal(got *answer, to *call) error {
	var f inspect.Failure
	if err := json.Unmarshal(got.body, &f); err != nil || f.Type != "error" || f.Error == "" {
		return to.unsure(got.status, fmt.Sprintf("the console answers %s with status %d and no error: it may be of another version than this idem", to.path, got.status))
	}
	says := lower(inspect.Visible(f.Error))
	to.actor = f.Actor
	var seen store.Seen
	switch {
	case got.status == http.StatusUnauthorized:
		return &Error{Code: inspect.ExitError, says: says + " " + signIn}
	case f.Code == inspect.ExitNotFound && !to.names:
		return &Error{Code: inspect.ExitError, says: fmt.Sprintf("the console has no %s: it is of an earlier version than this idem", to.path)}
	case f.Code == inspect.ExitNotFound && f.Forgotten != nil:
		return inspect.GoneFrom(*f.Forgotten, says)
	case f.Code == inspect.ExitNotFound:
		return &Error{Code: f.Code, says: says, err: store.ErrNotFound}
	case f.Code == inspect.ExitChanged && seen.UnmarshalText([]byte(to.seen)) == nil:
		return inspect.ChangedFrom(seen, f.Now)
	}
	if f.Code <= inspect.ExitOK || f.Code > inspect.ExitUnreachable { // a shell would take 256 for success
		f.Code = inspect.ExitError
	}
	return &Error{Code: f.Code, says: says}
}

// lower returns a sentence of a console as an error is written.
func lower(says string) string {
	r, n := utf8.DecodeRuneInString(says)
	second, _ := utf8.DecodeRuneInString(says[n:])
	if unicode.IsUpper(second) {
		return says
	}
	return string(unicode.ToLower(r)) + says[n:]
}
