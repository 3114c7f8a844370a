package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/webhook"
)

// The keys of deliveries: in a field, in JSON, of a CloudEvent.

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

func TestHeaderKey(t *testing.T) {
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
			got, err := webhook.HeaderKey("x-gitHub-DELIVERY")(event{header: c.header}.request())
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.want, got)
		})
	}
}

// A function that finds no key in any request is a mistake that must show at start.
func TestHeaderKeyPanicsWithoutAFieldName(t *testing.T) {
	for _, name := range []string{"", "Webhook Id", "Webhook-Id:"} {
		require.Panics(t, func() { webhook.HeaderKey(name) }, name)
	}
}

func TestJSONKey(t *testing.T) {
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
		`{"x":{"data":{"id":"a"}},"y":["data"]}`:        "",
		`{"data":{"id":"a"},"data":{"id":"b","x":[1]}}`: "b",
		`{"\u0064ata":{"i\u0064":"evt_1"}}`:             "evt_1",
		`{"x":"\"data\":","data":{"id":"evt_1"}}`:       "evt_1",
		`{"x":[{"data":1},"data"],"data":{"id":{}}}`:    "!",
		`{"data":{"x":"id","id":"evt_1"}}`:              "evt_1",
		`{"id":"evt_1"}`:                                "",
		`{"data":"evt_1"}`:                              "!",
		`{"data":[{"id":"evt_1"}]}`:                     "!",
		`{"data":{"id":true}}`:                          "!",
		`{"data":{"id":"\ud800"}}`:                      "!",
		"{\"data\":{\"id\":\"\xff\"}}":                  "!",
		`{"data":{"id":["evt_1"]}}`:                     "!",
		`{"data":{"id":{"id":"evt_1"}}}`:                "!",
		`["evt_1"]`:                                     "!",
		`null`:                                          "!",
		`"evt_1"`:                                       "!",
		`{"data":{"id":"evt_1"}`:                        "!",
		``:                                              "!",
	} {
		t.Run(body, func(t *testing.T) {
			got, err := webhook.JSONKey("data.id")(event{body: body}.request())
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
		got, err := webhook.JSONKey(path)(event{body: body}.request())
		require.NoError(t, err)
		require.Equal(t, "evt_1", got)
	}
}

// The time and the memory are those of reading the text once: nothing is kept of the members that do not count.
func TestJSONKeyKeepsNothingOfOtherMembers(t *testing.T) {
	key, r := webhook.JSONKey("data.id"), &http.Request{}
	body := []byte(`{` + strings.Repeat(`"x":{"y":[1]},`, 10_000) + `"data":{"id":"evt_1"}}`)
	require.Less(t, testing.AllocsPerRun(5, func() { _, _ = key(r, body) }), 50.0)
}

// A function that finds no key in any request is a mistake that must show at start.
func TestJSONKeyPanicsWithoutAPath(t *testing.T) {
	for _, path := range []string{"", ".", "data.", "data..id", `data\id`} {
		require.Panics(t, func() { webhook.JSONKey(path) }, path)
	}
}

func TestCloudEventKey(t *testing.T) {
	binary := func(id, source string) event {
		return event{http.Header{"Ce-Id": {id}, "Ce-Source": {source}, "Content-Type": {"application/json"}}, `{"id":"of the data"}`}
	}
	structured := func(body string) event {
		return event{http.Header{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}, body}
	}
	key := func(e event) (string, error) { return webhook.CloudEventKey(e.request()) }

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
		"no escape":          binary("100%", "/bank"),
		"half an escape":     binary("e1", "/bank%2"),
		"no UTF-8":           binary("%C0%A0", "/bank"),
		"raw Latin-1":        binary("\xe9", "/bank"),
		"only quotes":        {http.Header{"Ce-Id": {`""`}, "Ce-Source": {`""`}}, ""},
		"open quotes":        binary(`"e1`, "/bank"),
		"more than quotes":   binary(`"e1"2"`, "/bank"),
		"escaped quote":      binary(`"e1\"`, "/bank"),
		"half in the header": {http.Header{"Ce-Id": {"e1"}, "Content-Type": {"application/cloudevents+json"}}, `{"source":"/bank"}`},
		"batch":              {http.Header{"Content-Type": {"application/cloudevents-batch+json"}}, `[{"id":"e1","source":"/bank"}]`},
		"two types":          {http.Header{"Content-Type": {"application/cloudevents+json, text/plain"}}, `{"id":"e1","source":"/bank"}`},
		"other format":       {http.Header{"Content-Type": {"application/cloudevents+avro"}}, `{"id":"e1","source":"/bank"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := key(e)
			require.Error(t, err)
			require.Empty(t, got)
		})
	}
}

// The HTTP binding of CloudEvents 1.0.2, section 3.1.3.2, says how fields in binary mode are read.
func TestCloudEventKeyIsOneInBothModes(t *testing.T) {
	keys := map[string]string{}
	for _, c := range []struct{ attribute, field string }{
		{"order 1", "order%201"},
		{"order 1", "order 1"},
		{"order 1", `"order 1"`},
		{"é1", "%C3%A91"},
		{"é1", "%c3%a91"},
		{"é1", "é1"},
		{"/a%20b", "/a%2520b"},
		{"/a%20b", `"/a%2520b"`},
		{"/a b", "/a%20b"},
		{"/a/b", "/a%2Fb"},
		{"a+b", "a+b"},
		{`a"b`, "a%22b"},
		{`a"b`, `a"b`},
		{`a"b\`, `"a\"b\\"`},
		{`"a"`, "%22a%22"},
		{"Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"},
		{"plain", "p%6cain"},
	} {
		got := func(source, id string) string {
			key, err := webhook.CloudEventKey(event{http.Header{"Ce-Id": {id}, "Ce-Source": {source}}, ""}.request())
			require.NoError(t, err, c.field)
			return key
		}
		require.Equal(t, eventKey("/bank", c.attribute), got("/bank", c.field))
		require.Equal(t, eventKey(c.attribute, "1"), got(c.field, "1"))
		if other, ok := keys[got("/bank", c.field)]; ok {
			require.Equal(t, other, c.attribute)
		}
		keys[got("/bank", c.field)] = c.attribute
	}
}
