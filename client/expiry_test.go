package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
)

// How old a key may be, and what is known of one that was sent before.

const expiryField = "Idempotency-TTL"

// patient makes a transport that goes on for a day, with a try each minute.
func patient(t testing.TB, base http.RoundTripper, opts ...client.Option) *client.Transport {
	t.Helper()
	return newTransport(t, base, append([]client.Option{
		client.WithTimeout(24 * time.Hour), client.WithAttempts(100), client.WithRetryBudget(100, 100), quick,
	}, opts...)...)
}

// A key is not sent again once the server has forgotten it, as it has said itself.
func TestKeyIsNotSentAgainPastItsExpiry(t *testing.T) {
	for name, tt := range map[string]struct {
		told     []string // by one answer after the other
		options  []client.Option
		want     time.Duration // until the client gives up
		requests int
	}{
		"told":                       {[]string{"150", ""}, nil, 2 * time.Minute, 3},
		"the moment counts":          {[]string{"120", ""}, nil, time.Minute, 2},
		"forgotten already":          {[]string{"0"}, nil, 0, 1},
		"the last word counts":       {[]string{"600", "30", ""}, nil, time.Minute, 2},
		"it may be a longer one":     {[]string{"90", "600", ""}, nil, 10 * time.Minute, 11},
		"no more than the program's": {[]string{"3600"}, []client.Option{client.WithTTL(90 * time.Second)}, time.Minute, 2},
		"not a number":               {[]string{"Sun, 22 Nov 2026 02:00:00 GMT"}, []client.Option{client.WithTTL(90 * time.Second)}, time.Minute, 2},
		"negative":                   {[]string{"-1"}, []client.Option{client.WithTTL(90 * time.Second)}, time.Minute, 2},
		"huge":                       {[]string{strings.Repeat("9", 30)}, []client.Option{client.WithTTL(90 * time.Second)}, time.Minute, 2},
	} {
		bubble(t, name, func(t *testing.T) {
			var answers []answer
			for _, told := range tt.told {
				a := refused(http.StatusConflict, "in-flight", "Retry-After", "60")
				if told != "" {
					a.header[expiryField] = told
				}
				answers = append(answers, a)
			}
			base := answering(answers...)
			start := time.Now()
			err := failsWith(t, patient(t, base, tt.options...), post(t.Context(), place, "{}"), client.ErrKeyExpired)
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
			require.Equal(t, client.ReasonTTL, failure(t, err).Reason)
			require.Less(t, time.Since(start)-tt.want, time.Second)
			require.Len(t, base.requests(), tt.requests)
		})
	}
}

// The time goes with the key: from the error to the next request, and from the answer to the
// program.
func TestExpiryGoesWithTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		base := answering(answer{status: 502, header: map[string]string{expiryField: "600"}})
		transport := newTransport(t, base, quick, client.WithAttempts(1), client.WithObserver(seen.observe))
		sent := time.Now()
		_, err := send(transport, post(t.Context(), place, "{}"))
		failed := failure(t, err)
		require.Equal(t, sent.Add(10*time.Minute), failed.Expires)
		require.Equal(t, failed.Expires, seen.of(client.EventAttempt)[0].Expires)

		base.answers = []answer{{status: 201}}
		time.Sleep(10*time.Minute - time.Second)
		got := answered(t, transport, post(failed.Context(t.Context()), place, "{}"))
		at, ok := client.Expires(got.resp)
		require.True(t, ok, "what is known of the key stays known")
		require.Equal(t, failed.Expires, at)
		time.Sleep(time.Second)
		fails(t, transport, post(failed.Context(t.Context()), place, "{}"), client.ErrKeyExpired)
		err = failsWith(t, transport, post(client.Intent{Key: "k", Expires: time.Now()}.Context(t.Context()), place, "{}"), client.ErrKeyExpired)
		require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
		require.Len(t, base.requests(), 2)
	})
}

func TestResponseTellsWhenItsKeyExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stranger := profile.Guard()
		stranger.Expiry = "X-Good-For"
		for _, c := range []struct {
			header string
			server profile.Server
			want   bool
		}{
			{expiryField, profile.Guard(), true},
			{"X-Good-For", stranger, true},
			{expiryField, stranger, false},
			{"Etag", profile.Guard(), false},
		} {
			base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second) // on the way
				return answer{status: 201, header: map[string]string{c.header: "60"}}.response(r), nil
			}})
			httpClient := &http.Client{Transport: newTransport(t, base, client.WithServer(c.server, "*"))}
			sent := time.Now()
			resp, err := httpClient.Post(place, "application/json", strings.NewReader("{}"))
			require.NoError(t, err)
			resp.Body.Close()
			at, ok := client.Expires(resp)
			require.Equal(t, c.want, ok)
			if ok {
				require.Equal(t, sent.Add(time.Minute), at, "it counts from when the request was sent")
			}
		}
		for _, resp := range []*http.Response{nil, {}, {Request: httptest.NewRequest(http.MethodPost, place, nil)}} {
			_, ok := client.Expires(resp)
			require.False(t, ok)
		}
	})
}

// A guard and a client: the first answer breaks off, and nobody reaches the server until it has
// forgotten the key. The program expected a longer life of the key.
func TestNoSecondEffectAfterAnExpiryThatTheGuardHasTold(t *testing.T) {
	for _, told := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			options := []idempotency.Option{idempotency.WithTTL(time.Hour)}
			if told {
				options = append(options, idempotency.WithExpiryHeader(expiryField))
			}
			effects := 0
			h := newGuard(t, idempotency.NewMemoryStore(), options...).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				effects++
				_, _ = io.WriteString(w, "charged")
			}))
			start := time.Now()
			base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
				switch {
				case time.Since(start) > 0 && time.Since(start) < 2*time.Hour:
					time.Sleep(time.Minute)
					return nil, &net.OpError{Op: "dial", Err: errors.New("no route")}
				default:
					r.Body, _ = r.GetBody() // the script has read it
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					resp := w.Result()
					resp.ContentLength = int64(w.Body.Len()) // a server of net/http declares it
					if time.Since(start) == 0 {
						resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("cha"), broken{}))
					}
					return resp, nil
				}
			}})
			_, err := send(patient(t, base, client.WithAttemptTimeout(time.Hour), client.WithAttempts(100), client.WithBackoff(time.Minute, 2*time.Minute)), post(t.Context(), place, "{}"))
			if told {
				require.ErrorIs(t, err, client.ErrKeyExpired)
				require.Equal(t, 1, effects)
			} else {
				require.NoError(t, err)
				require.Equal(t, 2, effects, "this is what the field is for")
			}
		})
	}
}

// A repetition that begins within the life of the key does not go out after it: a connection is long in
// coming, or the body is.
func TestRepetitionDoesNotOutliveTheKey(t *testing.T) {
	const wait, ttl = 40 * time.Second, time.Minute
	trace := func(r *http.Request) *httptrace.ClientTrace { return httptrace.ContextClientTrace(r.Context()) }
	slow := func(r *http.Request, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
	}
	for name, attempt := range map[string]func(r *http.Request, sent *bool) error{
		"a slow connection": func(r *http.Request, sent *bool) error {
			if err := slow(r, wait); err != nil {
				return err
			}
			*sent = true
			trace(r).GotConn(httptrace.GotConnInfo{})
			trace(r).WroteRequest(httptrace.WroteRequestInfo{})
			return nil
		},
		"a slow body": func(r *http.Request, sent *bool) error {
			trace(r).GotConn(httptrace.GotConnInfo{})
			if err := slow(r, wait); err != nil {
				return err
			}
			*sent = true
			trace(r).WroteRequest(httptrace.WroteRequestInfo{})
			return nil
		},
		"in time": func(r *http.Request, sent *bool) error {
			trace(r).GotConn(httptrace.GotConnInfo{})
			trace(r).WroteRequest(httptrace.WroteRequestInfo{})
			*sent = true
			return slow(r, wait)
		},
	} {
		bubble(t, name, func(t *testing.T) {
			sent := false
			base := answering(answer{status: http.StatusBadGateway, header: map[string]string{"Retry-After": "30"}}, answer{do: func(r *http.Request) (*http.Response, error) {
				if err := attempt(r, &sent); err != nil {
					return nil, err
				}
				return answer{status: http.StatusCreated}.response(r), nil
			}})
			_, err := send(patient(t, base, client.WithTTL(ttl), client.WithAttemptTimeout(time.Hour)), post(t.Context(), place, "{}"))
			if name == "in time" {
				require.NoError(t, err)
				require.True(t, sent)
				return
			}
			require.ErrorIs(t, err, client.ErrKeyExpired)
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
			require.Equal(t, client.ReasonTTL, failure(t, err).Reason)
			require.False(t, sent)
		})
	}
}

// The clock is looked at once more when there is a connection.
func TestConnectionThatComesTooLate(t *testing.T) {
	require.True(t, client.GivesUpWhenConnected(true))
	require.False(t, client.GivesUpWhenConnected(false))
}

// A broken reader is a connection that breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A key that the server has forgotten would be a new one.
func TestIntentThatIsTooOldIsNotSent(t *testing.T) {
	base := answering(answer{status: 201})
	transport := newTransport(t, base, client.WithTTL(time.Hour))
	old := client.Intent{Key: "k", Since: time.Now().Add(-time.Hour), Resumed: true}
	body := &countedBody{Reader: once("{}")}
	err := failsWith(t, transport, request(old.Context(t.Context()), "POST", place, body), client.ErrKeyExpired)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Equal(t, client.ReasonTTL, failure(t, err).Reason)
	require.Empty(t, base.requests())
	require.True(t, body.closed.Load())

	old.Since = time.Now().Add(-time.Hour + time.Minute)
	answered(t, transport, post(old.Context(t.Context()), place, "{}"))
	require.Equal(t, "k", base.requireOneKey(t, 1))
}

// Nobody knows the age of a key that was made while the clock was ahead.
func TestIntentOfTheFutureIsNotSent(t *testing.T) {
	for ahead, sent := range map[time.Duration]bool{time.Minute: true, 59 * time.Minute: true, 2 * time.Hour: false, 365 * 24 * time.Hour: false} {
		base := answering(answer{status: 201})
		intent := client.Intent{Key: "k", Since: time.Now().Add(ahead), Resumed: true}
		_, err := send(newTransport(t, base), post(intent.Context(t.Context()), place, "{}"))
		if sent {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, client.ErrKeyExpired)
		require.ErrorIs(t, err, client.ErrOutcomeUnknown)
		require.Empty(t, base.requests())
	}
}

// A request of an earlier process counts as an attempt that may have been executed.
func TestResumedIntentIsInDoubtFromTheStart(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		e := client.Intent{Key: "k", Since: time.Now(), Resumed: resumed}
		_, err := send(newTransport(t, answering(answer{status: 401})), post(e.Context(t.Context()), place, "{}"))
		if resumed {
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
		} else {
			require.NoError(t, err)
		}
	}
}

// The history belongs to the key, and not to the way in which the caller says it.
func TestHistoryBelongsToTheKey(t *testing.T) {
	field := func(value string) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request { r.Header.Set(keyField, value); return r }
	}
	under := func(with ...func(context.Context) context.Context) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request {
			for _, f := range with {
				r = r.WithContext(f(r.Context()))
			}
			return r
		}
	}
	key := func(key string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return client.WithKey(ctx, key) }
	}
	square := profile.Square()
	square.TTL = time.Hour
	inBody := client.WithServer(square, "*")
	for name, c := range map[string]struct {
		say   func(*http.Request) *http.Request
		other bool // it is another key
		opts  []client.Option
	}{
		"not again":               {say: under()},
		"in the field":            {say: field("k")},
		"in the field, quoted":    {say: field(`"k"`)},
		"in the body":             {say: under(), opts: []client.Option{inBody}},
		"WithKey":                 {say: under(key("k"))},
		"WithKey, quoted":         {say: under(key(`"k"`))},
		"WithKey, after another":  {say: under(key("other"), key("k"))},
		"WithKey, after none":     {say: under(client.WithoutKey, key("k"))},
		"WithKey, and the body":   {say: under(key("k")), opts: []client.Option{inBody}},
		"an Intent":               {say: under(client.Intent{Key: "k"}.Context)},
		"another one in a field":  {say: field("other"), other: true},
		"another one by WithKey":  {say: under(key("other")), other: true},
		"another one and a field": {say: func(r *http.Request) *http.Request { return field("k")(under(key("other"))(r)) }},
	} {
		for _, before := range []client.Intent{
			{Key: "k", Resumed: true},
			{Key: "k", Since: time.Now().Add(-time.Hour)},
			{Key: "k", Since: time.Now(), Expires: time.Now().Add(-time.Second)},
		} {
			base := answering(answer{status: 401})
			transport := newTransport(t, base, append([]client.Option{client.WithTTL(time.Hour)}, c.opts...)...)
			_, err := send(transport, c.say(post(before.Context(t.Context()), place, `{"idempotency_key":"k"}`)))
			require.Equal(t, before.Resumed && !c.other, errors.Is(err, client.ErrOutcomeUnknown), "%s: %v", name, err)
			require.Equal(t, !before.Resumed && !c.other, errors.Is(err, client.ErrKeyExpired), "%s: %v", name, err)
		}
	}
}

// Any process may have computed a key before.
func TestComputedKeyIsInDoubtFromTheStart(t *testing.T) {
	i := client.IntentFor("charge", "order-17")
	fails(t, newTransport(t, answering(answer{status: 401})), post(i.Context(t.Context()), place, "{}"), client.ErrOutcomeUnknown)
}
