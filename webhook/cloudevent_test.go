package webhook_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/webhook"
)

func TestCloudEventKey(t *testing.T) {
	t.Parallel()
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
