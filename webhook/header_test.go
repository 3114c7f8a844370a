package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/webhook"
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

func TestHeaderKey(t *testing.T) {
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
			got, err := webhook.HeaderKey("x-gitHub-DELIVERY")(event{header: c.header}.request())
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.want, got)
		})
	}
}

// A function that finds no key in any request is a mistake that must show at start.
func TestHeaderKeyPanicsWithoutAFieldName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Webhook Id", "Webhook-Id:"} {
		require.Panics(t, func() { webhook.HeaderKey(name) }, name)
	}
}
