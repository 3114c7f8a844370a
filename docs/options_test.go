package docs_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"
)

var write = flag.Bool("write", false, "write the pages that are made from the code")

const optionsPage = "reference/options.md"

// A question is what a reader asks, and the options that answer it, with the page that says more.
type question struct {
	dir, asks string
	options   map[string]string
}

// questions has every option of the packages that it names. Pages are named below docs.
var questions = []question{
	{".", "Which requests are protected?", map[string]string{
		"WithMethods": "reference/answers.md", "WithRequired": "reference/answers.md", "WithHeader": "reference/keys.md",
		"WithStrictKeys": "reference/keys.md", "WithKeyFunc": "reference/keys.md",
	}},
	{".", "Which request is the same one?", map[string]string{
		"WithFingerprint": "how-to/rotating.md", "WithRebinding": "reference/answers.md", "WithMismatchStatus": "reference/answers.md",
	}},
	{".", "Which answers count, and what follows the others?", map[string]string{
		"WithOutcome": "reference/answers.md", "WithSilence": "how-to/frameworks.md", "WithRecovery": "how-to/steps.md",
		"WithResolver": "how-to/held-keys.md", "WithTransaction": "reference/transactions.md",
	}},
	{".", "How long does it last?", map[string]string{
		"WithTTL": "how-to/choosing.md", "WithLease": "how-to/choosing.md", "WithRetention": "how-to/choosing.md",
		"WithWait": "reference/answers.md", "WithExpiryHeader": "reference/answers.md", "WithClientCancel": "reference/answers.md",
	}},
	{".", "What is stored?", map[string]string{
		"WithUnrecorded": "reference/answers.md", "WithLimits": "explanation/security.md", "WithSealer": "explanation/security.md",
		"WithKeptKeys": "how-to/held-keys.md", "WithDerivation": "how-to/steps.md", "WithTombstones": "how-to/held-keys.md",
	}},
	{".", "What is a record found by?", map[string]string{
		"WithReference": "how-to/finding.md", "WithFindableScope": "how-to/finding.md",
	}},
	{".", "What do clients see?", map[string]string{
		"WithAuthorizeReplay": "explanation/security.md", "WithErrorWriter": "reference/answers.md", "WithPolicyURL": "how-to/policy.md",
		"WithFailOpen": "explanation/guarantees.md",
	}},
	{".", "Who is told?", map[string]string{
		"WithRoute": "reference/events.md", "WithObserver": "reference/events.md", "WithLogger": "reference/events.md", "WithShadow": "how-to/migrating.md",
	}},
	{"adapter", "Who is told, for authors of adapters?", map[string]string{"WithTraceContext": "reference/events.md", "WithStoreCalls": "reference/events.md"}},
	{".", "Steps and `Do`", map[string]string{
		"AtMostOnce": "how-to/steps.md", "WithPayload": "how-to/messages.md", "ForReference": "how-to/finding.md", "WithCodec": "how-to/messages.md",
	}},
	{".", "The store in memory", map[string]string{"WithMaxEntries": "how-to/choosing.md", "WithMaxBytes": "how-to/choosing.md"}},
	{".", "The store in Redis", map[string]string{"WithPrefix": "how-to/redis.md", "WithReplicas": "explanation/durability.md"}},
	{"stores/pgstore", "The store in PostgreSQL", map[string]string{
		"WithTable": "reference/postgres.md", "WithConns": "reference/postgres.md", "WithPoolConfig": "how-to/postgres-operations.md",
		"WithAsyncClaims": "reference/postgres.md", "WithOneCommit": "reference/postgres.md", "WithoutListen": "how-to/postgres-operations.md",
	}},
	{"stores/sqlitestore", "The store in SQLite", map[string]string{
		"WithOneCommit": "reference/sqlite.md", "WithPowerLossSafety": "reference/sqlite.md",
	}},
	{"client", "The client", map[string]string{
		"WithMethods": "reference/client.md", "WithServer": "reference/profiles.md", "WithStrictKeys": "reference/client.md",
		"WithMaxBody": "reference/client.md", "WithAttempts": "reference/client.md", "WithAttemptTimeout": "reference/client.md",
		"WithTimeout": "reference/client.md", "WithBackoff": "reference/client.md", "WithRetryBudget": "reference/client.md",
		"WithBreaker": "reference/client.md", "WithTTL": "reference/client.md", "WithObserver": "reference/client.md", "WithLogger": "reference/client.md",
	}},
	{"client/journal", "The journal of a client", map[string]string{"WithRetention": "reference/client.md"}},
	{"webhook", "Verifying webhooks", map[string]string{
		"WithTolerance": "how-to/webhooks.md", "WithClock": "how-to/webhooks.md", "WithMaxBody": "how-to/webhooks.md", "WithURL": "how-to/webhooks.md",
	}},
	{"otelidempotency", "Metrics and traces", map[string]string{
		"WithStore": "reference/events.md", "WithCensus": "reference/events.md", "WithRoutes": "reference/events.md", "WithMeterProvider": "reference/events.md",
		"WithTracerProvider": "reference/events.md", "WithScopes": "reference/events.md",
	}},
	{"adapters/connectidempotency", "connect-go", map[string]string{
		"WithProcedure": "how-to/frameworks.md", "WithOutcome": "how-to/frameworks.md", "WithStreams": "how-to/frameworks.md",
	}},
	{"adapters/grpcidempotency", "grpc-go", map[string]string{
		"WithProcedure": "how-to/frameworks.md", "WithOutcome": "how-to/frameworks.md", "WithStreams": "how-to/frameworks.md",
	}},
}

// The page of options has every option, as its doc comment explains it.
func TestOptionsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Options\n\nFor those who configure a guard, a store or a client. At the end, you know which option answers your question, " +
		"and what holds without it. `go test ./docs -run Options -write` writes this page from the doc comments.\n")
	declared := make(map[string]map[string]option)
	for _, q := range questions {
		if declared[q.dir] == nil {
			declared[q.dir] = optionsOf(t, q.dir)
		}
		fmt.Fprintf(&b, "\n## %s\n\n", q.asks)
		if q.dir != "." {
			fmt.Fprintf(&b, "Package `%s`.\n\n", q.dir)
		}
		b.WriteString("| option | what it does | default | page |\n|---|---|---|---|\n")
		names := make([]string, 0, len(q.options))
		for name := range q.options {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			o, ok := declared[q.dir][name]
			require.True(t, ok, "%s: there is no option %s", q.dir, name)
			delete(declared[q.dir], name)
			page, err := filepath.Rel(filepath.Dir(optionsPage), q.options[name])
			require.NoError(t, err)
			fmt.Fprintf(&b, "| `%s` | %s | %s | [%s](%s) |\n", name, o.does, o.without, title(t, q.options[name]), filepath.ToSlash(page))
		}
	}
	for dir, left := range declared {
		require.Empty(t, left, "options of %s that no question has", dir)
	}
	if *write {
		require.NoError(t, os.WriteFile(optionsPage, []byte(b.String()), 0o600))
	}
	got := pagetest.File(t, optionsPage)
	if b.String() != string(got) {
		t.Error("docs/reference/options.md is not up to date: go test ./docs -run Options -write")
	}
}

// An option is what its doc comment says: what it does, and what holds without it.
type option struct{ does, without string }

// optionsOf returns the functions of a package that return an option.
func optionsOf(t *testing.T, dir string) map[string]option {
	t.Helper()
	pkg := packageDoc(t, dir)
	functions := pkg.Funcs
	for _, typ := range pkg.Types {
		functions = append(functions, typ.Funcs...)
	}
	options := make(map[string]option)
	for _, f := range functions {
		results := f.Decl.Type.Results
		if results == nil || len(results.List) != 1 || !strings.HasSuffix(typeName(results.List[0].Type), "Option") {
			continue
		}
		sentences := sentencesOf(string(pkg.Text(f.Doc)))
		require.NotEmpty(t, sentences, "%s has no doc comment", f.Name)
		o := option{does: strings.TrimPrefix(sentences[0], f.Name+" ")}
		for _, s := range sentences {
			if strings.Contains(s, "efault") {
				o.without = strings.TrimPrefix(strings.TrimPrefix(s, "The default is "), "The defaults are ")
				break
			}
		}
		options[f.Name] = o
	}
	return options
}

// packageDoc returns the documentation of a package.
func packageDoc(t *testing.T, dir string) *doc.Package {
	t.Helper()
	files := token.NewFileSet()
	var syntax []*ast.File
	entries, err := fs.ReadDir(os.DirFS(root), dir)
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			file, err := parser.ParseFile(files, filepath.Join(root, dir, e.Name()), nil, parser.ParseComments)
			require.NoError(t, err)
			syntax = append(syntax, file)
		}
	}
	pkg, err := doc.NewFromFiles(files, syntax, dir)
	require.NoError(t, err)
	return pkg
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// sentencesOf returns the sentences of a doc comment, each in one line that a table can hold.
func sentencesOf(text string) (sentences []string) {
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
	for text != "" {
		sentence, rest, _ := strings.Cut(text, ". ")
		sentences = append(sentences, strings.TrimSuffix(sentence, "."))
		text = rest
	}
	return sentences
}

// title returns the title of a page.
func title(t *testing.T, page string) string {
	t.Helper()
	return strings.TrimSpace(strings.TrimPrefix(strings.SplitN(read(t, "docs/"+page), "\n", 2)[0], "# "))
}
