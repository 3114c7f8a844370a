package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/cmd/idem/internal/conform/report"
	"example.com/idempotency/cmd/idem/internal/conform/wrongserver"
	"example.com/idempotency/internal/inspect"
)

// Reports are printed in all forms, alone and beside each other.
func TestConformOutputs(t *testing.T) {
	t.Parallel()
	const one, other = "testdata/conform.json", "testdata/conform-other.json"
	for _, format := range report.Formats() {
		got := call(t, "conform", "--from", one, "--from", other, "-o", format).exits(t, inspect.ExitError)
		require.Contains(t, got.err, "1 MUST of profile ietf-07 fail")
		if format == "json" {
			text := pagetest.File(t, one)
			more, err := os.ReadFile(other)
			require.NoError(t, err)
			require.JSONEq(t, string(text), strings.SplitAfter(got.out, "\n")[0])
			require.JSONEq(t, string(more), strings.SplitAfter(got.out, "\n")[1])
			continue
		}
		requireGolden(t, "conform."+format, got.out)
	}
}

// conformTo calls the program on a server as fast as that goes.
func conformTo(t *testing.T, url string, args ...string) result {
	t.Helper()
	return call(t, append([]string{
		"conform", url, "--rate", "100000", "--patience", "300ms", "--late", "50ms",
		"--header", "Authorization: Bearer alice", "--header", "Content-Type: application/json", "--body", `{"amount":{{unique}}}`,
	}, args...)...)
}

func TestConformExitCodes(t *testing.T) {
	t.Parallel()
	serve := func(defect string) string {
		server := httptest.NewServer(wrongserver.New(defect, time.Hour, 0))
		t.Cleanup(server.Close)
		return server.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	right, file := serve(""), filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(file, []byte(`{"amount":{{unique}}}`), 0o600))
	for name, c := range map[string]struct {
		code int
		says string
		got  result
	}{
		"right":               {inspect.ExitOK, "", conformTo(t, right+"/charges", "--profile", "ours", "--effects", right+"/count", "--pointer", "/effects")},
		"body of a file":      {inspect.ExitOK, "", conformTo(t, right+"/charges", "--profile", "ours", "--body-file", file, "--id", "/id")},
		"a MUST fails":        {inspect.ExitError, "MUST of profile ours fail", conformTo(t, serve("retry-runs")+"/charges", "--profile", "ours")},
		"a SHOULD fails":      {inspect.ExitOK, "", conformTo(t, serve("no-link")+"/charges", "--profile", "ours")},
		"no such route":       {inspect.ExitError, "nothing could be tried", conformTo(t, right+"/nowhere")},
		"restart fails":       {inspect.ExitOK, "", conformTo(t, right+"/charges", "--profile", "ours", "--restart-cmd", "exit 1")},
		"nobody there":        {inspect.ExitUnreachable, "connect", conformTo(t, gone.URL)},
		"no profile":          {inspect.ExitUsage, "must be one of ietf-07, stripe, ours, published", conformTo(t, right, "--profile", "best")},
		"no URL":              {inspect.ExitUsage, "is not like http", conformTo(t, "charges")},
		"nothing":             {inspect.ExitUsage, "either the URL", call(t, "conform")},
		"no report":           {inspect.ExitUsage, "is no report", call(t, "conform", "--from", "testdata/held.json")},
		"no file":             {inspect.ExitUsage, "no such file", call(t, "conform", "--from", "testdata/nowhere.json")},
		"a bad header":        {inspect.ExitUsage, "must be like", conformTo(t, right, "--header", "Tenant")},
		"a bad credential":    {inspect.ExitUsage, "must be like", conformTo(t, right, "--credential", "Tenant")},
		"no format":           {inspect.ExitUsage, "must be one of html, json", conformTo(t, right, "-o", "yaml")},
		"two ways of effects": {inspect.ExitUsage, "not by several", conformTo(t, right, "--id", "/id", "--effects", right+"/count")},
		"no pointer":          {inspect.ExitUsage, "no JSON pointer", conformTo(t, right, "--id", "id")},
		"alone at once":       {inspect.ExitUsage, "at least 2", conformTo(t, right, "--at-once", "1")},
		"no rate":             {inspect.ExitUsage, "must be positive", conformTo(t, right, "--rate", "0")},
		"no policy":           {inspect.ExitUsage, "no published policy", conformTo(t, serve("no-link")+"/charges", "--profile", "published")},
	} {
		require.Equal(t, c.code, c.got.code, "%s: %s %s", name, c.got.out, c.got.err)
		require.Contains(t, c.got.err, c.says, name)
	}
}
