package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachEventIsAppliedOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, seed))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, len(endpoints))
	for i, e := range endpoints {
		require.Regexp(t, "^"+e.sender.Name+`: 100 events, [2-9]\d\d deliveries, 100 applied, 100 receipts, balance 5050, plan-100 at version 100$`, lines[i])
	}
}

// A process is a receiver and a worker on a database that outlives it.
type process struct {
	receiver http.Handler
	*worker
}

func start(t *testing.T, db *database) process {
	t.Helper()
	receiver, err := newReceiver(db)
	require.NoError(t, err)
	w, err := newWorker(db)
	require.NoError(t, err)
	return process{receiver, w}
}

// gets makes one delivery and returns its status.
func (p process) gets(t *testing.T, e endpoint, version, try int) int {
	t.Helper()
	r, err := delivery(t.Context(), "", e, version, try)
	require.NoError(t, err)
	return p.answers(r)
}

func (p process) answers(r *http.Request) int {
	w := httptest.NewRecorder()
	p.receiver.ServeHTTP(w, r)
	return w.Code
}

// Redeliveries are accepted, and nothing is done for them. Senders may use the same names.
func TestRedeliveries(t *testing.T) {
	db := newDatabase()
	p := start(t, db)
	for range 3 {
		for _, e := range endpoints {
			for try := range 3 {
				require.Equal(t, http.StatusNoContent, p.gets(t, e, 7, try))
			}
			p.pass(t.Context())
			require.Equal(t, account{applied: 1, balance: 7, plan: "plan-7", version: 7}, db.account(e.sender.Name))
			require.Equal(t, 1, p.receipts(e.sender.Name))
		}
	}
}

// The version decides which plan counts, whatever the order in which events arrive.
func TestEventsOutOfOrder(t *testing.T) {
	db := newDatabase()
	p := start(t, db)
	e := endpoints[0]
	for i, version := range []int{2, 5, 1, 4, 3} {
		require.Equal(t, http.StatusNoContent, p.gets(t, e, version, 0))
		p.pass(t.Context())
		latest := 2
		if i > 0 {
			latest = 5
		}
		require.Equal(t, fmt.Sprintf("plan-%d", latest), db.account(e.sender.Name).plan)
	}
	require.Equal(t, account{applied: 5, balance: 15, plan: "plan-5", version: 5}, db.account(e.sender.Name))
}

// A process that dies after it has answered, and before it has handled the event, leaves the event
// in the inbox.
func TestCrashBetweenStoreAndHandling(t *testing.T) {
	db := newDatabase()
	dead := start(t, db)
	for _, e := range endpoints {
		require.Equal(t, http.StatusNoContent, dead.gets(t, e, 1, 0))
	}
	p := start(t, db)
	for _, e := range endpoints {
		require.Equal(t, http.StatusNoContent, p.gets(t, e, 1, 1)) // the sender did not get the answer
		p.pass(t.Context())
		require.Equal(t, 1, db.account(e.sender.Name).applied)
	}
	require.Empty(t, db.pending())
}

// A handler that panics, or ends its goroutine, in the middle does not take the worker with it. Its
// next attempt does not send the receipt again.
func TestWorkerPanics(t *testing.T) {
	for name, crash := range map[string]func(){"panic": func() { panic("a nil map") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase()
			p := start(t, db)
			e, crashes := endpoints[0], 0
			p.between = func(name string) {
				if name == "evt_2" && crashes < 2 {
					crashes++
					crash()
				}
			}
			for version := 1; version <= 3; version++ {
				require.Equal(t, http.StatusNoContent, p.gets(t, e, version, 0))
			}
			for range 3 {
				finished := make(chan struct{})
				go func() {
					defer close(finished)
					p.pass(context.WithoutCancel(t.Context()))
				}()
				<-finished
			}
			require.Equal(t, 2, crashes)
			require.Empty(t, db.pending())
			require.Equal(t, account{applied: 3, balance: 6, plan: "plan-3", version: 3}, db.account(e.sender.Name))
			require.Equal(t, 3, p.receipts(e.sender.Name))
		})
	}
}

// An event that fails each time is put aside, and those behind it are handled.
func TestPoisonedEventIsParked(t *testing.T) {
	db := newDatabase()
	p := start(t, db)
	e, tries := endpoints[0], 0
	p.between = func(name string) {
		if name == "evt_1" {
			tries++
			panic("always")
		}
	}
	require.Equal(t, http.StatusNoContent, p.gets(t, e, 1, 0))
	require.Equal(t, http.StatusNoContent, p.gets(t, e, 2, 0))
	require.NoError(t, db.store(e.sender.Name, "not JSON", []byte("x")))
	for range 10 {
		p.pass(t.Context())
	}
	require.Equal(t, 5, tries)
	require.Empty(t, db.pending())
	for _, r := range db.inbox {
		require.Equal(t, r.name != "evt_2", r.state == parked, r.name)
		require.Equal(t, r.state == parked, r.failure != nil, r.name)
	}
	require.Equal(t, 1, db.account(e.sender.Name).applied)
}

// While a worker has an event in hand, another one leaves it alone.
func TestEventInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase()
		p := start(t, db)
		release := make(chan struct{})
		p.between = func(string) { <-release }
		require.Equal(t, http.StatusNoContent, p.gets(t, endpoints[1], 1, 0))
		go p.pass(t.Context())
		synctest.Wait()

		other := start(t, db)
		other.pass(t.Context()) // in flight: the row stays where it is
		require.Len(t, db.pending(), 1)
		require.Zero(t, db.account(endpoints[1].sender.Name).applied)
		close(release)
		synctest.Wait()
		require.Empty(t, db.pending())
		require.Equal(t, 1, db.account(endpoints[1].sender.Name).applied)
		require.Empty(t, other.mail)
	})
}

// The receiver stores nothing that is forged, changed, late or nameless.
func TestRefusedDeliveries(t *testing.T) {
	db := newDatabase()
	p := start(t, db)
	for _, e := range endpoints {
		forged := e
		forged.secret = strings.Replace(e.secret, "e", "f", 1)
		require.Equal(t, http.StatusUnauthorized, p.gets(t, forged, 1, 0))

		r, err := delivery(t.Context(), "", e, 1, 0)
		require.NoError(t, err)
		r.Body = io.NopCloser(strings.NewReader(`{"id":"evt_1","amount":1000000}`))
		require.Equal(t, http.StatusUnauthorized, p.answers(r))

		r, err = delivery(t.Context(), "", e, 1, 0)
		require.NoError(t, err)
		r.Header.Del("X-Github-Delivery")
		r.Header.Del("Webhook-Id")
		if e.path == "/hooks/payments" {
			body, err := json.Marshal(map[string]any{"amount": 1})
			require.NoError(t, err)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			e.sign(r.Header, e.secret, "", body)
		}
		require.Contains(t, []int{http.StatusBadRequest, http.StatusUnauthorized}, p.answers(r))
	}
	require.Empty(t, db.inbox)
}

// A row that is done is kept for as long as its sender redelivers.
func TestPurge(t *testing.T) {
	db := newDatabase()
	p := start(t, db)
	e := endpoints[0]
	require.Equal(t, http.StatusNoContent, p.gets(t, e, 1, 0))
	now := time.Now()
	db.purge(e.sender.Name, now.Add(time.Hour))
	require.Len(t, db.inbox, 1, "not done yet")
	p.pass(t.Context())
	db.purge(e.sender.Name, now.Add(-e.sender.TTL))
	require.Len(t, db.inbox, 1)
	db.purge(e.sender.Name, now.Add(time.Hour))
	require.Empty(t, db.inbox)
}
