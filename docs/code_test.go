package docs_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"
)

// This file compiles the code of the pages, as far as a page shows it: a name that it does not declare,
// such as that of a handler, may be anything, and so may what it is used for.

// imported are the packages that pages use without an import, by the name that they use.
var imported = packagesByName(
	"bytes", "context", "database/sql", "encoding/json", "errors", "fmt", "io", "log", "log/slog", "net/http", "net/http/httptest", "os", "path/filepath",
	"slices", "strings", "testing", "testing/synctest", "time", "os/signal", "syscall", "crypto/sha256", "crypto/subtle",
	"example.com/idempotency", "example.com/idempotency/client", "example.com/idempotency/client/journal",
	"example.com/idempotency/client/profile", "example.com/idempotency/console", "example.com/idempotency/event", "example.com/idempotency/policy",
	"example.com/idempotency/problem", "example.com/idempotency/queue", "example.com/idempotency/store",
	"example.com/idempotency/store/storetest", "example.com/idempotency/webhook", "github.com/redis/go-redis/v9",
	// of other modules of the repository, and what these need
	"example.com/idempotency/adapters/connectidempotency", "example.com/idempotency/adapters/connectidempotency/connectclient",
	"example.com/idempotency/adapters/echo4idempotency", "example.com/idempotency/adapters/echoidempotency",
	"example.com/idempotency/adapters/fiberidempotency", "example.com/idempotency/adapters/ginidempotency",
	"example.com/idempotency/adapters/grpcidempotency", "example.com/idempotency/adapters/grpcidempotency/grpcclient",
	"example.com/idempotency/adapters/humaidempotency", "example.com/idempotency/adapters/mcpidempotency",
	"example.com/idempotency/otelidempotency", "example.com/idempotency/stores/pgstore", "example.com/idempotency/stores/sqlitestore",
	"connectrpc.com/connect", "github.com/danielgtaylor/huma/v2", "github.com/danielgtaylor/huma/v2/adapters/humago",
	"github.com/gin-gonic/gin", "github.com/go-chi/chi/v5", "github.com/gofiber/fiber/v3", "github.com/gofiber/fiber/v3/middleware/recover", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgxpool",
	"github.com/modelcontextprotocol/go-sdk/mcp", "google.golang.org/grpc", "github.com/stretchr/testify/require",
)

func packagesByName(paths ...string) map[string]string {
	byName := make(map[string]string)
	for _, p := range paths {
		name := path.Base(p)
		if regexp.MustCompile(`^v\d+$`).MatchString(name) {
			name = strings.TrimPrefix(path.Base(path.Dir(p)), "go-")
		}
		byName[name] = p
	}
	return byName
}

// newImporter imports the packages of imported, and what they need, as the compiler has them. In a build
// without go.work those of other modules are missing. It is not safe for concurrent use.
func newImporter(t *testing.T) types.Importer {
	t.Helper()
	args := append([]string{"list", "-e", "-deps", "-export", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"},
		slices.Sorted(maps.Values(imported))...)
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = file
	}
	for _, p := range imported {
		require.True(t, exports[p] != "" || os.Getenv("GOWORK") == "off", "%s cannot be imported", p)
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s is not there", path)
		}
		return os.Open(exports[path])
	})
}

func TestCodeOfThePagesCompiles(t *testing.T) {
	imports := newImporter(t)
	blocks := 0
	for _, page := range everyPage(t) {
		text := pagetest.File(t, page)
		for _, block := range regexp.MustCompile("(?s)```go[^\n]*\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			blocks++
			for _, err := range mistakesOf(imports, block[1]) {
				t.Errorf("%s: %v in\n%s", page, err, block[1])
			}
		}
	}
	require.Greater(t, blocks, 40)
}

// A page with a mistake is found, and one that leaves out what the reader has is not.
func TestMistakesOfAPageAreFound(t *testing.T) {
	imports := newImporter(t)
	for code, want := range map[string]string{
		"guard, err := idempotency.New(yours, tenant, idempotency.WithTTL(time.Hour))": "",
		"func f() {\n\t…\n}": "",
		"idempotency.WithTTL(time.Hour),\nidempotency.WithWait(0),": "",
		"return yours":                   "",
		"idempotency.WithEverything()":   "undefined: idempotency.WithEverything",
		"idempotency.WithTTL(\"a day\")": "cannot use",
		"store := idempotency.NewMemoryStore()\nif errors.Is(err, store.ErrFull) {\n}": "store.ErrFull undefined",
		"guard := idempotency.New(": "expected",
	} {
		got := mistakesOf(imports, code)
		if want == "" {
			require.Empty(t, got, code)
			continue
		}
		require.NotEmpty(t, got, code)
		require.ErrorContains(t, got[0], want, code)
	}
}

// mistakesOf compiles a block of code.
func mistakesOf(imports types.Importer, code string) (mistakes []error) {
	code = regexp.MustCompile(`(?m)^\s*…$|, …`).ReplaceAllString(code, "")
	files := token.NewFileSet()
	file, err := parse(files, code)
	if err != nil {
		return []error{err}
	}
	config := types.Config{Importer: imports, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) && !e.Soft && !leftOut.MatchString(e.Msg) {
			mistakes = append(mistakes, err)
		}
	}}
	_, _ = config.Check("page", files, []*ast.File{file}, nil)
	return mistakes
}

// leftOut are the errors about what a page leaves out: a name, a package, or the end of a function.
var leftOut = regexp.MustCompile(`^undefined: \w+$|^could not import|^missing return`)

// parse parses code that may be a file, declarations, statements or arguments, and imports what it uses.
func parse(files *token.FileSet, code string) (*ast.File, error) {
	if strings.HasPrefix(code, "package ") {
		return parser.ParseFile(files, "page", code, 0)
	}
	var header string
	if own := regexp.MustCompile(`(?s)^import \(.*?\n\)\n`).FindString(code); own != "" {
		header, code = own, strings.TrimPrefix(code, own)
	}
	var mistakes []error
	for _, form := range []string{"%s", "func _() any {\n%s\n}", "var _ = []any{\n%s\n}"} {
		source := fmt.Sprintf(form, code)
		file, err := parser.ParseFile(files, "page", "package page\n"+source, 0)
		if err == nil {
			return parser.ParseFile(files, "page", "package page\n"+header+importsOf(file)+source, 0)
		}
		mistakes = append(mistakes, err)
	}
	return nil, errors.Join(mistakes...)
}

// importsOf returns the imports of the packages that a file uses.
func importsOf(file *ast.File) string {
	used := make(map[string]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && ast.IsExported(s.Sel.Name) {
				used[x.Name] = imported[x.Name] != ""
			}
		}
		return true
	})
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if used[name] {
			fmt.Fprintf(&text, "import %s %q\n", name, imported[name])
		}
	}
	return text.String()
}
