package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/webhook"
)

func TestJSONKey(t *testing.T) {
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
	t.Parallel()
	for _, path := range []string{"", ".", "data.", "data..id", `data\id`} {
		require.Panics(t, func() { webhook.JSONKey(path) }, path)
	}
}
