package idempotency_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/internal/reserved"
	"example.com/idempotency/store"
)

func TestRequestKey(t *testing.T) {
	const name = "Idempotency-Key"
	tests := []struct {
		name    string
		values  []string
		strict  bool
		key     string
		present bool
		detail  string
	}{
		{"absent", nil, false, "", false, ""},
		{"absent, strict", nil, true, "", false, ""},
		{"bare", []string{" abc "}, false, "abc", true, ""},
		{"bare, strict", []string{"abc"}, true, "", true, "The idempotency key must be sent in double quotes."},
		{"quoted", []string{`"abc"`}, false, "abc", true, ""},
		{"quoted, strict", []string{`"abc";v=1`}, true, "abc", true, ""},
		{"empty", []string{""}, false, "", true, "The idempotency key is empty."},
		{"two fields", []string{"abc", "def"}, false, "", true, "The idempotency key header was sent more than once."},
		{"two equal fields", []string{"abc", "abc"}, false, "", true, "The idempotency key header was sent more than once."},
		{"a list", []string{"abc, def"}, false, "", true, "The idempotency key header is a list; it must hold one key."},
		{"too long", []string{strings.Repeat("k", 256)}, false, "", true, "The idempotency key is longer than 255 bytes."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			for _, value := range tt.values {
				h.Add(name, value)
			}
			key, present, err := idempotency.KeyFromHeader(h[name], tt.strict)
			require.Equal(t, tt.key, key)
			require.Equal(t, tt.present, present)
			if tt.detail != "" {
				require.EqualError(t, err, tt.detail)
				return
			}
			require.NoError(t, err)
		})
	}
}

// A request that comes from no connection may have the field in any spelling.
func TestKeyInAnySpelling(t *testing.T) {
	for _, tt := range []struct {
		header http.Header
		status int
		key    string
	}{
		{http.Header{"idempotency-key": {"a"}}, 200, "a"},
		{http.Header{"IDEMPOTENCY-KEY": {"a"}, "Idempotency-Kez": {"b"}}, 200, "a"},
		{http.Header{"idempotency-key": {"a"}, "Idempotency-key": {"a"}}, 400, ""},
		{http.Header{"Idempotency_Key": {"a"}}, 200, ""},
	} {
		h := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest(http.MethodPost, "/charges", nil)
		r.Header = tt.header
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		require.Equal(t, tt.status, rec.Code, tt.header)
		require.Equal(t, tt.key, rec.Header().Get("Idempotency-Key"), tt.header)
	}
}

func TestRequestKeyDoesNotAllocate(t *testing.T) {
	for _, h := range []http.Header{
		{}, {"Idempotency-Key": {"abc"}}, {"Idempotency-Key": {`"abc"`}}, {"Idempotency-Key": {"a", "b"}},
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = idempotency.KeyFromHeader(h["Idempotency-Key"], false) }), h)
	}
}

func TestStoreKey(t *testing.T) {
	// The names of records in stores that outlive a deployment: not to be changed.
	const want = "pabwdD-b40jYvm3_gRmUvjEiF06BVBZkFR9utCWVMVo"
	require.Equal(t, want, idempotency.StoreKey("scope", "key"))

	seen := map[string]bool{}
	for _, pair := range [][2]string{
		{"", ""},
		{"a", ""},
		{"", "a"},
		{"a", "b"},
		{"b", "a"},
		{"ab", ""},
		{"", "ab"},
		{"a:", "b"},
		{"a", ":b"},
		{"a\x00", "b"},
		{"a\x01", "b"},
		{"A", "b"},
		{"\x01a\x01b", ""},
	} {
		name := idempotency.StoreKey(pair[0], pair[1])
		require.Regexp(t, `^[A-Za-z0-9_-]{43}$`, name)
		require.False(t, seen[name], "%q has the name of another", pair)
		seen[name] = true
	}
}

func TestStoreKeyAllocatesOnce(t *testing.T) {
	if race.Enabled {
		t.Skip("pools drop items at random under the race detector")
	}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { idempotency.StoreKey("scope", "key") }), 1.0)
}

func TestEveryAnswerToAKeyEchoesIt(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			if _, ok := w.Header()["Idempotency-Key"]; ok {
				t.Error("the handler sees the echo")
			}
			if r.URL.Path == "/own" {
				w.Header().Set("Idempotency-Key", "the handler's")
			}
		}}
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithLimits(idempotency.Limits{RequestBody: 100}))
		s := serve(g.Handler(h))
		for _, key := range []string{"k", `"quoted"`, `"quoted"`, "k"} {
			require.Equal(t, []string{key}, s.Do(t, guardtest.Call{Key: key}).Header.Values("Idempotency-Key"))
		}
		refusals := []guardtest.Call{
			{Key: "k", Body: "other"},
			{Key: "k", Tenant: "unknown"},
			{Key: "k", Body: string(make([]byte, 101))},
		}
		for _, c := range refusals {
			got := s.Do(t, c)
			require.NotEmpty(t, got.Problem.Code)
			require.Equal(t, []string{"k"}, got.Header.Values("Idempotency-Key"))
		}
		for range 2 {
			got := s.Do(t, guardtest.Call{Key: "own", Path: "/own"})
			require.Equal(t, []string{"own"}, got.Header.Values("Idempotency-Key"))
		}
		other := serve(g.With(idempotency.WithHeader("X-Request-Key")).Handler(h))
		got := other.Do(t, guardtest.Call{Path: "/x", Header: http.Header{"X-Request-Key": {"other"}}})
		require.Equal(t, []string{"other"}, got.Header.Values("X-Request-Key"))
		require.Empty(t, s.Do(t, guardtest.Call{}).Header.Values("Idempotency-Key"))
	})
}

// A scope that is taken from a user name could be one of the library's own, by accident or not: that of
// SharedScope, of a sender of webhooks, of a queue, or of a module that is still to come.
func TestReservedScopeByAccidentIsRefused(t *testing.T) {
	byName := func(r *http.Request) (string, error) {
		user, _, _ := r.BasicAuth()
		return user, nil
	}
	webhooks := reserved.Scope("webhook", "Stripe")
	for name, c := range map[string]struct {
		scope idempotency.ScopeFunc
		user  string
		own   string // what a module has found out of the request
		want  int
	}{
		"shared":                  {byName, store.Shared, "", http.StatusForbidden},
		"by SharedScope":          {idempotency.SharedScope, store.Shared, "", http.StatusCreated},
		"webhooks":                {byName, webhooks, "", http.StatusForbidden},
		"webhooks of another":     {byName, webhooks, reserved.Scope("webhook", "GitHub"), http.StatusForbidden},
		"webhooks, verified":      {byName, webhooks, webhooks, http.StatusCreated},
		"a caller, with webhooks": {byName, "acme", webhooks, http.StatusCreated},
		"a zero byte":             {byName, "\x00", "", http.StatusForbidden},
		"a zero byte elsewhere":   {byName, "a\x00", "", http.StatusCreated},
	} {
		h := &guardtest.Counter{}
		store := idempotency.NewMemoryStore()
		guard := guardtest.NewGuardOf(t, store, c.scope)
		r := httptest.NewRequest(http.MethodPost, "/charges", http.NoBody)
		r.SetBasicAuth(c.user, "any")
		r.Header.Set("Idempotency-Key", "k")
		if c.own != "" {
			r = r.WithContext(reserved.With(r.Context(), c.own))
		}
		rec := httptest.NewRecorder()
		guard.Handler(h).ServeHTTP(rec, r)
		require.Equal(t, c.want, rec.Code, name)
		require.Equal(t, c.want == http.StatusCreated, h.Runs.Load() == 1, name)
		require.Equal(t, c.want == http.StatusCreated, store.Len() == 1, name)
	}
}
