package policytest

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// goodFor returns what the field of an answer says, or -1 without the field.
func goodFor(t *testing.T, got guardtest.Reply) time.Duration {
	t.Helper()
	values := got.Header.Values(guardtest.ExpiryHeader)
	if len(values) == 0 {
		return -1
	}
	require.Len(t, values, 1)
	seconds, err := strconv.Atoi(values[0])
	require.NoError(t, err)
	return time.Duration(seconds) * time.Second
}

// As long as an answer says, the key is good; then the request runs as the first.
func TestAnswersSayForHowLongAKeyIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(guardtest.Counter)
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithExpiryHeader(guardtest.ExpiryHeader), idempotency.WithTTL(time.Hour)).Handler(h))
		require.Equal(t, time.Hour, goodFor(t, s.Do(t, guardtest.Call{Key: "k"})))
		time.Sleep(10 * time.Minute)
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		left := goodFor(t, again)
		require.Equal(t, 50*time.Minute, left)
		time.Sleep(left - time.Nanosecond)
		again = s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Zero(t, goodFor(t, again), "a second that has begun is not counted")
		time.Sleep(time.Nanosecond)
		require.False(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// A held key that is about to be free is told as one that is over: the client that counts from
// when it has sent its request would send it too late.
func TestLastSecondOfAKeyIsZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithExpiryHeader(guardtest.ExpiryHeader),
			idempotency.WithRecovery(idempotency.Hold), idempotency.WithRetention(time.Hour)).Handler(fails))
		s.Do(t, guardtest.Call{Key: "k"})
		time.Sleep(time.Hour - time.Second)
		require.Equal(t, time.Second, goodFor(t, s.Do(t, guardtest.Call{Key: "k"})))
		time.Sleep(time.Nanosecond)
		last := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, last, http.StatusConflict, problem.OutcomeUnknown)
		require.Zero(t, goodFor(t, last))
	})
}

func TestExpiryOnEachTransport(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithExpiryHeader("x-good-for")).Handler(new(guardtest.Counter)))
		require.Equal(t, "86400", s.Do(t, guardtest.Call{Key: "k"}).Header.Get("X-Good-For"))
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Contains(t, []string{"86399", "86398", "86397"}, again.Header.Get("X-Good-For"))
		require.Negative(t, goodFor(t, s.Do(t, guardtest.Call{})), "nothing is known of a request without a key")
	})
}

// The field is a promise, so it is where the record is, and nowhere else.
func TestOnlyWhatIsRecordedHasAnExpiry(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	flushing := func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }
	hold := idempotency.WithRecovery(idempotency.Hold)
	const none = -1
	for name, tt := range map[string]struct {
		handler      http.HandlerFunc
		options      []idempotency.Option
		first, again time.Duration
		code         problem.Code // of the second answer
	}{
		"off":                    {status(201), []idempotency.Option{idempotency.WithExpiryHeader("")}, none, none, ""},
		"recorded":               {status(201), nil, time.Hour, time.Hour, ""},
		"flushed":                {flushing, nil, none, time.Hour, ""},
		"not executed":           {status(429), nil, none, none, ""},
		"unknown":                {status(500), nil, none, none, ""},
		"held without an end":    {status(500), []idempotency.Option{hold}, none, none, problem.OutcomeUnknown},
		"held for the retention": {status(500), []idempotency.Option{hold, idempotency.WithRetention(30 * time.Minute)}, none, 30 * time.Minute, problem.OutcomeUnknown},
		"too large":              {guardtest.Answering(0, "too large").ServeHTTP, []idempotency.Option{idempotency.WithLimits(idempotency.Limits{ResponseBody: 1})}, none, time.Hour, problem.ResponseNotKept},
		"may not be seen any more": {status(201), []idempotency.Option{idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error {
			return http.ErrNoCookie
		})}, time.Hour, none, problem.ReplayDenied},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			options := append([]idempotency.Option{idempotency.WithExpiryHeader(guardtest.ExpiryHeader), idempotency.WithTTL(time.Hour)}, tt.options...)
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), options...).Handler(tt.handler))
			require.Equal(t, tt.first, goodFor(t, s.Do(t, guardtest.Call{Key: "k"})))
			again := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, tt.again, goodFor(t, again))
			require.Equal(t, string(tt.code), again.Header.Get(problem.Header))
			require.Negative(t, goodFor(t, s.Do(t, guardtest.Call{Key: "k", Body: "other"})), "another request's record is not the client's")
		})
	}
}

// A run whose record is still on its way to the store promises nothing.
func TestAnswerThatIsNotRecordedYetHasNoExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
		store.On("complete", guardtest.Always(guardtest.Refuse))
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithExpiryHeader(guardtest.ExpiryHeader)).Handler(new(guardtest.Counter)))
		require.Negative(t, goodFor(t, s.Do(t, guardtest.Call{Key: "k"})))
		store.Heal()
		time.Sleep(time.Minute)
		require.Positive(t, goodFor(t, s.Do(t, guardtest.Call{Key: "k"})))
	})
}

// While the first run goes on, a client is told the shorter of what is left of the record and of
// what its answer would be kept for: one of the two is true, however the run ends.
func TestRequestInFlightSaysHowLongItsKeyIsSurelyGood(t *testing.T) {
	for name, tt := range map[string]struct {
		options []idempotency.Option
		want    time.Duration
	}{
		"the retention is shorter": {[]idempotency.Option{idempotency.WithRetention(10 * time.Minute)}, 10*time.Minute - 5*time.Second},
		"the TTL is shorter":       {[]idempotency.Option{idempotency.WithRetention(2 * time.Hour)}, time.Hour},
		"the record has no end":    {[]idempotency.Option{idempotency.WithRecovery(idempotency.Hold)}, time.Hour},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			options := append([]idempotency.Option{idempotency.WithExpiryHeader(guardtest.ExpiryHeader), idempotency.WithTTL(time.Hour)}, tt.options...)
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), options...).Handler(guardtest.Answering(time.Minute, "done")))
			go s.Attempt(t, guardtest.Call{Key: "k"})
			time.Sleep(5 * time.Second)
			got := s.Do(t, guardtest.Call{Key: "k"})
			guardtest.RequireProblem(t, got, http.StatusConflict, problem.InFlight)
			require.Equal(t, tt.want, goodFor(t, got))
			time.Sleep(time.Minute)
		})
	}
}

// What a handler says about the keys of somebody else, such as a service behind it, is not
// recorded: it was true of that moment. The guard's own word takes its place.
func TestExpiryOfAnotherGuardIsNotRecorded(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for _, name := range []string{"", guardtest.ExpiryHeader, "X-Good-For"} {
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(guardtest.ExpiryHeader, "999999")
				if name != "" {
					w.Header().Set(name, "999999")
				}
			})
			guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithExpiryHeader(name))
			s := serve(guard.Handler(h))
			first, again := s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
			require.True(t, again.Replayed())
			for _, got := range []guardtest.Reply{first, again} {
				require.NotEqual(t, "999999", got.Header.Get(name), "%q", name)
				require.LessOrEqual(t, len(got.Header.Values(name)), 1)
			}
			require.NotEqual(t, "999999", again.Header.Get(guardtest.ExpiryHeader))

			// A record from before the option was set has the field of a name of its own.
			other := serve(guard.With(idempotency.WithExpiryHeader("X-Of-Late")).Handler(h)).Do(t, guardtest.Call{Key: "k"})
			require.True(t, other.Replayed())
			require.Contains(t, []string{"86399", "86398"}, other.Header.Get("X-Of-Late"))
		}
	})
}
