package observability_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// This file asks promtool what each alert and each query of the dashboard says of a live service, in each of its states.

var write = flag.Bool("write", false, "write testdata/states.txt")

// A query is one of a panel.
type query struct{ name, expr string }

// queries are those of the dashboard, as promtool reads them, in their order.
func queries(t *testing.T) (all []query) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "otelidempotency/grafana/dashboard.json")), &board))
	for _, p := range board.Panels {
		for i, target := range p.Targets {
			name := p.Title
			if len(p.Targets) > 1 {
				name = fmt.Sprintf("%s [%d]", p.Title, i+1)
			}
			expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "15m", "$job", ".*", "$route", ".*").Replace(target.Expr)
			all = append(all, query{name, expr})
		}
	}
	return all
}

// alerts are the names of the rules, in their order.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`alert: (\w+)\n`).FindAllStringSubmatch(read(t, "otelidempotency/prometheus/rules.yml"), -1) {
		names = append(names, found[1])
	}
	return names
}

// promtool returns where it is, or skips the test: scripts/promtool.sh fetches it.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	path := filepath.Join(cache, "idempotency-tools/promtool/promtool")
	if _, err := os.Stat(path); err != nil {
		t.Skip("promtool is not installed: scripts/promtool.sh fetches it")
	}
	return path
}

// ask lets promtool evaluate expressions at the end of the state. It has no command for that, but tells what it got where it
// was to find something else.
func ask(t *testing.T, samples map[string]map[int]float64, exprs []string) (values []float64) {
	t.Helper()
	var text strings.Builder
	rules, err := filepath.Abs("../../otelidempotency/prometheus/rules.yml")
	require.NoError(t, err)
	fmt.Fprintf(&text, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n", rules)
	for _, series := range slices.Sorted(maps.Keys(samples)) {
		fmt.Fprintf(&text, "  - series: %q\n    values: \"", series)
		for minute := range calm + state {
			if value, ok := samples[series][minute]; ok {
				fmt.Fprintf(&text, "%v ", value)
			} else {
				text.WriteString("stale ")
			}
		}
		text.WriteString("\"\n")
	}
	text.WriteString("  promql_expr_test:\n")
	for _, expr := range exprs {
		fmt.Fprintf(&text, "  - expr: %q\n    eval_time: %dm\n    exp_samples: [{labels: '{}', value: -1}]\n", expr, calm+state-1)
	}
	file := filepath.Join(t.TempDir(), "state.yml")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	out, err := exec.CommandContext(t.Context(), promtool(t), "test", "rules", file).CombinedOutput()
	require.Error(t, err)
	for _, got := range regexp.MustCompile(`(?m)^ *got: \{\} (\S+)$`).FindAllSubmatch(out, -1) {
		value, err := strconv.ParseFloat(string(got[1]), 64)
		require.NoError(t, err)
		values = append(values, value)
	}
	require.Len(t, values, len(exprs), "%s", out)
	return values
}

// What stands in testdata/states.txt.
const (
	missing  = '-' // a query gives nothing, or no number
	zero     = '0'
	positive = '+'
	silent   = '.' // an alert
	firing   = '!'
)

// column tells what each alert and each query says of a state: whether an alert has fired, and what a query gives at the end.
func column(t *testing.T, samples map[string]map[int]float64) (said []rune) {
	t.Helper()
	var exprs []string
	names := alerts(t)
	for _, alert := range names {
		exprs = append(exprs, fmt.Sprintf(`count(count_over_time(ALERTS{alertname=%q,alertstate="firing"}[%dm])) or vector(0)`, alert, state))
	}
	for _, q := range queries(t) {
		exprs = append(exprs, fmt.Sprintf(`clamp_max(count((%s) >= -Inf) or vector(0), 1) + clamp_max(count((%[1]s) > 0) or vector(0), 1)`, q.expr))
	}
	for i, value := range ask(t, samples, exprs) {
		if i < len(names) {
			said = append(said, []rune{silent, firing}[min(1, int(value))])
		} else {
			said = append(said, []rune{missing, zero, positive}[int(value)])
		}
	}
	return said
}
