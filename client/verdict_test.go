package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
	"example.com/idempotency/problem"
)

// This file compares the tables in docs/reference/client.md with what the client does.

// tableOf returns the cells of the table in docs/reference/client.md whose head begins with some text.
func tableOf(t *testing.T, head string) [][]string {
	t.Helper()
	doc := pagetest.File(t, "../docs/reference/client.md")
	_, table, ok := strings.Cut(string(doc), "\n| "+head+" |")
	require.True(t, ok, head)
	table, _, _ = strings.Cut(table, "\n\n")
	var rows [][]string
	for _, line := range strings.Split(table, "\n")[2:] {
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

// statusesOf returns the statuses that the first cells of a table stand for: "408", "2xx", "other
// 4xx", and with "and above" those that no class of HTTP has. Each status is in one row.
func statusesOf(t *testing.T, cells []string) map[int]int {
	t.Helper()
	rows := make(map[int]int)
	for _, others := range []bool{false, true} {
		for i, cell := range cells {
			rest, isOther := strings.CutPrefix(cell, "other ")
			if isOther != others {
				continue
			}
			for word := range strings.SplitSeq(strings.TrimSuffix(rest, " and above"), ", ") {
				from, to := 0, 0
				if class, ok := strings.CutSuffix(word, "xx"); ok {
					n, err := strconv.Atoi(class)
					require.NoError(t, err, cell)
					from, to = 100*n, 100*n+99
				} else {
					n, err := strconv.Atoi(word)
					require.NoError(t, err, cell)
					from, to = n, n
				}
				if strings.HasSuffix(cell, " and above") {
					to = 999
				}
				for status := from; status <= to; status++ {
					if _, taken := rows[status]; taken {
						require.True(t, isOther, "%d is in two rows", status)
						continue
					}
					rows[status] = i
				}
			}
		}
	}
	return rows
}

func rulingOf(t *testing.T, resp *http.Response, server profile.Server, key string, declared, doubt bool) string {
	t.Helper()
	got, err := client.Ruling(resp, server, key, declared, doubt)
	require.NoError(t, err)
	return got
}

// Each status is what the second table says, whatever is known of earlier attempts and of the one
// who answers, and with the hints that the third table has.
func TestTableOfStatuses(t *testing.T) {
	table := tableOf(t, "status")
	var firsts []string
	for _, cells := range table {
		firsts = append(firsts, cells[0])
	}
	rows := statusesOf(t, firsts)
	hints := make(map[string][]string)
	for _, cells := range tableOf(t, "by its status") {
		hints[cells[0]] = cells
	}
	server := profile.Guard()
	server.RetryHint = "X-Retry"
	for status := 0; status <= 999; status++ {
		i, ok := rows[status]
		require.True(t, ok, "%d has no row", status)
		for column, known := range []struct{ doubt, declared, repeats bool }{
			{}, {true, true, true}, {true, false, true}, {true, true, false},
		} {
			want := table[i][1+column]
			resp := &http.Response{StatusCode: status, Header: make(http.Header)}
			if known.repeats {
				resp.Header.Set(server.Echo, "k")
			}
			require.Equal(t, want, rulingOf(t, resp, server, "k", known.declared, known.doubt), "%d, %+v", status, known)
			for n, hint := range []string{"true", "false"} {
				resp.Header.Set(server.RetryHint, hint)
				hinted := want
				if status >= 300 {
					hinted = hints[want][1+n]
				}
				if first, doubt, ok := strings.Cut(hinted, "; in doubt: "); ok {
					hinted = strings.TrimPrefix(first, "first: ")
					if known.doubt {
						hinted = doubt
					}
				}
				require.Equal(t, hinted, rulingOf(t, resp, server, "k", known.declared, known.doubt), "%d, %+v, hint %s", status, known, hint)
			}
		}
		// Who has not been doubted need not say who he is, and without a key there is nothing to wait for.
		for _, known := range []struct{ declared, repeats bool }{{true, true}, {true, false}, {false, true}} {
			resp := &http.Response{StatusCode: status, Header: make(http.Header)}
			if known.repeats {
				resp.Header.Set(server.Echo, "k")
			}
			want := table[i][1]
			if (status == http.StatusRequestTimeout || status == 499) && known.declared && known.repeats {
				want = "ask" // as the row says
			}
			require.Equal(t, want, rulingOf(t, resp, server, "k", known.declared, false), "%d, %+v", status, known)
		}
		keyless := rulingOf(t, &http.Response{StatusCode: status}, server, "", true, false)
		require.Equal(t, strings.Replace(table[i][1], "wait", "ask", 1), keyless, "%d without a key", status)
	}
}

// Each code of a guard is what the first table says, in the field and in the document, with any
// status that there is.
func TestTableOfCodes(t *testing.T) {
	rows := make(map[problem.Code][]string)
	for _, cells := range tableOf(t, "the answer says") {
		for _, code := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cells[0], -1) {
			require.Empty(t, rows[problem.Code(code[1])], "%s is in two rows", code[1])
			rows[problem.Code(code[1])] = cells
		}
	}
	require.ElementsMatch(t, problem.Codes(), slices.Collect(maps.Keys(rows)))
	for code, cells := range rows {
		for _, doubt := range []bool{false, true} {
			want := cells[1]
			if doubt {
				want = cells[2]
			}
			for _, status := range []int{400, 408, 409, 418, 425, 429, 500, 501, 503} {
				inField := &http.Response{StatusCode: status, Header: http.Header{problem.Header: {string(code)}}}
				require.Equal(t, want, rulingOf(t, inField, profile.Guard(), "k", true, doubt), "%s, %d", code, status)
				inBody := refused(status, string(code)).response(nil) //nolint:bodyclose // in memory
				require.Equal(t, want, rulingOf(t, inBody, profile.Guard(), "k", true, doubt), "%s, %d", code, status)
			}
		}
	}
}

// The rows of the first table that have no code.
func TestAnswersThatSayWithoutACode(t *testing.T) {
	after := func(header, body string) answer {
		a := answer{status: 409, header: map[string]string{"Retry-After": "1"}, body: body}
		if header != "" {
			a.header["Content-Type"] = header
		}
		return a
	}
	const problemType = "application/problem+json"
	for row, answers := range map[string][]answer{
		"`Idempotent-Replayed: true`": {
			replayed(answer{status: 201}), replayed(answer{status: 409}), replayed(answer{status: 429}), replayed(answer{status: 500}),
			replayed(answer{status: 401}), replayed(answer{status: 307}), replayed(refused(503, "store-unavailable")),
		},
		"409 with `Retry-After`, without a code": {after("", ""), after(problemType, `{`), after(problemType, `{"title":"wait"}`), after(problemType, `"wait"`)},
	} {
		table := tableOf(t, "the answer says")
		i := slices.IndexFunc(table, func(cells []string) bool { return cells[0] == row })
		require.GreaterOrEqual(t, i, 0, row)
		for _, a := range answers {
			for column, doubt := range []bool{false, true} {
				require.Equal(t, table[i][1+column], rulingOf(t, a.response(nil), profile.Guard(), "k", true, doubt), "%s: %d %s", row, a.status, a.body) //nolint:bodyclose // in memory
			}
			require.Equal(t, "answer", rulingOf(t, a.response(nil), profile.Guard(), "", true, false), "without a key") //nolint:bodyclose // in memory
		}
	}
	// A code that nobody knows is a conflict of the business.
	require.Equal(t, "answer", rulingOf(t, refused(409, "sold-out", "Retry-After", "1").response(nil), profile.Guard(), "k", true, false)) //nolint:bodyclose // in memory
	// A document is one also where a member has another type.
	a := answer{status: 409, header: map[string]string{"Content-Type": problemType}, body: `{"status":"409","code":"in-flight"}`}
	require.Equal(t, "wait", rulingOf(t, a.response(nil), profile.Guard(), "k", true, false)) //nolint:bodyclose // in memory
	// A profile's own function may be wrong.
	for _, m := range []profile.Meaning{-1, profile.Unanswered + 1} {
		own := profile.Server{Classify: func(*http.Response, []byte) profile.Meaning { return m }}
		require.Equal(t, "answer", rulingOf(t, answer{status: 404}.response(nil), own, "k", true, false)) //nolint:bodyclose // in memory
	}
}

func replayed(a answer) answer {
	header := map[string]string{"Idempotent-Replayed": "true"}
	maps.Copy(header, a.header)
	a.header = header
	return a
}

// The page shows lines of the example that compiles.
func TestPageShowsTheExample(t *testing.T) {
	page := pagetest.File(t, "../docs/reference/client.md")
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, snippet, ok := strings.Cut(string(page), "```go\ntransport, err")
	require.True(t, ok)
	snippet, _, ok = strings.Cut("transport, err"+snippet, "```")
	require.True(t, ok)
	for line := range strings.SplitSeq(strings.TrimSpace(snippet), "\n") {
		require.Contains(t, string(example), "\t"+line+"\n")
	}
}

// errorRows are the errors that the rows of the table in docs/reference/client.md stand for.
var errorRows = map[string][]answer{
	"no connection (dial, DNS, proxy)": {
		{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}},
		{err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}},
		{err: &url.Error{Op: "Post", Err: &net.OpError{Op: "proxyconnect", Err: syscall.ECONNREFUSED}}},
	},
	"circuit breaker refuses": {{err: breakerError()}},
	"certificate, not TLS, malformed URL": {
		{err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}},
		{err: fmt.Errorf("tls: %w", x509.HostnameError{})},
		{err: x509.CertificateInvalidError{}},
		{err: x509.UnknownAuthorityError{}},
		{err: tls.RecordHeaderError{}},
		{err: http.ErrSchemeMismatch},
		{err: parseError("http://a b/")},
		{err: parseError("http://%zz/")},
	},
	"any other error (reset, EOF, no answer in time)": {
		{err: io.EOF},
		{err: io.ErrUnexpectedEOF},
		{err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}},
		{err: &net.OpError{Op: "write", Err: syscall.EPIPE}},
		{err: os.ErrDeadlineExceeded},
		{err: errors.New("?")},
		{status: 409, header: map[string]string{"Content-Type": "application/problem+json"}, chunks: true, body: cut},
	},
	"context cancelled or its deadline exceeded": {{err: context.Canceled}, {err: &url.Error{Op: "Post", Err: context.DeadlineExceeded}}},
}

// cut is a body that breaks off.
const cut = "cut"

func parseError(raw string) error {
	_, err := url.Parse(raw)
	return err
}

// breakerError is the error that a breaker that refuses makes of an attempt.
func breakerError() error {
	transport, err := client.New(nil, client.WithBreaker(&breaker{refuse: true}))
	if err != nil {
		panic(err)
	}
	_, err = send(transport, request(context.Background(), http.MethodGet, place, http.NoBody))
	return err
}

func TestTableOfErrors(t *testing.T) {
	seen := make(map[string]bool)
	for _, cells := range tableOf(t, "error of the attempt") {
		row, verdict := cells[0], cells[1]
		require.Contains(t, errorRows, row, "a row that no test knows")
		seen[row] = true
		for _, a := range errorRows[row] {
			if a.err != nil {
				require.Equal(t, verdict, client.Classify(nil, a.err).String(), "%s: %v", row, a.err)
				continue
			}
			resp := a.response(nil) //nolint:bodyclose // in memory
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), brokenReader{}))
			require.Equal(t, verdict, client.Classify(resp, nil).String(), "%s: %d %s", row, a.status, a.body)
		}
	}
	for row := range errorRows {
		require.True(t, seen[row], "the table has no row %q", row)
	}
	require.Equal(t, client.InDoubt, client.Classify(nil, nil))
	require.Equal(t, "none", client.Verdict(0).String())
}

// The verdict of Classify is the ruling on the first answer, and the body can be read afterwards.
func TestClassifyIsTheFirstColumn(t *testing.T) {
	for _, c := range []struct {
		answer answer
		want   client.Verdict
	}{
		{answer{status: 201, body: "done"}, client.Settled},
		{answer{status: 401}, client.Settled},
		{answer{status: 408}, client.InDoubt},
		{answer{status: 499}, client.InDoubt},
		{answer{status: 429}, client.Retry},
		{answer{status: 501}, client.Settled},
		{answer{status: 502, body: "<html>"}, client.InDoubt},
		{refused(409, "in-flight"), client.InDoubt},
		{refused(503, "store-unavailable"), client.Retry},
		{refused(409, "key-reused"), client.Settled},
		{replayed(refused(503, "store-unavailable")), client.Settled},
	} {
		resp := c.answer.response(nil)
		require.Equal(t, c.want, client.Classify(resp, nil), "%d %s", c.answer.status, c.answer.body)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, c.answer.body, string(body))
		require.NoError(t, resp.Body.Close())
	}
}

// Every code of a guard means something to the client. An invitation to retry is accepted.
func TestEveryCodeHasAMeaning(t *testing.T) {
	guard := profile.Guard()
	for _, code := range problem.Codes() {
		resp := &http.Response{StatusCode: problem.New(code).Status, Header: http.Header{problem.Header: {string(code)}}}
		require.NotEqual(t, profile.Silent, guard.Meaning(resp, nil), code)
		verdict := client.Classify(resp, nil)
		if code.Retryable() {
			require.NotEqual(t, client.Settled, verdict, code)
		}
		if verdict == client.Retry {
			require.Regexp(t, "was not run|has done nothing|was undone", problem.New(code).Detail, code)
		}
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A problem document is read within bounds, and what is behind them is still there.
func TestClassifyReadsALargeDocumentWithinBounds(t *testing.T) {
	large := refused(409, "in-flight")
	large.body = strings.TrimSuffix(large.body, "}") + `,"detail":"` + strings.Repeat("x", 1<<20) + `"}`
	resp := large.response(nil)
	count := &countedBody{Reader: resp.Body}
	resp.Body = count
	require.Equal(t, client.Settled, client.Classify(resp, nil), "a document that is too large is none")
	require.False(t, count.drained.Load())
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, large.body, string(body))
	require.NoError(t, resp.Body.Close())
	require.True(t, count.closed.Load())
}

// The errors of a Transport are judged like any other, also by a Transport above it.
func TestClassifyKnowsTheErrorsOfTheTransport(t *testing.T) {
	open := &breaker{}
	for name, c := range map[string]struct {
		base *script
		opts []client.Option
		key  string
		want client.Verdict
	}{
		"key reused":       {base: answering(refused(409, "key-reused")), want: client.Settled},
		"held":             {base: answering(refused(409, "outcome-unknown")), want: client.Settled},
		"answer lost":      {base: answering(refused(409, "response-not-kept")), want: client.Settled},
		"key invalid":      {base: answering(answer{status: 200}), key: "a,b", want: client.Settled},
		"body too large":   {base: answering(answer{status: 200}), opts: []client.Option{client.WithMaxBody(1)}, want: client.Settled},
		"outcome unknown":  {base: answering(answer{err: errReset}), want: client.InDoubt},
		"breaker, unknown": {base: answering(answer{do: func(*http.Request) (*http.Response, error) { open.refuse = true; return nil, errReset }}), opts: []client.Option{client.WithBreaker(open)}, want: client.InDoubt},
		"breaker":          {base: answering(answer{status: 200}), opts: []client.Option{client.WithBreaker(&breaker{refuse: true})}, want: client.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if c.key != "" {
				ctx = client.WithKey(ctx, c.key)
			}
			below := newTransport(t, c.base, append(c.opts, quick)...)
			_, err := send(below, request(ctx, http.MethodPost, place, once("{}")))
			require.Error(t, err)
			require.Equal(t, c.want, client.Classify(nil, err), "%v", err)
			require.Equal(t, c.want, client.Classify(nil, &url.Error{Op: "Post", Err: err}))

			open.refuse = false
			_, above := send(newTransport(t, below, quick, client.WithAttempts(1)), request(ctx, http.MethodPost, place, once("{}")))
			require.Equal(t, errors.Is(err, client.ErrOutcomeUnknown), errors.Is(above, client.ErrOutcomeUnknown), "%v", above)
		})
	}
}
