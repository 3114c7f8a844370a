package pgstore_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about a primary that a standby has replaced, and that runs again.

func TestOriginsThatAreBehind(t *testing.T) {
	t.Parallel()
	type origin struct{ system, timeline string }
	for name, c := range map[string]struct {
		newest, told, after origin
		behind              bool
	}{
		"the first":                       {told: origin{"7", "00000003"}, after: origin{"7", "00000003"}},
		"the same":                        {newest: origin{"7", "00000003"}, told: origin{"7", "00000003"}, after: origin{"7", "00000003"}},
		"a promoted standby":              {newest: origin{"7", "00000003"}, told: origin{"7", "00000004"}, after: origin{"7", "00000004"}},
		"many promotions":                 {newest: origin{"7", "00000009"}, told: origin{"7", "0000000A"}, after: origin{"7", "0000000A"}},
		"an old primary":                  {newest: origin{"7", "00000010"}, told: origin{"7", "0000000F"}, after: origin{"7", "00000010"}, behind: true},
		"another system":                  {newest: origin{"7", "00000003"}, told: origin{"8", "00000001"}, after: origin{"8", "00000001"}},
		"an old primary without a system": {newest: origin{"7", "00000003"}, told: origin{"", "00000002"}, after: origin{"7", "00000003"}, behind: true},
		"a newer one without a system":    {newest: origin{"7", "00000003"}, told: origin{"", "00000004"}, after: origin{"7", "00000004"}},
		"no system is known":              {newest: origin{"", "00000003"}, told: origin{"8", "00000002"}, after: origin{"", "00000003"}, behind: true},
		"a standby":                       {newest: origin{"7", "00000003"}, told: origin{"7", ""}, after: origin{"7", "00000003"}},
		"a service that does not tell":    {},
	} {
		system, timeline, behind := pgstore.Meet(c.newest.system, c.newest.timeline, c.told.system, c.told.timeline)
		require.Equal(t, c.behind, behind, name)
		got := origin{system, timeline}
		require.Equal(t, c.after, got, name)
	}
}

// A pair is a primary, and a standby that takes its place.
type pair struct{ old, next *pgtest.Server }

// dsn is a connection string with both hosts, of which the old primary is the first.
func (p pair) dsn(t *testing.T) string {
	first, err := url.Parse(p.old.DSN)
	require.NoError(t, err)
	second, err := url.Parse(p.next.DSN)
	require.NoError(t, err)
	first.Host += "," + second.Host
	return first.String() + "&target_session_attrs=read-write&pool_max_conns=12"
}

// failOver promotes the standby in place of the primary, which dies first or lives on.
func (p pair) failOver(t *testing.T, die func()) {
	old, next := p.old.Pool(t), p.next.Pool(t)
	var written string
	require.NoError(t, old.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&written))
	require.Eventually(t, func() bool {
		var has bool
		err := next.QueryRow(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written).Scan(&has)
		return err == nil && has
	}, guardtest.Patience, 10*time.Millisecond)
	old.Close()
	die()
	var promoted bool
	require.NoError(t, next.QueryRow(t.Context(), "SELECT pg_promote()").Scan(&promoted))
	require.True(t, promoted)
}

// comeBack starts the old primary again as it was, and ends all connections to the new one.
func (p pair) comeBack(t *testing.T) {
	p.old.Restart(t)
	_, err := p.next.Pool(t).Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
	require.NoError(t, err)
}

// rowsOn returns how many charges a key has on a server.
func rowsOn(t *testing.T, server *pgtest.Server, s *shop, key string) (n int) {
	t.Helper()
	require.NoError(t, server.Pool(t).QueryRow(t.Context(), "SELECT count(*) FROM "+s.table+" WHERE key = $1", key).Scan(&n))
	return n
}

// stepped charges in a step.
func stepped(s *shop, w http.ResponseWriter, r *http.Request) {
	if _, err := s.step(r.Context(), pgx.ReadCommitted, nothing); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// A service manager starts the old primary again, and it is the first host of the connection string. Keys that the
// new one has are not run there. Runs whose transactions the program's pool begins there are rolled back, also one
// whose claim both servers have.
func TestOldPrimaryThatRunsAgain(t *testing.T) {
	t.Parallel()
	p := pair{old: pgtest.Start(t)}
	p.next = &pgtest.Server{Server: p.old.StartStandby(t)}
	level := "read committed"
	type service struct {
		*shop
		events *guardtest.Events
		runs   atomic.Int64
		goOn   func() // begins the transaction of a run from before the failover
		answer chan guardtest.Reply
	}
	services := map[string]*service{}
	var waiting sync.WaitGroup
	for name, c := range map[string]struct {
		h     func(s *shop, w http.ResponseWriter, r *http.Request)
		store []pgstore.Option
	}{
		"InTx":           {h: charge(ways["InTx"], level)},
		"InSQLTx":        {h: charge(ways["InSQLTx"], level)},
		"InSQLTx stdlib": {h: charge(ways["InSQLTx stdlib"], level)},
		"StepTx":         {h: stepped},
		"one commit":     {h: charge(ways["InTx"], level), store: []pgstore.Option{pgstore.WithOneCommit(pgx.ReadCommitted)}},
	} {
		pool, err := pgxpool.New(t.Context(), p.dsn(t))
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		s := &service{events: new(guardtest.Events), answer: make(chan guardtest.Reply, 1)}
		began, early := make(chan struct{}), make(chan struct{})
		s.goOn = sync.OnceFunc(func() { close(early) })
		s.shop = newShopOn(t, pool, func(shop *shop, w http.ResponseWriter, r *http.Request) {
			s.runs.Add(1)
			if r.Header.Get("Idempotency-Key") == "early" {
				close(began)
				<-early
			}
			c.h(shop, w, r)
		}, c.store, idempotency.WithTransaction(name != "StepTx"), idempotency.WithLease(time.Hour), idempotency.WithObserver(s.events.Observe))
		t.Cleanup(s.goOn)
		waiting.Go(func() { s.answer <- s.Do(t, guardtest.Call{Key: "early"}) })
		<-began
		services[name] = s
	}
	p.failOver(t, p.old.Crash)
	answers := map[string]guardtest.Reply{}
	for name, s := range services {
		for i := range 20 {
			key := fmt.Sprint("key-", i)
			require.Eventually(t, func() bool { // connections to the old primary are lost
				answers[name+key] = s.Do(t, guardtest.Call{Key: key})
				return answers[name+key].Status == http.StatusCreated
			}, guardtest.Patience, 10*time.Millisecond)
		}
	}
	p.comeBack(t)
	for name, s := range services {
		t.Run(name, func(t *testing.T) {
			for i := range 20 {
				key := fmt.Sprint("key-", i)
				var got guardtest.Reply
				require.Eventually(t, func() bool { // connections were lost
					got = s.Do(t, guardtest.Call{Key: key})
					return got.Status != http.StatusServiceUnavailable
				}, guardtest.Patience, time.Millisecond)
				guardtest.RequireReplay(t, answers[name+key], got)
				require.Zero(t, rowsOn(t, p.old, s.shop, key))
				require.Equal(t, 1, rowsOn(t, p.next, s.shop, key))
			}
			s.goOn()
			require.GreaterOrEqual(t, (<-s.answer).Status, http.StatusInternalServerError)
			require.Zero(t, rowsOn(t, p.old, s.shop, "early"))

			ran := s.runs.Load()
			var got guardtest.Reply
			require.Eventually(t, func() bool {
				got = s.Do(t, guardtest.Call{Key: "new"})
				return got.Status < http.StatusInternalServerError || hasCause(s.events)
			}, guardtest.Patience, time.Millisecond)
			require.GreaterOrEqual(t, got.Status, http.StatusInternalServerError, "%s", got.Body)
			require.Zero(t, rowsOn(t, p.old, s.shop, "new"))
			require.Zero(t, rowsOn(t, p.next, s.shop, "new"))
			if name == "one commit" {
				guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
				require.Equal(t, ran, s.runs.Load(), "nothing runs")
			}
		})
	}
	for _, s := range services {
		s.goOn()
	}
	waiting.Wait()
	p.old.Kill()
	if t.Failed() {
		return
	}
	for name, s := range services {
		require.Eventually(t, func() bool { return s.Do(t, guardtest.Call{Key: "new"}).Status == http.StatusCreated }, guardtest.Patience, 10*time.Millisecond, name)
	}
}

// hasCause reports whether the last event that has an error names the cause.
func hasCause(events *guardtest.Events) bool {
	errs := events.Errors()
	return len(errs) > 0 && strings.Contains(errs[len(errs)-1].Error(), "on an older timeline of its database")
}

// named returns a primary and its standby, a pool whose connections lead to a server by one name, and that name. It
// leads to the primary.
func named(t *testing.T) (p pair, pool *pgxpool.Pool, leadsTo *atomic.Pointer[pgtest.Server]) {
	t.Helper()
	p.old, leadsTo = pgtest.Start(t), new(atomic.Pointer[pgtest.Server])
	p.next = &pgtest.Server{Server: p.old.StartStandby(t)}
	leadsTo.Store(p.old)
	cfg, err := pgxpool.ParseConfig(p.old.DSN)
	require.NoError(t, err)
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		to, err := url.Parse(leadsTo.Load().DSN)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, to.Host)
	}
	pool = pgtest.PoolOf(t, cfg)
	return p, pool, leadsTo
}

// The name leads to the new primary, and back to the old one. No call of the store is made there.
func TestNameThatLeadsBackToTheOldPrimary(t *testing.T) {
	t.Parallel()
	p, pool, leadsTo := named(t)
	var events guardtest.Events
	s := newShopOn(t, pool, charge(ways["InTx"], "read committed"), []pgstore.Option{pgstore.WithConns(1)}, idempotency.WithObserver(events.Observe))
	p.failOver(t, p.old.Crash)
	leadsTo.Store(p.next)
	served := func() bool { return s.Do(t, guardtest.Call{Key: "k"}).Status == http.StatusCreated }
	require.Eventually(t, served, guardtest.Patience, 10*time.Millisecond)
	leadsTo.Store(p.old)
	p.comeBack(t)
	for range 3 {
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
	}
	require.Zero(t, rowsOn(t, p.old, s, "k"))
	require.True(t, hasCause(&events))
	faults, err := s.store.Health(t.Context())
	require.NoError(t, err)
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], "on an older timeline")
	leadsTo.Store(p.next)
	require.Eventually(t, served, guardtest.Patience, 10*time.Millisecond)
	require.Equal(t, 1, rowsOn(t, p.next, s, "k"))
}

// The old primary lives on, and the store has a connection to it. When another connection has met the new primary,
// that one is not used any more.
func TestConnectionFromBeforeTheFailover(t *testing.T) {
	t.Parallel()
	p, pool, leadsTo := named(t)
	s, table := newStore(t, pool, pgstore.WithConns(2))
	lock, err := p.old.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	p.failOver(t, func() {})
	leadsTo.Store(p.next)
	pgtest.Exec(t, lock, "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	claimed := make(chan error)
	go func() { // it takes the connection to the old primary, and keeps it
		_, err := s.Claim(t.Context(), "waits", newClaim())
		claimed <- err
	}()
	oldPool := p.old.Pool(t)
	require.Eventually(t, func() bool {
		var waits bool
		err := oldPool.QueryRow(t.Context(), "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted").Scan(&waits)
		return err == nil && waits
	}, guardtest.Patience, time.Millisecond)
	guardtest.Claim(t, s, "meets", newClaim())
	require.NoError(t, lock.Rollback(t.Context()))
	require.NoError(t, <-claimed)
	for _, key := range keysOf(10) {
		guardtest.Claim(t, s, key, newClaim())
	}
	var old int
	require.NoError(t, oldPool.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" WHERE key <> 'waits'").Scan(&old))
	require.Zero(t, old)
}

// The old primary lives on, and a run in one commit has begun there. When the process has met the new primary, it does
// not commit.
func TestOneCommitFromBeforeTheFailover(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"InTx", "InSQLTx"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, pool, leadsTo := named(t)
			began, goOn := make(chan struct{}), make(chan struct{})
			begin := sync.OnceFunc(func() { close(began) })
			var events guardtest.Events
			s := newShopOn(t, pool, func(s *shop, w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Idempotency-Key") == "early" {
					begin()
					<-goOn
				}
				charge(ways[name], "read committed")(s, w, r)
			}, []pgstore.Option{pgstore.WithOneCommit(pgx.ReadCommitted)}, idempotency.WithLease(time.Hour), idempotency.WithObserver(events.Observe))
			answer := make(chan guardtest.Reply, 1)
			go func() { answer <- s.Do(t, guardtest.Call{Key: "early"}) }()
			<-began
			p.failOver(t, func() {})
			leadsTo.Store(p.next)
			pool.Reset()
			got := s.Do(t, guardtest.Call{Key: "late"})
			close(goOn)
			early := <-answer
			require.Equal(t, http.StatusCreated, got.Status, "%s", got.Body)
			require.Equal(t, 1, rowsOn(t, p.next, s, "late"))
			require.Equal(t, http.StatusServiceUnavailable, early.Status, "%s", early.Body)
			require.True(t, hasCause(&events))
			require.Zero(t, rowsOn(t, p.old, s, "early"))
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "early"}).Status)
			require.Equal(t, 1, rowsOn(t, p.next, s, "early"))
		})
	}
}

// A role may not call the functions that tell a timeline, as on a service that does not offer them. The store works
// without them.
func TestTimelineThatIsNotTold(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	admin := server.Pool(t)
	for name, c := range map[string]struct {
		revoke string
		direct bool // only the program's role lacks the right
	}{
		"no system":                 {revoke: "pg_control_system()"},
		"no timeline":               {revoke: "pg_walfile_name(pg_lsn)"},
		"none in a transaction":     {revoke: "pg_walfile_name(pg_lsn)", direct: true},
		"no system and no timeline": {revoke: "pg_control_system(), pg_walfile_name(pg_lsn)"},
	} {
		pgtest.Exec(t, admin, "DROP ROLE IF EXISTS app; CREATE ROLE app LOGIN; GRANT pg_read_all_data, pg_write_all_data TO app; GRANT CREATE ON SCHEMA public TO app; REVOKE EXECUTE ON FUNCTION "+c.revoke+" FROM PUBLIC")
		app, err := pgxpool.New(t.Context(), strings.Replace(server.DSN, "postgres@", "app@", 1))
		require.NoError(t, err)
		var opts []pgstore.Option
		if c.direct {
			opts = append(opts, pgstore.WithPoolConfig(admin.Config()))
		}
		s := newShopOn(t, app, charge(ways["InTx"], "read committed"), opts)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status, name)
		s.store.Close()
		app.Close()
		pgtest.Exec(t, admin, "DROP OWNED BY app; GRANT EXECUTE ON FUNCTION "+c.revoke+" TO PUBLIC")
	}
}

// replicated returns a shop whose commits wait for a standby, and the standby.
func replicated(t *testing.T, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) (*shop, *pgtest.Server, *pgtest.Server) {
	t.Helper()
	primary := pgtest.Start(t)
	s := newShopAt(t, primary, h, opts...)
	standby := &pgtest.Server{Server: primary.StartStandby(t)}
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		pgtest.Exec(t, s.pool, sql)
	}
	require.Eventually(t, func() bool {
		var n int
		err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&n)
		return err == nil && n == 1
	}, time.Minute, 10*time.Millisecond)
	return s, primary, standby
}

// The standby hangs, and the guard gives the commit up that waits for it. The rows are committed then,
// and anybody can see them on the primary. If that dies they are gone, so no client may have been told of
// them.
func TestCommitThatOnlyThePrimaryHasIsNotBelieved(t *testing.T) {
	t.Parallel()
	work := map[string]func(s *shop, w http.ResponseWriter, r *http.Request){
		"InTx":    charge(ways["InTx"], "read committed"),
		"InSQLTx": charge(ways["InSQLTx"], "read committed"),
		"StepTx":  stepped,
	}
	for name, h := range work {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hang func()
			s, primary, standby := replicated(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				hang() // the claim is on both
				h(s, w, r)
			}, idempotency.WithTransaction(name != "StepTx"), idempotency.WithLease(6*time.Second))
			hang = sync.OnceFunc(standby.Crash)
			t.Cleanup(func() { // or the guard would settle the run for ever
				over, cancel := context.WithCancel(context.Background())
				cancel()
				_ = s.guard.Shutdown(over)
			})
			call := guardtest.Call{Key: "k"}
			first := s.Do(t, call)
			require.Equal(t, 1, s.rows(t, "k"), "committed, and visible on the primary")
			retry := s.Do(t, call)
			primary.Kill()
			standby.Promote(t)
			promoted := standby.Pool(t)
			var rows int
			require.NoError(t, promoted.QueryRow(context.Background(), "SELECT count(*) FROM "+s.table).Scan(&rows))
			require.Zero(t, rows)
			require.GreaterOrEqual(t, first.Status, http.StatusConflict, "%s", first.Body)
			require.GreaterOrEqual(t, retry.Status, http.StatusConflict, "%s", retry.Body)
		})
	}
}

// The standby comes back while the guard still asks. The commit is believed, and the client gets its
// answer.
func TestCommitThatReachesTheStandbyIsBelieved(t *testing.T) {
	t.Parallel()
	var hang func()
	s, _, standby := replicated(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		hang()
		charge(ways["InTx"], "read committed")(s, w, r)
	})
	hang = sync.OnceFunc(standby.Crash)
	call := guardtest.Call{Key: "k"}
	require.Equal(t, http.StatusServiceUnavailable, s.Do(t, call).Status)
	standby.Restart(t)
	require.Equal(t, http.StatusCreated, s.settled(t, "k").Status)
	require.Equal(t, 1, s.rows(t, "k"))
}
