package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"example.com/idempotency"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/sqlitestore"
)

// callTime is how long a call of the store may take that no guard bounds.
const callTime = 10 * time.Second

// A target is the store, or the service, that the flags and the environment name.
type target struct {
	redis, prefix   string
	postgres, table string
	sqlite          string
	server          string
	ways            ways // to the service
	// What a service knows by itself: for how long retries get an answer, whose secret finds records, whether a route
	// seals, who decides, and for how long what is forgotten is remembered.
	ttl       time.Duration
	secret    string
	unsealed  bool
	actor     string
	tombstone time.Duration
}

func (t *target) flags(f *pflag.FlagSet) {
	f.StringVar(&t.redis, "redis", "", "URL of a Redis or Valkey, redis://user:password@host:port/db (IDEM_REDIS)")
	f.StringVar(&t.prefix, "prefix", "idem:", "what stands before the names of records in Redis")
	f.StringVar(&t.postgres, "postgres", "", "connection string of a PostgreSQL (IDEM_POSTGRES)")
	f.StringVar(&t.table, "table", "idempotency_records", "the table of records in PostgreSQL")
	f.StringVar(&t.sqlite, "sqlite", "", "file of SQLite (IDEM_SQLITE)")
	f.StringVar(&t.server, "server", "", "URL of the console of a service, in place of a store (IDEM_SERVER)")
	t.ways.flags(f)
}

// keepAnswer is how long an answer is kept unless --ttl says otherwise. It is longer than the TTL of most
// routes: an answer that ends too early lets the request run again.
const keepAnswer = 30 * 24 * time.Hour

func (t *target) ttlFlag(f *pflag.FlagSet) {
	f.DurationVar(&t.ttl, "ttl", keepAnswer, "how long retries get the answer of final: not below the TTL of the route")
}

func (t *target) tombstoneFlag(f *pflag.FlagSet) {
	f.DurationVar(&t.tombstone, "tombstone", keepAnswer, "how long idem why tells who has forgotten it, and why; 0 for not at all")
}

func (t *target) secretFlag(f *pflag.FlagSet) {
	f.StringVar(&t.secret, "secret-file", "", "file with the secret of idempotency.WithDerivation, for what is found by a reference or a tenant")
}

func (t *target) unsealedFlag(f *pflag.FlagSet) {
	f.BoolVar(&t.unsealed, "unsealed", false, "final: the route has no sealer (WithSealer), whose keys only the service has")
}

func (t *target) actorFlag(f *pflag.FlagSet, env func(string) string) {
	f.StringVar(&t.actor, "actor", env("USER"), "who decides")
}

// records are those of a store.
type records interface {
	store.Store
	store.Inspector
	store.Lister
}

// A source is a store and the connection to it.
type source struct {
	records        // after open
	target  target // exactly one store
	redis   redis.UniversalClient
	pool    *pgxpool.Pool
	file    *sql.DB // only reads
	ends    []func()
}

func (s *source) close() {
	for _, end := range slices.Backward(s.ends) {
		end()
	}
}

// choose returns the target with the one store or service that is named: a flag counts before all variables.
func (t target) choose(env func(string) string) (target, error) {
	if t.redis == "" && t.postgres == "" && t.sqlite == "" && t.server == "" {
		t.redis, t.postgres, t.sqlite, t.server = env("IDEM_REDIS"), env("IDEM_POSTGRES"), env("IDEM_SQLITE"), env("IDEM_SERVER")
	}
	named := slices.DeleteFunc([]string{t.redis, t.postgres, t.sqlite, t.server}, func(s string) bool { return s == "" })
	if len(named) != 1 {
		return t, usage("name one store, by --redis, --postgres or --sqlite, or by IDEM_REDIS, IDEM_POSTGRES or IDEM_SQLITE; or a service, by --server or IDEM_SERVER; %d are named", len(named))
	}
	return t, nil
}

// connect returns the way to the store.
func (t target) connect(ctx context.Context) (*source, error) {
	s := &source{target: t}
	err := s.dial(ctx)
	if err != nil {
		s.close()
	}
	return s, err
}

// dial prepares the connection. Only that to a file, and to a Redis that may be a Cluster, is made.
func (s *source) dial(ctx context.Context) (err error) {
	switch t := &s.target; {
	case t.redis != "":
		return s.dialRedis(ctx)
	case t.postgres != "":
		cfg, err := pgxpool.ParseConfig(t.postgres)
		if err != nil {
			return usage("--postgres: %w", err) // the driver leaves the password out
		}
		cfg.ConnConfig.ConnectTimeout = callTime / 2
		if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
			return err
		}
		s.ends = append(s.ends, s.pool.Close)
	default: // sqlitestore would make a file that is not there, and a table in one that is
		switch info, err := os.Stat(t.sqlite); {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return usage("--sqlite: %s is not a regular file", t.sqlite)
		}
		uri := url.URL{Scheme: "file", OmitHost: true, Path: t.sqlite, RawQuery: "mode=ro&_pragma=busy_timeout(2000)"}
		if s.file, err = sql.Open("sqlite", uri.String()); err != nil {
			return err
		}
		s.ends = append(s.ends, func() { _ = s.file.Close() })
		var n int
		const tables = `SELECT count(*) FROM sqlite_master WHERE name = 'idempotency_records'`
		if err := s.file.QueryRowContext(ctx, tables).Scan(&n); err != nil || n == 0 {
			return cmp.Or(err, fmt.Errorf("%s has no table of records", t.sqlite))
		}
	}
	return nil
}

// dialRedis makes a client, that of a Cluster if the server belongs to one.
func (s *source) dialRedis(ctx context.Context) error {
	opts, err := redis.ParseURL(s.target.redis)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // without the URL, which may have a password
		}
		return usage("--redis: %w", err)
	}
	opts.ContextTimeoutEnabled, opts.DialerRetries, opts.DialTimeout = true, 1, callTime/4
	client := redis.NewClient(opts)
	s.redis, s.ends = client, append(s.ends, func() { _ = s.redis.Close() })
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	said, err := client.Info(ctx, "cluster").Result()
	if err != nil && isAway(err) {
		return fmt.Errorf("the store cannot be reached: %w", err)
	}
	if strings.Contains(said, "cluster_enabled:1") {
		_ = client.Close()
		s.redis = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{opts.Addr}, Username: opts.Username, Password: opts.Password, TLSConfig: opts.TLSConfig,
			ContextTimeoutEnabled: true, DialerRetries: 1, DialTimeout: opts.DialTimeout,
		})
	}
	return nil
}

// open makes the store.
func (s *source) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	switch {
	case s.redis != nil:
		st := idempotency.NewRedisStore(s.redis, idempotency.WithPrefix(s.target.prefix))
		s.records, s.ends = st, append(s.ends, func() { _ = st.Close() })
	case s.pool != nil:
		st, err := pgstore.New(ctx, s.pool, pgstore.WithTable(s.target.table), pgstore.WithConns(2), pgstore.WithoutListen())
		if err != nil {
			return err
		}
		s.records, s.ends = st, append(s.ends, st.Close)
	default:
		st, err := sqlitestore.Open(ctx, s.target.sqlite)
		if err != nil {
			return err
		}
		s.records, s.ends = st, append(s.ends, func() { _ = st.Close() })
	}
	return nil
}
