package recordtest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// A tenant goes, and its answers with it. What runs, what nobody knows the outcome of, and what is another's stays.
func TestErase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := new(guardtest.Events)
		g := newFinder(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
		for _, key := range []string{"1", "2", "3"} {
			charged(t, g, "alice", key, key)
		}
		charged(t, g, "bob", "1", "1")
		goes := make(chan struct{})
		goOn := sync.OnceFunc(func() { close(goes) })
		defer goOn()
		ends := func(tenant, key string, h http.HandlerFunc) {
			guardtest.ServeRecorder(t, g.Handler(h)).Do(t, guardtest.Call{Key: key, Header: http.Header{"Tenant": {tenant}}})
		}
		ends("alice", "held", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		ends("alice", "in-doubt", func(w http.ResponseWriter, r *http.Request) { // its failure holds no key, but its step may have happened
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
				return 0, errors.New("the bank does not answer")
			}, idempotency.AtMostOnce())
			guardtest.Op(r.Context()).SetOutcome(idempotency.NotExecuted)
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		})
		ends("alice", "released", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
		go ends("alice", "running", func(http.ResponseWriter, *http.Request) { <-goes })
		synctest.Wait()

		decision := idempotency.Decision{Actor: "ada", Reason: "alice has left"}
		erase := func(what idempotency.Erasing, want idempotency.Erased) {
			t.Helper()
			what.Scope, what.Decision = "alice", decision
			done, err := g.Erase(t.Context(), what)
			require.NoError(t, err)
			require.Equal(t, want, done)
		}
		all := found(t, g, idempotency.Finding{Scope: "alice"})
		erase(idempotency.Erasing{DryRun: true, Held: true}, idempotency.Erased{Completed: 3, Unanswered: 2, Held: 1, InFlight: 1})
		require.ElementsMatch(t, all, found(t, g, idempotency.Finding{Scope: "alice"}))
		require.Zero(t, events.Count(event.Forgotten))

		erase(idempotency.Erasing{}, idempotency.Erased{Completed: 3, Unanswered: 1, HeldLeft: 2, InFlight: 1})
		require.Equal(t, 4, events.Count(event.Forgotten))
		last := events.All()[len(events.All())-1]
		require.Equal(t, []string{"ada", "alice has left"}, []string{last.Actor, last.Reason})
		require.Len(t, found(t, g, idempotency.Finding{Scope: "alice"}), 3)
		require.Len(t, found(t, g, idempotency.Finding{Scope: "bob"}), 1)

		goOn()
		synctest.Wait()
		erase(idempotency.Erasing{Held: true}, idempotency.Erased{Completed: 1, Unanswered: 1, Held: 1})
		require.Empty(t, found(t, g, idempotency.Finding{Scope: "alice"}))
		_, err := g.Erase(t.Context(), idempotency.Erasing{})
		require.ErrorContains(t, err, "give a Scope")
	})
}

// What is not old enough is left, so that no retry of its key runs again; the rest goes.
func TestEraseLeavesWhatIsYounger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newFinder(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold), idempotency.WithTTL(72*time.Hour))
		held := func(key string) {
			broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
			guardtest.ServeRecorder(t, g.Handler(broken)).Do(t, guardtest.Call{Key: key, Header: http.Header{"Tenant": {"alice"}}})
		}
		charged(t, g, "alice", "1", "1")
		held("2")
		time.Sleep(24 * time.Hour)
		charged(t, g, "alice", "3", "3")
		held("4")
		erases := func(what idempotency.Erasing, want idempotency.Erased) {
			t.Helper()
			what.Scope, what.OlderThan = "alice", 24*time.Hour
			for _, what.DryRun = range []bool{true, false} {
				done, err := g.Erase(t.Context(), what)
				require.NoError(t, err)
				require.Equal(t, want, done)
			}
		}
		erases(idempotency.Erasing{}, idempotency.Erased{Completed: 1, HeldLeft: 2, Younger: 1})
		erases(idempotency.Erasing{Held: true}, idempotency.Erased{Held: 1, Younger: 2})
		time.Sleep(24 * time.Hour)
		erases(idempotency.Erasing{Held: true}, idempotency.Erased{Completed: 1, Held: 1})
	})
}

// A record that somebody claims while a tenant is erased is left, and told.
func TestEraseLeavesWhatChanges(t *testing.T) {
	st := &changing{MemoryStore: idempotency.NewMemoryStore()}
	g := newFinder(t, st)
	charged(t, g, "alice", "1", "77")
	done, err := g.Erase(t.Context(), idempotency.Erasing{Scope: "alice"})
	require.NoError(t, err)
	require.Equal(t, idempotency.Erased{Changed: 1}, done)
	require.Len(t, found(t, g, idempotency.Finding{Scope: "alice"}), 1)
}

// A changing store changes a record before it is forgotten.
type changing struct{ *idempotency.MemoryStore }

func (*changing) Forget(context.Context, string, store.Seen) error { return store.ErrChanged }
