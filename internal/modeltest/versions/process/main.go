// Command process is a process of one version of the library. It reads calls from its standard input, one JSON
// object a line, carries each out in a goroutine of its own, and writes the replies to its standard output. It
// ends with its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/modeltest/versions"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/sqlitestore"
)

func main() {
	log.SetFlags(0)
	redisAddr := flag.String("redis", "", "address of the Redis server")
	dsn := flag.String("postgres", "", "connection string of the database")
	file := flag.String("sqlite", "", "path of the SQLite file")
	flag.Parse()
	stores, err := open(context.Background(), *redisAddr, *dsn, *file)
	if err != nil {
		log.Fatal(err)
	}
	p := &process{guards: map[string]*guard{}, gates: map[string]chan struct{}{}, running: map[string]chan versions.Reply{}}
	if err := p.makeGuards(stores); err != nil {
		log.Fatal(err)
	}
	p.serve()
}

// open opens the three stores, and makes their tables if they are not there.
func open(ctx context.Context, redisAddr, dsn, file string) (map[string]idempotency.Store, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	pg, err := pgstore.New(ctx, pool)
	if err != nil {
		if err := pgstore.Migrate(ctx, pool); err != nil {
			return nil, err
		}
		if pg, err = pgstore.New(ctx, pool); err != nil {
			return nil, err
		}
	}
	lite, err := sqlitestore.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	return map[string]idempotency.Store{"redis": idempotency.NewRedisStore(client), "postgres": pg, "sqlite": lite}, nil
}

// A guard is one with its store.
type guard struct {
	*idempotency.Guard
	store idempotency.Store
}

// A process has all guards, and the requests in flight.
type process struct {
	guards map[string]*guard

	mu      sync.Mutex
	gates   map[string]chan struct{}       // by key: what the handler waits for
	running map[string]chan versions.Reply // by key
	damage  []string                       // what was reported as corrupt
}

func (p *process) makeGuards(stores map[string]idempotency.Store) error {
	sealer, err := idempotency.NewSealer([]byte("a key of 32 bytes, for the tests"))
	if err != nil {
		return err
	}
	for name, st := range stores {
		for _, seal := range versions.Seals {
			for _, policy := range versions.Policies {
				label := name + "/" + seal + "/" + policy
				opts := []idempotency.Option{
					idempotency.WithRoute(label), idempotency.WithObserver(p.observe),
					idempotency.WithLimits(idempotency.Limits{ResponseBody: 1000}),
				}
				if seal == "sealed" {
					opts = append(opts, idempotency.WithSealer(sealer), idempotency.WithKeptKeys(true))
				}
				switch policy {
				case "hold", "brief-hold":
					opts = append(opts, idempotency.WithRecovery(idempotency.Hold))
				case "rebind":
					opts = append(opts, idempotency.WithRebinding(true))
				}
				scope := idempotency.SharedScope
				if policy == "found" {
					opts = append(opts, findable(st)...)
					scope = func(r *http.Request) (string, error) { return scopeOf(label, r.Header.Get("Idempotency-Key")), nil }
				}
				if policy == "brief-hold" || policy == "brief-rerun" {
					opts = append(opts, idempotency.WithLease(versions.BriefLease))
				}
				g, err := idempotency.New(st, scope, opts...)
				if err != nil {
					return fmt.Errorf("%s: %w", label, err)
				}
				p.guards[label] = &guard{g, st}
			}
		}
	}
	return nil
}

// scopeOf is the scope of a key: one of its own, where the records of a scope are found.
func scopeOf(guard, key string) string {
	if strings.HasSuffix(guard, "/found") {
		return "tenant " + key
	}
	shared, _ := idempotency.SharedScope(nil) // its name is not the same in all versions
	return shared
}

// observe notes what is reported as damage, and not as the form of another version.
func (p *process) observe(_ context.Context, e event.Event) {
	if e.Kind == event.Corrupt && !errors.Is(e.Err, idempotency.ErrUnreadableHere) {
		p.mu.Lock()
		p.damage = append(p.damage, fmt.Sprint(e.Route, " ", e.Op, ": ", e.Err))
		p.mu.Unlock()
	}
}

// serve carries out the calls.
func (p *process) serve() {
	var out sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	encoder := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c versions.Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			log.Fatal(err)
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			r := p.call(ctx, &c)
			r.ID = c.ID
			out.Lock()
			defer out.Unlock()
			if err := encoder.Encode(r); err != nil {
				log.Fatal(err)
			}
		}()
	}
}
