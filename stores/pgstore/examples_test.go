package pgstore_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/stores/pgstore"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// The handlers of the examples, which need a server, do what the examples say.
func TestExamples(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	_, err := pool.Exec(t.Context(), ordersTable+`;
		CREATE TABLE payments (id text PRIMARY KEY);
		CREATE TABLE stock AS SELECT 'tea' AS item, 5::bigint AS quantity`)
	require.NoError(t, err)
	store, _ := newStore(t, pool)
	db := pgstore.OpenDB(pool)
	t.Cleanup(func() { _ = db.Close() })
	number := func(sql string) (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	serve := func(h http.Handler, opts ...idempotency.Option) *guardtest.Server {
		return guardtest.ServeHTTP1(t, guardtest.NewGuard(t, store, opts...).Handler(h))
	}

	orders := serve(&createOrder{store}, idempotency.WithTransaction(true))
	first := orders.Do(t, guardtest.Call{Key: "order", Body: `{"item":"tea","quantity":2}`})
	require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
	require.JSONEq(t, `{"id":1,"item":"tea","quantity":2}`, string(first.Body))
	guardtest.RequireReplay(t, first, orders.Do(t, guardtest.Call{Key: "order", Body: `{"item":"tea","quantity":2}`}))
	require.Equal(t, 1, number("SELECT count(*) FROM orders"))

	payments := serve(&pay{store, db}, idempotency.WithTransaction(true))
	first = payments.Do(t, guardtest.Call{Key: "payment"})
	require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
	guardtest.RequireReplay(t, first, payments.Do(t, guardtest.Call{Key: "payment"}))
	require.Equal(t, 1, number("SELECT count(*) FROM payments"))

	var keys []string
	away := errors.New("the provider is away")
	checkouts := serve(&checkout{store, func(_ context.Context, key string) error {
		keys = append(keys, key)
		err := away
		away = nil
		return err
	}})
	require.Equal(t, http.StatusBadGateway, checkouts.Do(t, guardtest.Call{Key: "checkout"}).Status)
	require.Equal(t, http.StatusCreated, checkouts.Do(t, guardtest.Call{Key: "checkout"}).Status)
	require.Equal(t, 4, number("SELECT quantity FROM stock"))
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
}

// The commands of the tutorial print what it shows.
func TestTutorialShowsWhatHappens(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	page := pagetest.File(t, "../../docs/tutorials/postgres.md")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```.*?```text\n(.*?)```").FindSubmatch(page)
	require.Len(t, blocks, 3)

	pool := restored(t, 0)
	pgtest.Exec(t, pool, ordersTable)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	store := openStore(t, pool)
	server := httptest.NewServer(guardtest.NewGuard(t, store, idempotency.WithTransaction(true)).Handler(&createOrder{store}))
	t.Cleanup(server.Close)
	commands := strings.NewReplacer("curl ", curl+" ", "127.0.0.1:8080", server.Listener.Addr().String()).Replace(string(blocks[1]))
	printed, err := exec.CommandContext(t.Context(), "sh", "-ec", commands).CombinedOutput()
	require.NoError(t, err, "%s", printed)
	require.Equal(t, string(blocks[2]), string(printed))
}

// The pieces that the tutorial names are a program.
func TestTutorialIsAProgram(t *testing.T) {
	t.Parallel()
	var program strings.Builder
	for _, page := range []string{"tutorials/postgres.md", "how-to/postgres-operations.md"} {
		text := pagetest.File(t, "../../docs/"+page)
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if page == "tutorials/postgres.md" || strings.HasPrefix(block[1], "// sweep ") {
				program.WriteString(block[1])
			}
		}
	}
	main := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(main, []byte(program.String()), 0o600))
	said, err := exec.CommandContext(t.Context(), "go", "vet", main).CombinedOutput()
	require.NoError(t, err, "%s", said)
}
