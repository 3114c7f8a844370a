package wiretest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

const chunked = "Transfer-Encoding: chunked\r\n"

// The server or the guard refuses a message whose end two readers could place differently,
// and a body that does not arrive as announced. Nothing runs, and nothing is claimed.
func TestWireRefusesBadBodies(t *testing.T) {
	type row struct {
		fields, body string
		status       int
		code         problem.Code // or else net/http refuses
	}
	guardtest.Each(t, map[string]row{
		"two lengths":               {"Content-Length: 5\r\nContent-Length: 6\r\n", "hello!", 400, ""},
		"a list of lengths":         {"Content-Length: 5, 5\r\n", "hello", 400, ""},
		"length with a sign":        {"Content-Length: +5\r\n", "hello", 400, ""},
		"negative length":           {"Content-Length: -5\r\n", "hello", 400, ""},
		"hexadecimal length":        {"Content-Length: 0x5\r\n", "hello", 400, ""},
		"empty length":              {"Content-Length:\r\n", "hello", 400, ""},
		"length over 63 bits":       {"Content-Length: 9223372036854775808\r\n", "hello", 400, ""},
		"length of 63 bits":         {"Content-Length: 9223372036854775807\r\n", "hello", 413, problem.BodyTooLarge},
		"length and other coding":   {"Content-Length: 5\r\nTransfer-Encoding: gzip\r\n", "hello", 501, ""},
		"unknown coding":            {"Transfer-Encoding: xchunked\r\n", "0\r\n\r\n", 501, ""},
		"two codings":               {"Transfer-Encoding: identity, chunked\r\n", "0\r\n\r\n", 501, ""},
		"chunked twice":             {chunked + chunked, "0\r\n\r\n", 501, ""},
		"coding with a control":     {"Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n", 400, ""},
		"chunk size overflows":      {chunked, "fffffffffffffffff\r\nhello\r\n0\r\n\r\n", 400, problem.BodyUnreadable},
		"chunk size of 63 bits":     {chunked, "7fffffffffffffff\r\nhello\r\n0\r\n\r\n", 400, problem.BodyUnreadable},
		"chunk size negative":       {chunked, "-1\r\nhello\r\n0\r\n\r\n", 400, problem.BodyUnreadable},
		"chunk size missing":        {chunked, "\r\nhello\r\n0\r\n\r\n", 400, problem.BodyUnreadable},
		"chunk longer than size":    {chunked, "5\r\nhelloXX\r\n0\r\n\r\n", 400, problem.BodyUnreadable},
		"chunks end in bare LF":     {chunked, "5\nhello\n0\n\n", 400, problem.BodyUnreadable},
		"huge chunk extension":      {chunked, "5;" + strings.Repeat("a", 1<<20) + "\r\nhello\r\n0\r\n\r\n", 400, problem.BodyUnreadable},
		"bad trailer":               {chunked, "5\r\nhello\r\n0\r\nno colon\r\n\r\n", 400, problem.BodyUnreadable},
		"huge trailer":              {chunked, "0\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 400, problem.BodyUnreadable},
		"declared, cut short":       {"Content-Length: 6\r\n", "hello", 400, problem.BodyUnreadable},
		"chunked, cut in a chunk":   {chunked, "6\r\nhello", 400, problem.BodyUnreadable},
		"chunked, cut after one":    {chunked, "5\r\nhello\r\n", 400, problem.BodyUnreadable},
		"chunked, cut at the end":   {chunked, "5\r\nhello\r\n0\r\n", 400, problem.BodyUnreadable},
		"chunked, over the limit":   {chunked, "fffff\r\n" + strings.Repeat("x", 0xfffff) + "\r\n2\r\nxx\r\n0\r\n\r\n", 413, problem.BodyTooLarge},
		"other expectation":         {"Expect: 200-ok\r\nContent-Length: 5\r\n", "hello", 417, ""},
		"many small chunks, no end": {chunked, strings.Repeat("1\r\nx\r\n", 1000), 400, problem.BodyUnreadable},
	}, func(t *testing.T, tt row) {
		w := serveWire(t, &guardtest.Counter{})
		conn := w.dial(t)
		go func() {
			conn.send(message("POST /charges", wireHost+wireKey+wireClose+tt.fields, tt.body))
			_ = conn.CloseWrite() // there is no more to come, and an answer is awaited
		}()
		got, ok := conn.receive(t)
		require.True(t, ok, "no answer")
		require.Equal(t, tt.status, got.Status, got.Body)
		require.Equal(t, tt.code, got.Problem.Code)
		_, more := conn.receive(t)
		require.False(t, more, "a second answer")
		w.requireUntouched(t)
	})
}

// If a message has both a length and chunks, net/http reads the chunks, as RFC 9112
// demands, and treats the rest as another request. A front server that used the length has
// been deceived; the record must not mix up the two requests.
func TestWireLengthAndChunksAreTwoRequests(t *testing.T) {
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%s ", r.URL.Path)
		_, _ = io.Copy(w, r.Body)
	}}
	w := serveWire(t, h)
	smuggled := message("POST /smuggled", wireHost+"Idempotency-Key: other\r\n"+wireEmpty+wireClose, "")
	hidden := message("POST /charges", wireHost+wireKey+fmt.Sprintf("Content-Length: %d\r\n", len("5\r\nhello\r\n0\r\n\r\n")+len(smuggled))+chunked,
		"5\r\nhello\r\n0\r\n\r\n"+smuggled)
	replies := w.ask(t, hidden)
	require.Len(t, replies, 2)
	require.Equal(t, "/charges hello", replies[0].Body)
	require.Equal(t, "/smuggled ", replies[1].Body)
	honest := w.ask(t, message("POST /charges", wireHost+wireKey+"Content-Length: 5\r\n"+wireClose, "hello"))
	require.Len(t, honest, 1)
	require.True(t, honest[0].Replayed(), "the same body, told in another way")
	require.Equal(t, "/charges hello", honest[0].Body)
	require.EqualValues(t, 2, h.Runs.Load())
}

// A body that drips in claims nothing, and a body that stops half-way is never run.
func TestWireBodyThatDrips(t *testing.T) {
	w := serveWire(t, &guardtest.Counter{})
	slow, broken := w.dial(t), w.dial(t)
	slow.send(message("POST /charges", wireHost+wireKey+"Content-Length: 8\r\n"+wireClose, ""))
	broken.send(message("POST /charges", wireHost+"Idempotency-Key: broken\r\n"+chunked+wireClose, ""))
	for i := range 4 {
		slow.send("x")
		broken.send("1\r\nx\r\n")
		// When the server has answered this, it has dealt with the drop too.
		w.ask(t, message("POST /charges", fmt.Sprintf("%sIdempotency-Key: %d\r\n%s%s", wireHost, i, wireEmpty, wireClose), ""))
		require.Equal(t, i+1, w.store.Len(), "what has not arrived is claimed")
		require.EqualValues(t, i+1, w.h.Runs.Load())
	}
	require.NoError(t, broken.SetLinger(0))
	require.NoError(t, broken.Close()) // a reset: nobody is left to be answered
	slow.send("yyyy")
	got, ok := slow.receive(t)
	require.True(t, ok)
	require.Equal(t, http.StatusCreated, got.Status)
	require.Equal(t, 5, w.store.Len())
	require.EqualValues(t, 5, w.h.Runs.Load())
}

// A body that is late for the server's read timeout is the client's timeout. Nothing has
// run, and the client may send the request again.
func TestWireBodyThatIsTooSlow(t *testing.T) {
	guardtest.Each(t, map[string]string{"declared": "Content-Length: 8\r\n", "chunked": chunked}, func(t *testing.T, fields string) {
		h := &guardtest.Counter{}
		w := serveWire(t, h)
		w.serve(t, &http.Server{
			Handler: w.guard.Handler(h), ReadHeaderTimeout: wirePatience, ReadTimeout: 50 * time.Millisecond,
		})
		conn := w.dial(t)
		conn.send(message("POST /charges", wireHost+wireKey+fields, "2\r\n"))
		got, ok := conn.receive(t)
		require.True(t, ok)
		guardtest.RequireProblem(t, got, http.StatusRequestTimeout, problem.BodyUnreadable)
		require.Zero(t, h.Runs.Load())
		require.Zero(t, w.store.Len())
	})
}

// A client that asks before it sends its body is told to send it only if the server wants
// it.
func TestWireExpectContinue(t *testing.T) {
	const expect = "Expect: 100-continue\r\n"
	type row struct {
		fields string
		status int
	}
	guardtest.Each(t, map[string]row{
		"too large":   {wireKey + "Content-Length: 1048577\r\n", http.StatusRequestEntityTooLarge},
		"invalid key": {"Idempotency-Key: a,b\r\nContent-Length: 5\r\n", http.StatusBadRequest},
		"no key":      {"Content-Length: 5\r\n", http.StatusBadRequest},
		"no scope":    {wireKey + "X-Tenant: unknown\r\nContent-Length: 5\r\n", http.StatusForbidden},
	}, func(t *testing.T, tt row) {
		w := serveWire(t, &guardtest.Counter{})
		conn := w.dial(t)
		conn.send(message("POST /charges", wireHost+expect+tt.fields, ""))
		got, ok := conn.receive(t)
		require.True(t, ok)
		require.Equal(t, tt.status, got.Status, "100 asks for a body that is refused already")
		require.Equal(t, "close", got.Header.Get("Connection"), "a body that may come all the same is no request")
		w.requireUntouched(t)
	})
	t.Run("wanted", func(t *testing.T) {
		w := serveWire(t, &guardtest.Counter{})
		for range 2 { // a replay reads the body too: it is what the key is bound to
			conn := w.dial(t)
			conn.send(message("POST /charges", wireHost+expect+wireKey+wireClose+"Content-Length: 5\r\n", ""))
			got, ok := conn.receive(t)
			require.True(t, ok)
			require.Equal(t, http.StatusContinue, got.Status)
			conn.send("hello")
			got, ok = conn.receive(t)
			require.True(t, ok)
			require.Equal(t, http.StatusCreated, got.Status)
		}
		require.EqualValues(t, 1, w.h.Runs.Load())
	})
}

// A client that waits for an answer in the middle of its body gets it, and not only after it has
// sent the rest.
func TestWireTooLargeIsToldInTheMiddleOfABody(t *testing.T) {
	const limit = 10 << 10
	over := strings.Repeat("x", limit+1)
	for name, tt := range map[string]struct{ fields, body string }{
		"declared":            {"Content-Length: 200000\r\n", ""},
		"declared, over":      {"Content-Length: 200000\r\n", over},
		"declared, expecting": {"Expect: 100-continue\r\nContent-Length: 200000\r\n", over},
		"chunked":             {chunked, "30000\r\n" + over},
	} {
		for _, wrapped := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", wrapped ", wrapped), func(t *testing.T) {
				w := serveWire(t, &guardtest.Counter{}, idempotency.WithLimits(idempotency.Limits{RequestBody: limit}))
				if wrapped {
					w.serve(t, &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						w.guard.Handler(w.h).ServeHTTP(unwrapper{rw}, r)
					})})
				}
				conn := w.dial(t)
				require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
				conn.send(message("POST /charges", wireHost+wireKey+tt.fields, tt.body))
				got, ok := conn.receive(t)
				require.True(t, ok, "no answer")
				guardtest.RequireProblem(t, got, http.StatusRequestEntityTooLarge, problem.BodyTooLarge)
				require.Equal(t, "close", got.Header.Get("Connection"), "the rest of the body is no request")
				w.requireUntouched(t)
			})
		}
	}
}

// An unwrapper is the writer of a handler that stands in front of the guard.
type unwrapper struct{ http.ResponseWriter }

func (w unwrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A client that sends its body without waiting can read the refusal. Go's own gives up when the
// connection is reset while it writes.
func TestClientReadsThatItsBodyIsTooLarge(t *testing.T) {
	w := serveWire(t, &guardtest.Counter{}, idempotency.WithLimits(idempotency.Limits{RequestBody: 10 << 10}))
	for _, expect := range []string{"", "100-continue"} {
		for _, size := range []int{11 << 10, 200 << 10, 8 << 20} {
			for range 10 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.addr+"/charges", strings.NewReader(strings.Repeat("x", size)))
				require.NoError(t, err)
				r.Header.Set("Idempotency-Key", "k")
				if expect != "" {
					r.Header.Set("Expect", expect)
				}
				transport := &http.Transport{ExpectContinueTimeout: 0}
				resp, err := transport.RoundTrip(r)
				require.NoError(t, err, "expect %q, %d bytes", expect, size)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
				transport.CloseIdleConnections()
			}
		}
	}
	w.requireUntouched(t)
}

// The trailer of a request reaches the handler and decides nothing: it arrives after every
// decision that the header takes part in.
func TestWireTrailers(t *testing.T) {
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, r.Header["Idempotency-Key"], r.Header["X-Tenant"], r.Trailer["X-Sum"], r.TransferEncoding)
	}}
	w := serveWire(t, h)
	ask := func(trailer string) guardtest.Reply {
		replies := w.ask(t, message("POST /charges", wireHost+wireKey+chunked+"Trailer: X-Sum\r\n"+wireClose,
			"5\r\nhello\r\n0\r\n"+trailer+"\r\n"))
		require.Len(t, replies, 1)
		return replies[0]
	}
	const sneaked = "Idempotency-Key: other\r\nX-Tenant: bob\r\nContent-Length: 9\r\n"
	require.Equal(t, "[k] [] [1] []", ask("X-Sum: 1\r\n"+sneaked).Body)
	require.True(t, ask("X-Sum: 2\r\n").Replayed())
	require.EqualValues(t, 1, h.Runs.Load())
}
