// Package redisstore keeps records in Redis. It is the store behind idempotency.NewRedisStore.
package redisstore

// A store and how it is made. The calls of a run are in run.go, and the way to the server is in
// server.go.

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisclient"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/internal/watch"
	"example.com/idempotency/store"
)

// A Store is what idempotency.RedisStore says.
type Store struct {
	program  redis.UniversalClient // as the program has made it
	server   *server
	obeys    bool // whether the client returns by the deadlines of contexts
	prefix   string
	index    index
	tags     tagIndexes
	listener *listener
}

var (
	_ store.Store        = (*Store)(nil)
	_ store.ContextStore = (*Store)(nil)
	_ store.Watcher      = (*Store)(nil)
	_ store.StepStore    = (*Store)(nil)
	_ store.Inspector    = (*Store)(nil)
	_ store.Lister       = (*Store)(nil)
	_ store.Finder       = (*Store)(nil)
	_ store.Gauge        = (*Store)(nil)
	_ store.Comparer     = (*Store)(nil)
)

// A Config says where in Redis a [Store] keeps its records, and what it waits for.
type Config struct {
	// Prefix stands before the name of every record, of the index and of the channel.
	Prefix string
	// Replicas is how many replicas have to confirm a durable call. Zero stands for none.
	Replicas int
	// Patience is how long a call waits for them.
	Patience time.Duration
}

// New returns a store that keeps its records with client. It panics as idempotency.NewRedisStore
// says.
func New(client redis.UniversalClient, c Config) *Store {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("idempotency: NewRedisStore: client is nil")
	}
	// A type that embeds a Ring has its methods.
	if _, ok := client.(interface{ Options() *redis.RingOptions }); ok {
		panic("idempotency: NewRedisStore: a Ring cannot keep records")
	}
	if c.Replicas < 0 || (c.Replicas > 0 && c.Patience < time.Millisecond) {
		panic("idempotency: WithReplicas: needs a count that is not negative and a timeout of at least 1ms")
	}
	obedient, obeys := redisclient.Obedient(client)
	srv := &server{client: obedient, replicas: c.Replicas, patience: c.Patience}
	return &Store{
		program:  client,
		server:   srv,
		obeys:    obeys,
		prefix:   c.Prefix,
		index:    index{server: srv, name: c.Prefix + redisproto.IndexKey},
		tags:     tagIndexes{server: srv, prefix: c.Prefix},
		listener: newListener(srv, c.Prefix+"settled"),
	}
}

// ObeysContext implements [store.ContextStore]. It reports whether the client obeys the deadlines of
// contexts, or the store has a copy of it that does.
func (s *Store) ObeysContext() bool { return s.obeys }

// CallTimeout returns how long the client waits for a reply, as its ReadTimeout says, or 0 if that is not known.
func (s *Store) CallTimeout() time.Duration { return redisclient.ReadTimeout(s.program) }

// SameAs implements [store.Comparer]. It reports whether other has the same client, whatever its other
// options are, and the same prefix.
func (s *Store) SameAs(other store.Store) bool {
	o, ok := other.(*Store)
	return ok && o.prefix == s.prefix &&
		reflect.ValueOf(o.program).Comparable() && reflect.ValueOf(s.program).Comparable() && o.program == s.program
}

// Close ends the subscription that all calls of [Store.Watch] share. Watch fails from
// then on. Close leaves the client open and may be called more than once.
func (s *Store) Close() error {
	s.listener.Close()
	return nil
}

// Watch implements [store.Watcher]. All watches of a store share one connection.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	settled, stop, err := s.listener.Watch(ctx, s.prefix+key)
	if errors.Is(err, watch.ErrClosed) {
		err = wrap(err)
	}
	return settled, stop, err
}
