package conform

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/cmd/idem/internal/conform/report"
)

// A refusal shows the first answer in whatever spelling, and does not if it repeats only what its own request has sent,
// or what other answers say, too.
func TestRefusalsThatShowTheFirstAnswer(t *testing.T) {
	t.Parallel()
	const first = `{"id":17,"ref":"chg_8Hq2Lm4Z","amount":123456,"key":"k12345678","host":"pod-7f3a9c21"}`
	const place = "/charges/17"
	escaped, err := json.Marshal("it was " + first)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		body, field string
		shows       bool
	}{
		"as it is":                  {`{"first":` + first + `}`, "", true},
		"in a text":                 {`{"detail":` + string(escaped) + `}`, "", true},
		"in a field":                {"{}", first, true},
		"percent-encoded":           {"{}", "/?x=" + url.QueryEscape(first), true},
		"in base64":                 {`{"x":"` + base64.StdEncoding.EncodeToString([]byte(first)) + `"}`, "", true},
		"in base64, in a URL":       {"{}", "/?x=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte("+"+first))), true},
		"the place":                 {"{}", place, true},
		"its ID alone":              {"see chg_8Hq2Lm4Z", "", true},
		"what only the first sent":  {`{"title":"123456 before"}`, "", true},
		"a part of another number":  {`{"title":"91234567"}`, "", false},
		"what the second has sent":  {`{"title":"k12345678 is not for 654321"}`, "", false},
		"what another answer shows": {`{"host":"pod-7f3a9c21"}`, "", false},
		"the time":                  {fmt.Sprintf(`{"at":%d}`, time.Now().Unix()), "", false},
		"nothing":                   {`{"title":"Refused"}`, "", false},
	} {
		ok := func(body string) answer { return answer{status: http.StatusCreated, body: body} }
		refused := answer{status: http.StatusConflict, body: c.body, header: http.Header{"Location": {c.field}}}
		now := fmt.Sprintf(`,"at":%d}`, time.Now().Unix())
		made := ok(first[:len(first)-1] + now)
		if c.shows {
			made = ok(first)
		}
		made.header = http.Header{"Location": {place}}
		trial := &trial{
			lab:     &lab{trials: map[string]*trial{"pair": {answers: []answer{ok(`{"host":"pod-7f3a9c21"}`)}}}},
			answers: []answer{ok(`{"id":16,"ref":"chg_9Kw3Xn5Y","amount":654321}`), made, refused},
			shots:   []shot{{}, {}, {body: `{"amount":654321}`, keys: []string{"k12345678"}}},
		}
		want := map[bool]report.Result{true: report.Fails, false: report.Holds}[c.shows]
		require.Equal(t, want, mismatchSilent(&Profile{}, trial).result, name)
	}
}
