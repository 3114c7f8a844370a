package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
)

// A key that the server has forgotten would be a new one.
func TestIntentThatIsTooOldIsNotSent(t *testing.T) {
	t.Parallel()
	base := answering(answer{status: 201})
	transport := newTransport(t, base, client.WithTTL(time.Hour))
	old := client.Intent{Key: "k", Since: time.Now().Add(-time.Hour), Resumed: true}
	body := &countedBody{Reader: once("{}")}
	_, err := send(transport, request(old.Context(t.Context()), "POST", place, body))
	require.ErrorIs(t, err, client.ErrKeyExpired)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Equal(t, client.ReasonTTL, failure(t, err).Reason)
	require.Empty(t, base.requests())
	require.True(t, body.closed.Load())

	old.Since = time.Now().Add(-time.Hour + time.Minute)
	_, err = send(transport, post(old.Context(t.Context()), place, "{}"))
	require.NoError(t, err)
	require.Equal(t, "k", base.requireOneKey(t, 1))
}

// Nobody knows the age of a key that was made while the clock was ahead.
func TestIntentOfTheFutureIsNotSent(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	i := client.IntentFor("charge", "order-17")
	_, err := send(newTransport(t, answering(answer{status: 401})), post(i.Context(t.Context()), place, "{}"))
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
}
