package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
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
	t.Parallel()
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
}

// The verdict of Classify is the ruling on the first answer, and the body can be read afterwards.
func TestClassifyIsTheFirstColumn(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
