package response_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/internal/response"
)

// However many names of fields a server behind the handler makes up, an answer costs no more than its
// length. Where each name is looked for among all others, these take a minute.
func TestManyNamesCostNoMoreThanTheyAreLong(t *testing.T) {
	if race.Enabled {
		t.Skip("one answer after the other: there is nothing to detect")
	}
	const n, most = 50_000, 25 * time.Second // they take a tenth of a second, and on a busy machine several
	names, list := make([]string, n), ""
	fields := make([]answer.Field, n)
	for i := range names {
		names[i] = fmt.Sprint("X-", i)
		fields[i] = answer.Field{Name: names[i], Values: []string{"1"}}
	}
	list = strings.Join(names, ", ")
	set := func(h http.Header) {
		for _, name := range names {
			h[name] = []string{"1"}
		}
	}
	handlers := map[string]func(w http.ResponseWriter){
		"trailer that is announced": func(w http.ResponseWriter) {
			w.Header().Set("Trailer", list)
			w.WriteHeader(http.StatusOK)
			set(w.Header())
		},
		"trailer with the prefix": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusOK)
			for _, name := range names {
				w.Header().Set(http.TrailerPrefix+name, "1")
			}
		},
		"trailer that is in the header": func(w http.ResponseWriter) {
			w.Header().Set("Trailer", list)
			set(w.Header())
			w.WriteHeader(http.StatusOK)
			clear(w.Header())
		},
		"one name again and again": func(w http.ResponseWriter) {
			w.Header().Set("Trailer", strings.Repeat("X-Sum, ", n))
			w.WriteHeader(http.StatusOK)
			for range n {
				w.Header().Add("X-Sum", "1")
			}
		},
		"fields of the connection": func(w http.ResponseWriter) {
			w.Header().Set("Connection", strings.ReplaceAll(list, "X-", "Y-"))
			set(w.Header())
		},
		"fields of the route": func(w http.ResponseWriter) { set(w.Header()) },
	}
	drop := answer.NamesOf(strings.Split(strings.ReplaceAll(list, "X-", "Y-"), ", ")...)
	for name, h := range handlers {
		for _, flush := range []bool{false, true} {
			start := time.Now()
			rec := started(headerWriter{}, response.Settings{Limit: 1 << 20, Drop: drop}, nil)
			h(rec)
			if flush {
				rec.Flush()
			}
			rec.Close(true)
			a := rec.Answer()
			rec.Respond()
			require.Equal(t, answer.KindNotKept, a.Kind)
			require.Less(t, time.Since(start), most, "%s, flushed %v", name, flush)
		}
	}
	start := time.Now()
	response.Send(headerWriter{}, &answer.Answer{Status: http.StatusOK, Trailer: fields}, nil)
	require.Less(t, time.Since(start), most, "a replay")
}
