package idempotency_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// An event is a request from which a key is taken.
type event struct {
	header http.Header
	body   string
}

func (e event) request() (*http.Request, []byte) {
	r := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(e.body))
	r.Header = e.header
	return r, []byte(e.body)
}

func TestKeyFromHeader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		want   string
		fails  bool
	}{
		"taken as it is": {http.Header{"X-Github-Delivery": {` 72d3162e-"x",ü`}}, ` 72d3162e-"x",ü`, false},
		"absent":         {http.Header{"X-Github-Event": {"push"}}, "", false},
		"empty":          {http.Header{"X-Github-Delivery": {""}}, "", true},
		"twice":          {http.Header{"X-Github-Delivery": {"a", "a"}}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := idempotency.KeyFromHeader("x-gitHub-DELIVERY")(event{header: c.header}.request())
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestKeyFromCloudEvent(t *testing.T) {
	t.Parallel()
	binary := func(id, source string) event {
		return event{http.Header{"Ce-Id": {id}, "Ce-Source": {source}, "Content-Type": {"application/json"}}, `{"id":"of the data"}`}
	}
	structured := func(body string) event {
		return event{http.Header{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}, body}
	}
	key := func(e event) (string, error) { return idempotency.KeyFromCloudEvent(e.request()) }

	same, err := key(binary("e1", "/bank"))
	require.NoError(t, err)
	require.NotEmpty(t, same)
	got, err := key(structured(`{ "source" : "/bank", "data": {"id":"x","source":"y"}, "id" : "e1" }`))
	require.NoError(t, err)
	require.Equal(t, same, got, "one event, in either mode")
	for _, malformed := range []string{"; charset", "; a=1; a=2", " ;", ";;"} {
		got, err = key(event{http.Header{"Content-Type": {"Application/CloudEvents+json" + malformed}}, `{"id":"e1","source":"/bank"}`})
		require.NoError(t, err)
		require.Equal(t, same, got, "an event whose type has malformed parameters would run unprotected")
	}

	distinct := map[string]event{same: {}}
	for _, e := range []event{
		binary("e2", "/bank"), binary("e1", "/shop"), binary("/bank", "e1"), binary("1", "/banke"), binary("e", "1/bank"),
		structured(`{"id":"E1","source":"/bank"}`), structured(`{"id":"e1","source":"/bank "}`),
	} {
		got, err := key(e)
		require.NoError(t, err)
		require.NotContains(t, distinct, got)
		distinct[got] = e
	}

	none, err := key(event{http.Header{"Content-Type": {"application/json"}}, `{"id":"e1","source":"/bank"}`})
	require.NoError(t, err)
	require.Empty(t, none, "not a CloudEvent")

	for name, e := range map[string]event{
		"no source":          binary("e1", ""),
		"only an id":         {http.Header{"Ce-Id": {"e1"}}, ""},
		"only a source":      {http.Header{"Ce-Source": {"/bank"}}, ""},
		"two ids":            {http.Header{"Ce-Id": {"e1", "e2"}, "Ce-Source": {"/bank"}}, ""},
		"two sources":        {http.Header{"Ce-Id": {"e1"}, "Ce-Source": {"/bank", "/shop"}}, ""},
		"no JSON":            structured(`id=e1`),
		"null":               structured(`null`),
		"no id in the body":  structured(`{"source":"/bank"}`),
		"other case":         structured(`{"ID":"e1","Source":"/bank"}`),
		"id is an object":    structured(`{"id":{},"source":"/bank"}`),
		"half in the header": {http.Header{"Ce-Id": {"e1"}, "Content-Type": {"application/cloudevents+json"}}, `{"source":"/bank"}`},
		"batch":              {http.Header{"Content-Type": {"application/cloudevents-batch+json"}}, `[{"id":"e1","source":"/bank"}]`},
		"two types":          {http.Header{"Content-Type": {"application/cloudevents+json, text/plain"}}, `{"id":"e1","source":"/bank"}`},
		"other format":       {http.Header{"Content-Type": {"application/cloudevents+avro"}}, `{"id":"e1","source":"/bank"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := key(e)
			require.Error(t, err)
			require.Empty(t, got)
		})
	}
}

func TestKeyFromJSON(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"data":{"id":"evt_1"}}`:                       "evt_1",
		` { "data" : { "id" : "evt_1" , "x" : 1 } , } `: "!",
		"{ \"data\" :\n{ \"id\" :\t\"evt_1\" } }":       "evt_1",
		`{"data":{"id":42}}`:                            "42",
		`{"data":{"id": 18446744073709551617 }}`:        "18446744073709551617",
		`{"data":{"id":"\u0065vt \"1\""}}`:              `evt "1"`,
		`{"data":{"ID":"evt_1"}}`:                       "",
		`{"data":{"id":null}}`:                          "",
		`{"data":{"id":""}}`:                            "",
		`{"data":{}}`:                                   "",
		`{"data":null}`:                                 "",
		`{"id":"evt_1"}`:                                "",
		`{"data":"evt_1"}`:                              "!",
		`{"data":[{"id":"evt_1"}]}`:                     "!",
		`{"data":{"id":true}}`:                          "!",
		`{"data":{"id":["evt_1"]}}`:                     "!",
		`{"data":{"id":{"id":"evt_1"}}}`:                "!",
		`["evt_1"]`:                                     "!",
		`null`:                                          "!",
		`"evt_1"`:                                       "!",
		`{"data":{"id":"evt_1"}`:                        "!",
		``:                                              "!",
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			got, err := idempotency.KeyFromJSON("data.id")(event{body: body}.request())
			if want == "!" {
				require.Error(t, err)
				require.Empty(t, got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	for path, body := range map[string]string{"id": `{"id":"evt_1"}`, `event\.id`: `{"event.id":"evt_1","event":{"id":"evt_2"}}`} {
		got, err := idempotency.KeyFromJSON(path)(event{body: body}.request())
		require.NoError(t, err)
		require.Equal(t, "evt_1", got)
	}
}

// A key function that could find no key in any request is a mistake that shows at start.
func TestKeyFunctionOfNothingPanics(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Webhook Id", "Webhook-Id:"} {
		require.Panics(t, func() { idempotency.KeyFromHeader(name) }, name)
	}
	for _, path := range []string{"", ".", "data.", "data..id", `data\id`} {
		require.Panics(t, func() { idempotency.KeyFromJSON(path) }, path)
	}
}

// A key function in front of a handler: what has no key passes, what cannot be read is
// refused, and neither the key nor the reason is shown.
func TestKeyFunctionInAGuard(t *testing.T) {
	t.Parallel()
	h := &guardtest.Counter{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithKeyFunc(idempotency.KeyFromJSON("id")))
	s := guardtest.ServeRecorder(t, guard.Handler(h))
	send := func(body string) guardtest.Reply { return s.Do(t, guardtest.Call{Body: body}) }

	require.False(t, send(`{"id":"evt_1"}`).Replayed())
	require.True(t, send(`{"id":"evt_1"}`).Replayed())
	require.EqualValues(t, 1, h.Runs.Load())
	guardtest.RequireProblem(t, send(`{"id":"evt_1","more":1}`), http.StatusConflict, problem.KeyReused)
	require.False(t, send(`{"id":"evt_2"}`).Replayed())

	require.False(t, send(`{}`).Replayed())
	require.False(t, send(`{}`).Replayed())
	require.EqualValues(t, 4, h.Runs.Load())
	s = guardtest.ServeRecorder(t, guard.With(idempotency.WithRequired(true)).Handler(h))
	guardtest.RequireProblem(t, send(`{}`), http.StatusBadRequest, problem.KeyMissing)

	got := send(`{"id":["secret"]}`)
	guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.KeyInvalid)
	require.NotContains(t, got.Body, "secret")
	guardtest.RequireProblem(t, send(`{"id":"`+strings.Repeat("x", 256)+`"}`), http.StatusBadRequest, problem.KeyInvalid)
	require.EqualValues(t, 4, h.Runs.Load())
}
