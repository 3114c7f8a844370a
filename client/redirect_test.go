package client_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

// A request that a 303 has answered was executed, whatever becomes of the GET that http.Client sends then.
func TestFailureAfterARedirectIsNoDenial(t *testing.T) {
	see := answer{status: http.StatusSeeOther, header: map[string]string{"Location": "/2"}}
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		answers []answer
		chosen  bool
	}{
		"the next request fails": {[]answer{see, {err: refused}}, true},
		"the one after it":       {[]answer{see, see, {err: refused}}, true},
		"of a key by the client": {[]answer{see, {err: refused}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			base := answering(c.answers...)
			ctx := t.Context()
			if c.chosen {
				ctx = client.WithKey(ctx, "order-1")
			}
			hc := &http.Client{Transport: newTransport(t, base, quick)}
			resp, err := hc.Do(post(ctx, place, "{}")) //nolint:bodyclose // there is none
			require.Nil(t, resp)
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
			require.ErrorIs(t, err, refused)
			key := base.requests()[0].key[0]
			require.Equal(t, key, failure(t, err).Key)
			require.Empty(t, base.requests()[1].key)

			// Whoever goes on by the error sends the first request once more.
			base.answers = []answer{{status: http.StatusCreated}}
			got := answered(t, newTransport(t, base, quick), post(failure(t, err).Context(t.Context()), place, "{}"))
			require.Equal(t, http.StatusCreated, got.status)
			require.Equal(t, key, base.requests()[len(base.requests())-1].key[0])
		})
	}
}

// A redirect to what is no URL is the answer, whatever http.Client makes of redirects.
func TestRedirectToNoPlaceIsTheAnswer(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{"http://[::1", "/%zz", "http://a b/", ":", "/\x7f"} {
			base := answering(answer{status: status, header: map[string]string{"Location": location}})
			hc := &http.Client{Transport: newTransport(t, base, quick)}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, place, strings.NewReader("{}"))
			require.NoError(t, err)
			resp, err := hc.Do(r)
			require.Len(t, base.requests(), 1)
			if status >= 307 { // the request is to be made at that place
				require.ErrorIs(t, err, client.ErrOutcomeUnknown)
				require.ErrorContains(t, err, "Location")
				continue
			}
			require.NoError(t, err, location)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, status, resp.StatusCode)
			require.Equal(t, []string{location}, resp.Header[strings.ToLower("Location")])
		}
	}
}

// Under CheckRedirect only the same request goes to another place.
func TestCheckRedirect(t *testing.T) {
	for status, follows := range map[int]bool{301: false, 302: false, 303: false, 307: true, 308: true} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			there := answer{status: status, header: map[string]string{"Location": "/2"}}
			for want, answers := range map[int][]answer{
				map[bool]int{true: http.StatusCreated, false: status}[follows]: {there, {status: http.StatusCreated}},
				status: {there},
			} {
				base := answering(answers...)
				hc := &http.Client{Transport: newTransport(t, base, quick), CheckRedirect: client.CheckRedirect}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, place, strings.NewReader("{}"))
				require.NoError(t, err)
				resp, err := hc.Do(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, want, resp.StatusCode)
				require.LessOrEqual(t, len(base.requests()), 10)
			}
		})
	}
}
