package journal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/formtest"
)

func TestStoredFormOfAJournal(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	lines := []line{
		{
			Name: "invoice 1", Key: "8e03978e-40d5-43e8-bc93-6894a57f9324", Since: at, Method: "POST",
			URL: "https://server.test/charges", Type: "application/json", Body: []byte(`{"amount":1}`),
		},
		{Name: "invoice 1", Expires: at.Add(24 * time.Hour)},
		{Name: "invoice 1", Finished: at.Add(time.Second), Result: []byte("charge 7")},
	}
	encoded := func(v any) []byte {
		text, err := encode(v)
		require.NoError(t, err)
		return text
	}
	file := func(h header, lines ...line) []byte {
		text := encoded(h)
		for _, l := range lines {
			text = append(text, encoded(l)...)
		}
		return text
	}
	formtest.Check(t, "journal", version,
		formtest.Case{
			Name: "journal", Text: true, Encode: func() []byte { return file(header{Version: version, Size: 1024}, lines...) },
			Decode: func(stored []byte) (any, error) {
				c, err := read(append(stored, make([]byte, 1024-len(stored))...))
				return c.lines, err
			},
			Want: lines, Of: header{Version: version, Size: 1024},
		},
		formtest.Case{
			Name: "replaced", Text: true, Encode: func() []byte { return file(header{Version: version, Replaced: true}) },
			Decode: func(stored []byte) (any, error) { return decodeHeader(stored) },
			Want:   header{Version: version, Replaced: true},
		},
	)
}
