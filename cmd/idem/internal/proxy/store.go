package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/sqlitestore"
)

// memoryOnly is what is said of a store that nobody has named.
const memoryOnly = "records are in the memory of this process: a restart forgets all keys, and a second proxy does not know them; name a store by --redis, --postgres or --sqlite"

// kind returns which store is named.
func (s *Store) kind() (string, error) {
	named, n := "memory", 0
	for _, k := range []struct{ name, value string }{{"redis", s.Redis}, {"postgres", s.Postgres}, {"sqlite", s.SQLite}} {
		if k.value != "" {
			named = k.name
			n++
		}
	}
	if n > 1 {
		return "", errors.New("store: name one of redis, postgres and sqlite")
	}
	return named, nil
}

// check says what is wrong with it, without opening it.
func (s *Store) check() error {
	kind, err := s.kind()
	if err != nil {
		return err
	}
	switch unset := Default().Store; {
	case kind != "redis" && s.Prefix != unset.Prefix:
		return errors.New("store: prefix is for redis alone")
	case kind != "postgres" && s.Table != unset.Table:
		return errors.New("store: table is for postgres alone")
	case kind == "redis":
		_, err = s.redisOptions()
	case kind == "postgres":
		_, err = pgxpool.ParseConfig(s.Postgres) // the driver leaves the password out of its error
	}
	return err
}

// open returns the store, and what closes it.
func (s *Store) open(ctx context.Context) (idempotency.Store, func(), error) {
	kind, err := s.kind()
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case "redis":
		return s.openRedis(ctx)
	case "postgres":
		return s.openPostgres(ctx)
	case "sqlite":
		st, err := sqlitestore.Open(ctx, s.SQLite, sqlitestore.WithPowerLossSafety())
		return st, func() { _ = st.Close() }, err
	default:
		return idempotency.NewMemoryStore(), func() {}, nil
	}
}

func (s *Store) redisOptions() (*redis.Options, error) {
	opts, err := redis.ParseURL(s.Redis)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // without the URL, which may have a password
		}
		return nil, fmt.Errorf("store: redis: %w", err)
	}
	return opts, nil
}

func (s *Store) openRedis(ctx context.Context) (idempotency.Store, func(), error) {
	opts, err := s.redisOptions()
	if err != nil {
		return nil, nil, err
	}
	opts.ContextTimeoutEnabled, opts.DialerRetries = true, 1
	opts.ReadTimeout, opts.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
	client := redis.NewClient(opts)
	st := idempotency.NewRedisStore(client, idempotency.WithPrefix(s.Prefix))
	end := func() { _, _ = st.Close(), client.Close() }
	if err := st.Check(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return st, end, nil
}

func (s *Store) openPostgres(ctx context.Context) (idempotency.Store, func(), error) {
	pool, err := pgxpool.New(ctx, s.Postgres)
	if err != nil {
		return nil, nil, err // the driver leaves the password out
	}
	st, err := pgstore.New(ctx, pool, pgstore.WithTable(s.Table))
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return st, func() { st.Close(); pool.Close() }, nil
}
