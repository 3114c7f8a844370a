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
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
	"example.com/idempotency/problem"
)

// rows are the results that the rows of the decision table in docs/client.md stand for.
var rows = map[string][]answer{
	"1xx, 2xx, 3xx": {{status: 101}, {status: 200}, {status: 201}, {status: 204}, {status: 302}, {status: 307}},
	"any status with `Idempotent-Replayed: true`": {
		replayed(answer{status: 201}), replayed(answer{status: 500}), replayed(answer{status: 429}),
		replayed(answer{status: 409}), replayed(refused(503, "store-unavailable")),
	},
	"408, 425, 429": {{status: 408}, {status: 425}, {status: 429}, refused(429, "slow-down")},
	"409 `in-flight`": {
		refused(409, "in-flight"), refused(409, "in-flight", "Retry-After", "1"),
		{status: 409, header: map[string]string{"Content-Type": "application/problem+json"}, body: `{"status":"409","code":"in-flight"}`},
	},
	"409 with `Retry-After`, without a code": {
		{status: 409, header: map[string]string{"Retry-After": "1"}},
		{status: 409, header: map[string]string{"Retry-After": "1", "Content-Type": "application/problem+json"}, body: `{`},
		{status: 409, header: map[string]string{"Retry-After": "1", "Content-Type": "application/problem+json"}, body: `{"title":"wait"}`},
		{status: 409, header: map[string]string{"Retry-After": "1", "Content-Type": "application/problem+json"}, body: `"wait"`},
	},
	"409 without either, or with a code of its own":         {{status: 409}, refused(409, ""), refused(409, "sold-out"), refused(409, "sold-out", "Retry-After", "1")},
	"`key-reused`, with any status":                         {refused(409, "key-reused"), refused(422, "key-reused"), refused(400, "key-reused"), refused(408, "key-reused")},
	"409 `outcome-unknown`":                                 {refused(409, "outcome-unknown")},
	"409 `response-not-kept`":                               {refused(409, "response-not-kept")},
	"500 `answer-unreadable`":                               {refused(500, "answer-unreadable")},
	"400 or 408 `body-unreadable`":                          {refused(400, "body-unreadable"), refused(408, "body-unreadable")},
	"other 4xx":                                             {{status: 400}, {status: 401}, {status: 402}, {status: 403}, {status: 404}, {status: 413}, {status: 422}, refused(403, "scope-unresolved")},
	"503 `store-unavailable`, `try-later`, `shutting-down`": {refused(503, "store-unavailable"), refused(503, "try-later"), refused(503, "shutting-down")},
	"503 `rolled-back`":                                     {refused(503, "rolled-back")},
	"500 `cannot-commit`":                                   {refused(500, "cannot-commit")},
	"`no-answer`, with any status":                          {refused(503, "no-answer"), refused(400, "no-answer")},
	"other 5xx, also 501 and 505":                           {{status: 500}, {status: 501}, {status: 505}, {status: 502}, {status: 503}, {status: 504}, {status: 520}, {status: 529}, refused(500, "bug")},
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

func replayed(a answer) answer {
	header := map[string]string{"Idempotent-Replayed": "true"}
	maps.Copy(header, a.header)
	a.header = header
	return a
}

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

func TestDecisionTableIsWhatClassifySays(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/client.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(doc), "| result of the attempt | verdict |")
	table, _, ok := strings.Cut(table, "\n\n")
	require.True(t, ok)
	seen := make(map[string]bool)
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		row, verdict := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		require.Contains(t, rows, row, "a row that no test knows")
		seen[row] = true
		for _, a := range rows[row] {
			if a.err != nil {
				require.Equal(t, verdict, client.Classify(nil, a.err).String(), "%s: %v", row, a.err)
				continue
			}
			resp := a.response(nil)
			if a.body == cut {
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), brokenReader{}))
			}
			require.Equal(t, verdict, client.Classify(resp, nil).String(), "%s: %d %s", row, a.status, a.body)
			if a.body == cut {
				continue
			}
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, a.body, string(body), "the body can be read after Classify")
			require.NoError(t, resp.Body.Close())
		}
	}
	for row := range rows {
		require.True(t, seen[row], "the table has no row %q", row)
	}
	require.Equal(t, client.InDoubt, client.Classify(nil, nil))
	require.Equal(t, "none", client.Verdict(0).String())
}

// Every code of a guard means something to the client, and has a row in a table of the page. An
// invitation to retry is accepted.
func TestEveryCodeHasAMeaning(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/client.md")
	require.NoError(t, err)
	guard := profile.Guard()
	for _, code := range problem.Codes() {
		resp := &http.Response{StatusCode: problem.New(code).Status, Header: http.Header{problem.Header: {string(code)}}}
		require.NotEqual(t, profile.Silent, guard.Meaning(resp, nil), code)
		require.Regexp(t, "(?m)^\\|.*`"+string(code)+"`", string(doc))
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
	t.Parallel()
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

// The client knows the codes of the server by their text; here they are compared.
func TestCodesAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	for code, want := range map[problem.Code]client.Verdict{
		problem.InFlight: client.InDoubt, problem.StoreUnavailable: client.Retry,
		problem.ShuttingDown: client.Retry, problem.BodyUnreadable: client.Retry,
		problem.KeyReused: client.Settled, problem.OutcomeUnknown: client.Settled,
		problem.ResponseNotKept: client.Settled, problem.AnswerUnreadable: client.Settled,
	} {
		// With a status that would mean the opposite by itself.
		status := http.StatusTooManyRequests
		if want == client.Retry || want == client.InDoubt {
			status = http.StatusTeapot
		}
		resp := refused(status, string(code)).response(nil)
		require.Equal(t, want, client.Classify(resp, nil), "%s", code)
		require.NoError(t, resp.Body.Close())
	}
}

// The errors of a Transport are judged like any other, also by a Transport above it.
func TestClassifyKnowsTheErrorsOfTheTransport(t *testing.T) {
	t.Parallel()
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
