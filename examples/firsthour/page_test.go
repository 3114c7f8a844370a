// Package firsthour_test runs what docs/tutorials/first-hour.md says.
package firsthour_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/pagetest"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

// page returns the page, after its files of a program are found to be those that are here.
func page(t *testing.T, files ...string) string {
	t.Helper()
	text := pagetest.File(t, "../../docs/tutorials/first-hour.md")
	for _, file := range files {
		program := pagetest.File(t, file)
		_, shown, _ := strings.Cut("\n"+string(program), "\npackage ") // the comment is for godoc
		require.Equal(t, "package "+shown, pagetest.Block(t, string(text), file))
	}
	return string(text)
}

func build(t *testing.T, program string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), program)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./"+program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

func TestMemory(t *testing.T) {
	text, addr := page(t, "memory/main.go"), pagetest.FreeAddr(t)
	pagetest.Need(t, "curl")
	pagetest.Start(t, addr, build(t, "memory"), addr)
	require.Equal(t, 4, pagetest.Converse(t, pagetest.Block(t, text, "memory"), "127.0.0.1:8080", addr))
}

func TestRedis(t *testing.T) {
	text := page(t, "redis/main.go", "redis/customers.go")
	pagetest.Need(t, "curl")
	t.Setenv("REDIS_ADDR", redistest.Start(t).Addr)
	one, two, program := pagetest.FreeAddr(t), pagetest.FreeAddr(t), build(t, "redis")
	pagetest.Start(t, one, program, one)
	pagetest.Start(t, two, program, two)
	require.Equal(t, 4, pagetest.Converse(t, pagetest.Block(t, text, "redis"), "127.0.0.1:8080", one, "127.0.0.1:8081", two))
}

func TestPostgres(t *testing.T) {
	text := page(t, "postgres/main.go")
	for _, dir := range []string{"redis", "postgres"} {
		program := pagetest.File(t, dir+"/customers.go")
		require.Contains(t, text, string(program), "the page shows it once, for both programs")
	}
	pagetest.Need(t, "curl")
	pagetest.Need(t, "psql")
	t.Setenv("DATABASE_URL", pgserver.Shared(t).DSN)
	require.Equal(t, 2, pagetest.Converse(t, pagetest.Block(t, text, "table"), "../idempotency/", "../../"))
	addr, program := pagetest.FreeAddr(t), build(t, "postgres")
	stop := pagetest.Start(t, addr, program, addr)
	require.Equal(t, 2, pagetest.Converse(t, pagetest.Block(t, text, "order"), "127.0.0.1:8080", addr))
	stop() // as kill -9 does
	pagetest.Start(t, addr, program, addr)
	require.Equal(t, 2, pagetest.Converse(t, pagetest.Block(t, text, "restarted"), "127.0.0.1:8080", addr))
}
