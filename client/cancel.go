package client

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// This file knows how a caller ends its request: by the context, or by the channel
// Request.Cancel, which net/http still obeys, and so does the client.

// errCanceled is what the closed channel says.
var errCanceled = errors.New("request canceled")

// ended returns why a request has been ended by its caller; nil if it has not.
func ended(r *http.Request) error {
	if err := context.Cause(r.Context()); err != nil {
		return err
	}
	select {
	case <-r.Cancel: //nolint:staticcheck // see above
		return errCanceled
	default:
		return nil
	}
}

// sleep waits, and reports whether the request has lasted that long.
func sleep(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
	case <-r.Cancel: //nolint:staticcheck // see above
	case <-timer.C:
	}
	return ended(r) == nil
}
