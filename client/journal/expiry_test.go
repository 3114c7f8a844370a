//go:build unix || windows

package journal_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/client/journal"
	"example.com/idempotency/client/profile"
)

// What the server has said about the life of a key is known to the next process, which does not
// send the key after that.
func TestJournalKnowsWhenAKeyExpires(t *testing.T) {
	t.Parallel()
	notKept := errors.New("disk full")
	for name, status := range map[string]int{"no answer": http.StatusBadGateway, "an answer that is not kept": http.StatusCreated} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := inDir(t)
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				base := roundTripper(func(r *http.Request) (*http.Response, error) {
					requests++
					return &http.Response{
						StatusCode: status, Header: http.Header{"Idempotency-Ttl": {"600"}}, Body: http.NoBody, Request: r,
					}, nil
				})
				transport, err := client.New(base, client.WithServer(profile.Guard(), "*"), client.WithAttempts(1))
				require.NoError(t, err)
				c := &http.Client{Transport: transport}
				keep := func(context.Context, journal.Entry, *http.Response) ([]byte, error) { return nil, notKept }

				j := open(t, path)
				start := time.Now()
				e, err := j.Do(t.Context(), c, "a", requestOf("a"), keep)
				require.Error(t, err)
				require.True(t, e.Expires.Equal(start.Add(10*time.Minute)), e.Expires)

				j = reopen(t, j, path)
				entries, err := j.Pending(t.Context())
				require.NoError(t, err)
				require.Len(t, entries, 1)
				require.True(t, entries[0].Expires.Equal(e.Expires))
				require.Equal(t, requestOf("a"), entries[0].Request, "the rest is as it was")

				time.Sleep(9 * time.Minute) // the server says the same again, for another ten minutes
				require.Error(t, j.Resume(t.Context(), c, keep))
				require.Equal(t, 2, requests)
				time.Sleep(10 * time.Minute)
				j = reopen(t, j, path)
				require.ErrorIs(t, j.Resume(t.Context(), c, keep), client.ErrKeyExpired)
				require.Equal(t, 2, requests, "to the server it would be a new key")

				require.NoError(t, j.Done(t.Context(), "a", []byte("looked up")))
				require.Equal(t, "looked up", string(begin(t, j, "a").Result))
			})
		})
	}
}

// A file that is written anew, because it was full, has it too.
func TestExpiryOutlivesTheFile(t *testing.T) {
	t.Parallel()
	path := inDir(t)
	j := open(t, path)
	transport, err := client.New(roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"Idempotency-Ttl": {"600"}}, Body: http.NoBody, Request: r}, nil
	}), client.WithAttempts(1))
	require.NoError(t, err)
	e, err := j.Do(t.Context(), &http.Client{Transport: transport}, "a", requestOf("a"), nil)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.False(t, e.Expires.IsZero())
	large := requestOf("large")
	large.Body = make([]byte, 1<<20)
	_, err = j.Begin(t.Context(), "large", large)
	require.NoError(t, err)
	j = reopen(t, j, path)
	require.True(t, begin(t, j, "a").Expires.Equal(e.Expires))
}
