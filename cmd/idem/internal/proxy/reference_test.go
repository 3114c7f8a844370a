package proxy

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ word, body, want string }{
		{"", `{"order":"77"}`, "none"},
		{"header:x-order", `{}`, "h-5"},
		{"header:X-Twice", `{}`, ""},
		{"header:X-None", `{}`, ""},
		{"field:order", `{"order":"77"}`, "77"},
		{"field:order", `{"order":77}`, "77"},
		{"field:order", `{"order":12345678901234567890}`, "12345678901234567890"},
		{"field:order.id", `{"order":{"id":"a b"}}`, "a b"},
		{"field:order", `{"order":{"id":"a b"}}`, ""},
		{"field:order.id", `{"order":"77"}`, ""},
		{"field:order", `{"order":true}`, ""},
		{"field:order", `{"Order":"77"}`, ""},
		{"field:order", `[{"order":"77"}]`, ""},
		{"field:order", `order=77`, ""},
		{"field:order", ``, ""},
	} {
		f, err := referenceOf(c.word)
		require.NoError(t, err)
		if f == nil {
			require.Equal(t, c.want, "none")
			continue
		}
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("X-Order", "h-5")
		r.Header["X-Twice"] = []string{"a", "b"}
		require.Equal(t, c.want, f(r, []byte(c.body)), "%+v", c)
	}
}
