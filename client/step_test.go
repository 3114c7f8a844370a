package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
)

// A job is a run with steps, which may be attempted several times.
type job struct {
	guard *idempotency.Guard
	base  *script
	http  *client.Transport
}

func newJob(t *testing.T, answers ...answer) *job {
	t.Helper()
	if answers == nil {
		answers = []answer{{status: 201}}
	}
	j := &job{guard: newGuard(t, idempotency.NewMemoryStore()), base: answering(answers...)}
	j.http = newTransport(t, j.base, quick)
	return j
}

var errAgain = errors.New("again")

// attempt runs a step and then fails, so that the run is attempted again.
func (j *job) attempt(t *testing.T, name string, step func(ctx context.Context) error) []string {
	t.Helper()
	before := len(j.base.requests())
	_, _, err := idempotency.Do(t.Context(), j.guard, idempotency.Key{Scope: "s", Value: "job"}, func(ctx context.Context) (string, error) {
		_, err := idempotency.Step(ctx, name, func(ctx context.Context) (int, error) {
			return 0, errors.Join(step(ctx), errAgain)
		})
		return "", err
	})
	require.ErrorIs(t, err, errAgain)
	var keys []string
	for _, r := range j.base.requests()[before:] {
		require.Len(t, r.key, 1)
		keys = append(keys, r.key[0])
	}
	return keys
}

func (j *job) post(ctx context.Context) error {
	_, err := send(j.http, post(ctx, place, "{}"))
	return err
}

func TestCallsOfAStepHaveTheSameKeysInEachAttempt(t *testing.T) {
	j := newJob(t)
	var derived []string
	three := func(ctx context.Context) error {
		derived = []string{
			idempotency.DeriveKey(ctx, "charge#1"), idempotency.DeriveKey(ctx, "charge#2"), idempotency.DeriveKey(ctx, "charge#3"),
		}
		_, err := send(j.http, request(ctx, http.MethodGet, place, http.NoBody)) // has no key and is not counted
		require.NoError(t, err)
		j.base.mu.Lock()
		j.base.got = j.base.got[:len(j.base.got)-1]
		j.base.mu.Unlock()
		return errors.Join(j.post(ctx), j.post(ctx), j.post(ctx))
	}
	first := j.attempt(t, "charge", three)
	require.Equal(t, derived, first, "a resolver can make them too")
	require.Equal(t, first, j.attempt(t, "charge", three))
	other := j.attempt(t, "refund", three)

	seen := make(map[string]bool)
	for _, key := range append(first, other...) {
		require.Len(t, key, 32)
		require.False(t, seen[key], "two calls with the key %s", key)
		seen[key] = true
	}
}

// A request of an earlier attempt of the run may have been executed, unless it is known
// that there was none or that it did nothing.
func TestCallOfALaterAttemptIsUnknownFromTheStart(t *testing.T) {
	ways := map[string]func(*http.Request) *http.Request{
		"of the step": func(r *http.Request) *http.Request { return r },
		"by WithKey": func(r *http.Request) *http.Request {
			return r.WithContext(client.WithKey(r.Context(), idempotency.DeriveKey(r.Context(), "charge")))
		},
		"in the field": func(r *http.Request) *http.Request {
			r.Header.Set(keyField, idempotency.DeriveKey(r.Context(), "charge"))
			return r
		},
	}
	rerun, hold := idempotency.WithRecovery(idempotency.Rerun), idempotency.WithRecovery(idempotency.Hold)
	for name, c := range map[string]struct {
		first, second idempotency.Option
		ends          func(error) error // the step of the first attempt, or nil if it begins none
		said          bool              // the program says that nothing was done
		unknown       bool
	}{
		"the first may have sent it":     {rerun, rerun, nothing, false, true},
		"the first was under Rerun":      {rerun, hold, nothing, false, true},
		"the program says otherwise":     {hold, hold, nothing, true, true},
		"the first has done nothing":     {rerun, rerun, idempotency.NotDone, true, false},
		"it has done nothing under Hold": {hold, hold, idempotency.NotDone, true, false},
		"the first has begun no step":    {hold, hold, nil, true, false},
	} {
		for way, say := range ways {
			store := idempotency.NewMemoryStore()
			transport := newTransport(t, answering(answer{status: 401}))
			for attempt, g := range []*idempotency.Guard{newGuard(t, store, c.first), newGuard(t, store, c.second)} {
				_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: "s", Value: "job"}, func(ctx context.Context) (int, error) {
					op, _ := idempotency.FromContext(ctx)
					require.Equal(t, attempt+1, op.Attempt())
					if c.said {
						op.SetOutcome(idempotency.NotExecuted)
					}
					if attempt == 0 && c.ends == nil {
						return 0, errAgain
					}
					return idempotency.Step(ctx, "charge", func(ctx context.Context) (int, error) {
						_, err := send(transport, say(post(ctx, place, "{}")))
						err = errors.Join(err, errAgain)
						if attempt == 0 {
							err = c.ends(err)
						}
						return 0, err
					})
				})
				require.ErrorIs(t, err, errAgain, name)
				require.Equal(t, attempt == 1 && c.unknown, errors.Is(err, client.ErrOutcomeUnknown), "%s, a key %s, attempt %d: %v", name, way, attempt+1, err)
			}
		}
	}
}

func nothing(err error) error { return err }

func TestRetriesOfACallAreOneCall(t *testing.T) {
	j := newJob(t, answer{err: errReset}, answer{status: 503}, answer{status: 201})
	two := func(ctx context.Context) error { return errors.Join(j.post(ctx), j.post(ctx)) }
	keys := j.attempt(t, "charge", two)
	require.Len(t, keys, 4)
	require.Equal(t, keys[0], keys[1])
	require.Equal(t, keys[0], keys[2])
	require.NotEqual(t, keys[0], keys[3])
	again := j.attempt(t, "charge", two)
	require.Equal(t, []string{keys[0], keys[3]}, again)
}

func TestChosenKeysAreNotThoseOfTheStep(t *testing.T) {
	j := newJob(t)
	keys := j.attempt(t, "charge", func(ctx context.Context) error {
		return errors.Join(j.post(client.WithKey(ctx, "mine")), j.post(ctx))
	})
	only := j.attempt(t, "charge", j.post)
	require.Equal(t, []string{"mine", only[0]}, keys)
}

// Which of two calls at once is the first differs from attempt to attempt.
func TestCallsAtOnceInOneStepAreRefused(t *testing.T) {
	j := newJob(t)
	j.base.answers = []answer{{do: func(r *http.Request) (*http.Response, error) {
		require.ErrorIs(t, j.post(r.Context()), idempotency.ErrStepMisuse)
		require.NoError(t, j.post(client.WithKey(r.Context(), "mine")))
		return answer{status: 201}.response(r), nil
	}}, {status: 201}}
	keys := j.attempt(t, "charge", j.post)
	require.Len(t, keys, 2)
	require.Len(t, j.attempt(t, "charge", func(ctx context.Context) error { return errors.Join(j.post(ctx), j.post(ctx)) }), 2)
}

// An operation inside a step is not part of it: if it is replayed in the next attempt,
// its calls are missing there, and must not be missing in the numbers of the others.
func TestOperationInsideAStepHasItsOwnCalls(t *testing.T) {
	j := newJob(t)
	step := func(ctx context.Context) error {
		_, _, err := idempotency.Do(ctx, j.guard, idempotency.Key{Scope: "s", Value: "inner"}, func(ctx context.Context) (int, error) {
			return 0, j.post(ctx)
		})
		return errors.Join(err, j.post(ctx))
	}
	first, second := j.attempt(t, "charge", step), j.attempt(t, "charge", step)
	require.Len(t, first, 2)
	require.Len(t, second, 1, "the inner operation is replayed")
	require.Equal(t, first[1], second[0])
}
