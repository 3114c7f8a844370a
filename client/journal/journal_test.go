//go:build unix || windows

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/client/journal"
	"example.com/idempotency/client/profile"
)

func open(t testing.TB, path string, opts ...journal.Option) *journal.Journal {
	t.Helper()
	j, err := journal.Open(path, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// reopen closes a journal and opens it as the next process does.
func reopen(t testing.TB, j *journal.Journal, path string, opts ...journal.Option) *journal.Journal {
	t.Helper()
	require.NoError(t, j.Close())
	return open(t, path, opts...)
}

func inDir(t testing.TB) string { return filepath.Join(t.TempDir(), "journal") }

func requestOf(name string) journal.Request {
	return journal.Request{Method: http.MethodPost, URL: "http://server.test/" + name, ContentType: "text/plain", Body: []byte("body of " + name)}
}

func begin(t testing.TB, j *journal.Journal, name string) journal.Entry {
	t.Helper()
	e, err := j.Begin(t.Context(), name, requestOf(name))
	require.NoError(t, err)
	return e
}

// outgrow begins an intent for which the file has no room, so that it is written anew.
func outgrow(t testing.TB, j *journal.Journal) {
	t.Helper()
	_, err := j.Begin(t.Context(), "large", journal.Request{Body: make([]byte, 1<<20)})
	require.NoError(t, err)
}

// requireRefused checks that no journal opens a file.
func requireRefused(t testing.TB, path string, want error) {
	t.Helper()
	_, err := journal.Open(path)
	require.ErrorIs(t, err, want)
}

// entries returns what is pending, the oldest first.
func entries(t testing.TB, j *journal.Journal) []journal.Entry {
	t.Helper()
	all, err := j.Pending(t.Context())
	require.NoError(t, err)
	return all
}

// keysOf returns the keys of what is pending, by name.
func keysOf(t testing.TB, j *journal.Journal) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	for _, e := range entries(t, j) {
		keys[e.Name] = e.Key
	}
	return keys
}

// pending is keysOf where all requests are those of requestOf.
func pending(t testing.TB, j *journal.Journal) map[string]string {
	t.Helper()
	for _, e := range entries(t, j) {
		require.True(t, e.Resumed)
		require.False(t, e.Done())
		require.Equal(t, requestOf(e.Name), e.Request)
	}
	return keysOf(t, j)
}

// newClient returns a client of a transport with a base.
func newClient(t testing.TB, base http.RoundTripper, opts ...client.Option) *http.Client {
	t.Helper()
	transport, err := client.New(base, opts...)
	require.NoError(t, err)
	return &http.Client{Transport: transport}
}

func TestJournalKeepsWhatIsPending(t *testing.T) {
	path := inDir(t)
	j := open(t, path)
	a, b := begin(t, j, "a"), begin(t, j, "b")
	require.NotEqual(t, a.Key, b.Key)
	require.False(t, a.Resumed)
	again, err := j.Begin(t.Context(), "a", journal.Request{Method: "PUT", Body: []byte("other bytes")})
	require.NoError(t, err)
	require.True(t, again.Resumed)
	require.Equal(t, a.Key, again.Key)
	require.Equal(t, requestOf("a"), again.Request, "what was sent is sent again")
	require.NoError(t, j.Done(t.Context(), "b", nil))
	require.NoError(t, j.Done(t.Context(), "b", nil))
	require.NoError(t, j.Done(t.Context(), "never begun", nil))
	require.Equal(t, map[string]string{"a": a.Key}, pending(t, j))

	_, err = journal.Open(path)
	require.ErrorIs(t, err, journal.ErrLocked, "also in the same process")
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	_, err = j.Begin(t.Context(), "c", journal.Request{})
	require.ErrorIs(t, err, journal.ErrBroken)
	_, err = j.Begin(t.Context(), "a", journal.Request{})
	require.ErrorIs(t, err, journal.ErrBroken)
	require.ErrorIs(t, j.Done(t.Context(), "a", nil), journal.ErrBroken)
	_, err = j.Pending(t.Context())
	require.ErrorIs(t, err, journal.ErrBroken)

	j = open(t, path)
	c := begin(t, j, "c")
	require.Equal(t, map[string]string{"a": a.Key, "c": c.Key}, pending(t, j))
	left := entries(t, j)
	require.Equal(t, []string{"a", "c"}, []string{left[0].Name, left[1].Name}, "the oldest first")
	require.True(t, a.Since.Equal(left[0].Since))
	left[0].Request.Body[0] = 'X'
	require.Equal(t, a.Key, pending(t, j)["a"], "what is handed out is a copy")
	for _, name := range []string{"", "\xff"} {
		_, err = j.Begin(t.Context(), name, journal.Request{})
		require.ErrorContains(t, err, "cannot be noted")
	}
}

// Running the program again after Done charges nobody twice.
func TestFinishedNameStaysKnown(t *testing.T) {
	path := inDir(t)
	j := open(t, path)
	a := begin(t, j, "a")
	require.NoError(t, j.Done(t.Context(), "a", []byte("charge 1")))
	check := func(j *journal.Journal) {
		t.Helper()
		e := begin(t, j, "a")
		require.True(t, e.Done())
		require.Equal(t, a.Key, e.Key)
		require.Equal(t, "charge 1", string(e.Result))
		require.Empty(t, pending(t, j))
		_, err := e.HTTPRequest(t.Context())
		require.ErrorIs(t, err, journal.ErrDone)
		require.NoError(t, j.Done(t.Context(), "a", []byte("charge 2")))
		require.Equal(t, "charge 1", string(begin(t, j, "a").Result), "the first result counts")
	}
	check(j)
	j = reopen(t, j, path)
	check(j)
	outgrow(t, j)
	require.NoError(t, j.Done(t.Context(), "large", nil))
	check(j)
	check(reopen(t, j, path))
}

func TestFinishedNameIsForgottenAfterItsRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := inDir(t)
		j := open(t, path, journal.WithRetention(time.Hour))
		a := begin(t, j, "a")
		time.Sleep(3 * time.Hour)
		require.Equal(t, a.Key, begin(t, j, "a").Key, "what is pending is never forgotten")
		require.NoError(t, j.Done(t.Context(), "a", nil))
		time.Sleep(time.Hour - time.Second)
		require.Equal(t, a.Key, begin(t, j, "a").Key)
		time.Sleep(time.Second)
		next := begin(t, j, "a")
		require.NotEqual(t, a.Key, next.Key)
		require.False(t, next.Done())
		require.Equal(t, map[string]string{"a": next.Key}, pending(t, reopen(t, j, path)))
	})
	_, err := journal.Open(inDir(t), journal.WithRetention(0))
	require.ErrorContains(t, err, "not positive")
}

func TestJournalIsSafeForConcurrentUse(t *testing.T) {
	path := inDir(t)
	j := open(t, path)
	var wg sync.WaitGroup
	var mu sync.Mutex
	keys := make(map[string]string)
	for i := range 64 {
		wg.Go(func() {
			name := fmt.Sprint("order ", i%8)
			e, err := j.Begin(t.Context(), name, requestOf(name))
			mu.Lock()
			defer mu.Unlock()
			if old, ok := keys[name]; err != nil || ok && old != e.Key {
				t.Errorf("%s has the keys %s and %s: %v", name, old, e.Key, err)
			}
			keys[name] = e.Key
		})
	}
	wg.Wait()
	require.Equal(t, keys, pending(t, j))
	require.Equal(t, keys, pending(t, reopen(t, j, path)))
}

// The body that the caller changes later is not the one that was noted.
func TestJournalKeepsItsOwnBytes(t *testing.T) {
	j := open(t, inDir(t))
	r := requestOf("a")
	_, err := j.Begin(t.Context(), "a", r)
	require.NoError(t, err)
	copy(r.Body, strings.Repeat("X", len(r.Body)))
	pending(t, j)
}

// A client that would send the request without its key sends nothing.
func TestIntentIsNotSentWithoutItsKey(t *testing.T) {
	j := open(t, inDir(t))
	keep := func(context.Context, journal.Entry, *http.Response) ([]byte, error) { return nil, nil }
	r := journal.Request{Method: http.MethodPost, URL: "http://127.0.0.1:1/"} // nobody listens there
	for name, c := range map[string]*http.Client{"default": {}, "plain": {Transport: new(http.Transport)}} {
		_, err := j.Do(t.Context(), c, name, r, keep)
		require.ErrorIs(t, err, journal.ErrNoKey)
		require.ErrorIs(t, j.Resume(t.Context(), c, keep), journal.ErrNoKey)
	}
	require.Len(t, entries(t, j), 2, "the intents stay pending")
}

// An intent that the server has not executed, and may execute later, stays pending.
func TestIntentThatIsNotServedStaysPending(t *testing.T) {
	for status, served := range map[int]bool{
		http.StatusTooManyRequests: false, http.StatusTooEarly: false, http.StatusTemporaryRedirect: false,
		http.StatusPaymentRequired: true, http.StatusSeeOther: true, http.StatusNotImplemented: true,
	} {
		j := open(t, inDir(t))
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Location": {"/"}}, Body: http.NoBody, Request: r}, nil
		})
		c := newClient(t, base, client.WithAttempts(1))
		keep := func(context.Context, journal.Entry, *http.Response) ([]byte, error) { return []byte("kept"), nil }
		e, err := j.Do(t.Context(), c, "a", requestOf("a"), keep)
		require.Equal(t, served, e.Done(), status)
		if served {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, journal.ErrUnserved)
		require.ErrorContains(t, err, strconv.Itoa(status))
		require.Len(t, pending(t, j), 1)

		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // it is the answer then
		e, err = j.Do(t.Context(), c, "b", requestOf("b"), keep)
		require.Equal(t, status == http.StatusTemporaryRedirect, e.Done(), err)
	}
}

// An answer that could not be kept is asked for again, and one intent that fails does not
// hold up the others.
func TestAnswerThatIsNotKeptIsAskedForAgain(t *testing.T) {
	j := open(t, inDir(t))
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 201, Header: make(http.Header), Body: http.NoBody, Request: r}, nil
	})
	c := newClient(t, base)
	full := errors.New("disk full")
	_, err := j.Do(t.Context(), c, "a", requestOf("a"), func(context.Context, journal.Entry, *http.Response) ([]byte, error) { return nil, full })
	require.ErrorIs(t, err, full)
	begin(t, j, "b")
	var kept []string
	keep := func(_ context.Context, e journal.Entry, answer *http.Response) ([]byte, error) {
		kept = append(kept, e.Name)
		require.Equal(t, e.Key, answer.Request.Header.Get("Idempotency-Key"))
		require.Equal(t, "text/plain", answer.Request.Header.Get("Content-Type"))
		if e.Name == "a" {
			return nil, full
		}
		return []byte("kept"), nil
	}
	err = j.Resume(t.Context(), c, keep)
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, "a: ")
	require.Equal(t, []string{"a", "b"}, kept)
	require.Equal(t, "kept", string(begin(t, j, "b").Result))
	require.Len(t, pending(t, j), 1)
}

// The error of an http.Client has the address of a redirect, which a peer has sent.
func TestJournalQuotesAPeerInBrief(t *testing.T) {
	j := open(t, inDir(t))
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: 307, Header: make(http.Header), Body: http.NoBody, Request: r}
		resp.Header.Set("Location", "http://%"+strings.Repeat("x", 4<<20))
		return resp, nil
	})
	_, err := j.Do(t.Context(), newClient(t, base), "a", requestOf("a"), nil)
	require.ErrorContains(t, err, "Location")
	require.Less(t, len(err.Error()), 2<<10+100)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The answer of an intent is that of its own request, and not of the GET to which it leads.
func TestRedirectIsTheAnswer(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method)
		http.Redirect(w, r, "/paid", http.StatusSeeOther)
	}))
	t.Cleanup(server.Close)
	r := requestOf("a")
	r.URL = server.URL
	e, err := open(t, inDir(t)).Do(t.Context(), newClient(t, nil, client.WithServer(profile.Guard(), "*")), "a", r,
		func(_ context.Context, _ journal.Entry, answer *http.Response) ([]byte, error) {
			return []byte(answer.Status + " " + answer.Header.Get("Location")), nil
		})
	require.NoError(t, err)
	require.Equal(t, "303 See Other /paid", string(e.Result))
	require.Equal(t, []string{http.MethodPost}, requests)
}

// What the server has said about the life of a key is known to the next process, which does not
// send the key after that.
func TestJournalKnowsWhenAKeyExpires(t *testing.T) {
	notKept := errors.New("disk full")
	for name, status := range map[string]int{"no answer": http.StatusBadGateway, "an answer that is not kept": http.StatusCreated} {
		t.Run(name, func(t *testing.T) {
			path := inDir(t)
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				base := roundTripper(func(r *http.Request) (*http.Response, error) {
					requests++
					return &http.Response{
						StatusCode: status, Header: http.Header{"Idempotency-Ttl": {"600"}}, Body: http.NoBody, Request: r,
					}, nil
				})
				c := newClient(t, base, client.WithServer(profile.Guard(), "*"), client.WithAttempts(1))
				keep := func(context.Context, journal.Entry, *http.Response) ([]byte, error) { return nil, notKept }

				j := open(t, path)
				start := time.Now()
				e, err := j.Do(t.Context(), c, "a", requestOf("a"), keep)
				require.Error(t, err)
				require.True(t, e.Expires.Equal(start.Add(10*time.Minute)), e.Expires)

				j = reopen(t, j, path)
				left := entries(t, j)
				require.Len(t, left, 1)
				require.True(t, left[0].Expires.Equal(e.Expires))
				require.Equal(t, requestOf("a"), left[0].Request, "the rest is as it was")

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
	path := inDir(t)
	j := open(t, path)
	c := newClient(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"Idempotency-Ttl": {"600"}}, Body: http.NoBody, Request: r}, nil
	}), client.WithAttempts(1))
	e, err := j.Do(t.Context(), c, "a", requestOf("a"), nil)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.False(t, e.Expires.IsZero())
	outgrow(t, j)
	j = reopen(t, j, path)
	require.True(t, begin(t, j, "a").Expires.Equal(e.Expires))
}
