package response_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/response"
)

// recorder returns a Recorder for a POST, in front of what a client receives.
func recorder(limit int64) (*response.Recorder, *httptest.ResponseRecorder) {
	client := httptest.NewRecorder()
	rec := started(client, response.Settings{Echo: "X-Echo", Limit: limit}, nil)
	return rec, client
}

func TestRecorderKeepsTheAnswerBack(t *testing.T) {
	rec, client := recorder(100)
	require.Zero(t, rec.Status())
	rec.Header().Set("X-State", "done")
	rec.WriteHeader(http.StatusCreated)
	_, err := io.WriteString(rec, "body")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, rec.Status())
	rec.Close(true)
	require.False(t, rec.Silent())
	require.Equal(t, "body", string(rec.Answer().Body))
	require.False(t, rec.Sent())
	require.Empty(t, client.Body.String())
	require.Empty(t, client.Header())

	rec.Respond()
	require.Equal(t, http.StatusCreated, client.Code)
	require.Equal(t, "done", client.Header().Get("X-State"))
	require.Equal(t, "body", client.Body.String())
}

func TestSilentHandlerAnswers200OnlyIfItReturns(t *testing.T) {
	for returned, status := range map[bool]int{true: http.StatusOK, false: 0} {
		rec, _ := recorder(100)
		rec.Close(returned)
		require.Equal(t, status, rec.Status())
		require.Equal(t, returned, rec.Silent())
	}
}

type witness struct{ told int }

func (w *witness) WroteLate()   { w.told++ }
func (w *witness) HeadLeaves()  {}
func (w *witness) Unsaid() bool { return false }

// What a silent handler writes after its return is noticed, and told once.
func TestLateWriteIsNoticed(t *testing.T) {
	writes := map[string]func(*response.Recorder){
		"WriteHeader": func(rec *response.Recorder) { rec.WriteHeader(http.StatusCreated) },
		"Write":       func(rec *response.Recorder) { _, _ = rec.Write([]byte("late")) },
		"WriteString": func(rec *response.Recorder) { _, _ = rec.WriteString("late") },
	}
	for name, write := range writes {
		for _, silent := range []bool{true, false} {
			var w witness
			rec := started(httptest.NewRecorder(), response.Settings{Echo: "X-Echo", Limit: 100}, &w)
			if !silent {
				rec.WriteHeader(http.StatusOK)
			}
			rec.Close(true)
			require.False(t, rec.Late(), name)
			write(rec)
			write(rec)
			require.Equal(t, silent, rec.Late(), name)
			require.Equal(t, silent, w.told == 1, name)
		}
	}
}

// An answer is short if the handler wrote less than it declared, whether or not the bytes
// are out or kept.
func TestShortAnswer(t *testing.T) {
	for name, limit := range map[string]int64{"kept": 100, "too large": 4} {
		t.Run(name, func(t *testing.T) {
			rec, _ := recorder(limit)
			require.False(t, rec.Short())
			rec.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(rec, "123")
			require.True(t, rec.Short())
			rec.Flush()
			require.True(t, rec.Short())
			_, _ = io.WriteString(rec, "45")
			require.False(t, rec.Short())
		})
	}
}

func TestAnswerThatIsTooLargeIsNotKept(t *testing.T) {
	rec, client := recorder(3)
	rec.Header().Set("Location", "/charges/1")
	rec.Header().Set("X-State", "done")
	rec.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(rec, "1234")
	require.True(t, rec.Sent())
	require.Equal(t, "1234", client.Body.String())
	rec.Close(true)
	a := rec.Answer()
	require.Equal(t, answer.KindNotKept, a.Kind)
	require.Equal(t, http.StatusCreated, a.Status)
	require.Equal(t, []answer.Field{{Name: "Location", Values: []string{"/charges/1"}}}, a.Header)
	require.Equal(t, "/charges/1", a.Location())
	require.Equal(t, rec.NotKept(), a)
}

// The fields by which the caller tells the key and its life are the caller's. The handler may pass on
// those of a service behind it, however they are spelled, in the header, in an informational answer or
// in the trailer: the client does not get them, and neither has the record.
func TestFieldsOfTheCallerAreNoneOfTheHandlers(t *testing.T) {
	pass := map[string]func(w http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {},
		"set": func(w http.ResponseWriter) {
			w.Header().Set("X-Echo", "inner")
			w.Header().Set("X-Expiry", "inner")
		},
		"added": func(w http.ResponseWriter) {
			w.Header().Add("X-Echo", "inner")
			w.Header().Add("X-Expiry", "inner")
		},
		"removed": func(w http.ResponseWriter) {
			w.Header()["X-Echo"], w.Header()["X-Expiry"] = nil, nil
		},
		"deleted": func(w http.ResponseWriter) {
			w.Header().Del("X-Echo")
			w.Header().Del("X-Expiry")
		},
		"spelled otherwise": func(w http.ResponseWriter) {
			w.Header()["x-echo"], w.Header()["X-EXPIRY"] = []string{"inner"}, []string{"inner"}
		},
		"informational": func(w http.ResponseWriter) {
			w.Header().Set("X-Echo", "inner")
			w.WriteHeader(http.StatusEarlyHints)
		},
		"trailer": func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Echo, X-Expiry")
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Echo", "inner")
			w.Header().Set(http.TrailerPrefix+"X-Expiry", "inner")
			w.Header().Set(http.TrailerPrefix+"X-Echo", "inner")
		},
	}
	for name, h := range pass {
		for _, flush := range []bool{false, true} {
			for _, own := range []bool{false, true} {
				client, seen := httptest.NewRecorder(), &seenHeaders{}
				seen.ResponseWriter = client
				want := http.Header{}
				if own {
					want = http.Header{"X-Echo": {"key"}, "X-Expiry": {"1"}}
				}
				maps.Copy(client.Header(), want.Clone())
				rec := started(seen, response.Settings{Echo: "X-Echo", Expiry: "X-Expiry", Limit: 100}, nil)
				require.NotContains(t, rec.Header(), "X-Echo")
				h(rec)
				if flush {
					rec.Flush()
				}
				rec.Close(true)
				a := rec.Answer()
				rec.Respond()
				require.NotEmpty(t, seen.headers)
				for _, h := range append(seen.headers, client.Header()) {
					delete(h, "Content-Type")
					require.Equal(t, want, h, "%s, flushed %v", name, flush)
				}
				require.NotContains(t, fmt.Sprint(a.Header, a.Trailer), "cho")
				require.NotContains(t, fmt.Sprint(a.Header, a.Trailer), "xpiry")
				require.NotContains(t, fmt.Sprint(a.Header, a.Added, a.Trailer), "inner")
			}
		}
	}
}

// A seenHeaders keeps each header as it goes out.
type seenHeaders struct {
	http.ResponseWriter
	headers []http.Header
}

func (w *seenHeaders) WriteHeader(status int) {
	w.headers = append(w.headers, w.Header().Clone())
	w.ResponseWriter.WriteHeader(status)
}

func (w *seenHeaders) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestRecordedFieldsAreSorted(t *testing.T) {
	got := response.Recorded(http.Header{"Vary": {"Origin", "Accept"}, "Set-Cookie": {"a=b"}, "Etag": {`"1"`}, "Content-Length": {"5"}, "X-Own": {"1"}, "X-Key": {"k"}, "X-Ttl": {"1"}},
		response.Settings{Echo: "X-Key", Expiry: "X-Ttl", Drop: answer.NamesOf("X-Own")})
	require.Equal(t, []answer.Field{{Name: "Etag", Values: []string{`"1"`}}, {Name: "Vary", Values: []string{"Origin", "Accept"}}}, got)
}

// Fields have a limit of their own: they take nothing from that of the body, and a body may be empty.
func TestFieldsHaveALimitOfTheirOwn(t *testing.T) {
	const limit, cost = 100, 32 // for a field, and of its name
	most := strings.Repeat("x", answer.MaxFields-cost-len("X-Large"))
	handlers := map[string]func(w http.ResponseWriter, value string){
		"header": func(w http.ResponseWriter, value string) { w.Header().Set("X-Large", value) },
		"added":  func(w http.ResponseWriter, value string) { w.Header().Add("X-Outer", value) },
		"many": func(w http.ResponseWriter, value string) {
			for range answer.MaxFields / (cost + len("X-Large")) {
				w.Header().Add("X-Large", "")
			}
			if len(value) > len(most) {
				w.Header().Add("X-Large", "")
			}
		},
		"trailer": func(w http.ResponseWriter, value string) {
			w.WriteHeader(http.StatusOK)
			w.Header().Set(http.TrailerPrefix+"X-Large", value)
		},
		"streamed": func(w http.ResponseWriter, value string) {
			w.Header().Set("X-Large", value)
			w.(http.Flusher).Flush()
		},
	}
	for name, h := range handlers {
		for _, body := range []string{"", strings.Repeat("y", limit)} {
			for _, over := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", body of ", len(body), ", over ", over), func(t *testing.T) {
					value := most
					if over {
						value += "x"
					}
					respond := func(w http.ResponseWriter) {
						w.Header()["Content-Type"] = nil // which would count
						w.Header()["X-Outer"] = []string{"1"}
						h(w, value)
						_, _ = io.WriteString(w, body)
					}
					bare, client := httptest.NewRecorder(), httptest.NewRecorder()
					respond(bare)
					rec := new(response.Recorder)
					client.Header()["Content-Type"], client.Header()["X-Outer"] = nil, []string{"1"}
					rec.Init(client, http.MethodPost, response.Settings{Limit: limit}, nil)
					respond(rec)
					rec.Close(true)
					a := rec.Answer()
					rec.Respond()
					want := answer.KindKept
					if over {
						want = answer.KindNotKept
						require.Less(t, len(a.Encode("key", [32]byte{})), 100)
					}
					require.Equal(t, want, a.Kind)
					require.Equal(t, bare.Body.String(), client.Body.String(), "the client gets all of it")
					require.Equal(t, bare.Result().Trailer, client.Result().Trailer)
					for _, name := range []string{"X-Large", "X-Outer"} {
						require.Equal(t, bare.Result().Header.Values(name), client.Result().Header.Values(name), name)
					}
				})
			}
		}
	}
}

// The Location of an answer that is not kept is the one that a kept answer would have: that of the
// handler, unless the field is not recorded.
func TestLocationOfAnAnswerThatIsNotKept(t *testing.T) {
	set := func(values ...string) func(h http.Header) {
		return func(h http.Header) { h["Location"] = values }
	}
	outer := []string{"/outer"}
	cases := map[string]struct {
		outer  []string
		change func(h http.Header)
		drop   []string
		want   string
	}{
		"set":                       {nil, set("/charges/1"), nil, "/charges/1"},
		"set, and another outside":  {outer, set("/charges/1"), nil, "/charges/1"},
		"of the route":              {nil, set("/secret"), []string{"Location"}, ""},
		"of the route, and outside": {outer, set("/secret"), []string{"Location"}, ""},
		"of the connection": {nil, func(h http.Header) {
			h["Location"], h["Connection"] = []string{"/secret"}, []string{"location"}
		}, nil, ""},
		"outside":          {outer, func(http.Header) {}, nil, ""},
		"outside, removed": {outer, func(h http.Header) { h.Del("Location") }, nil, ""},
		"outside, added":   {outer, set("/outer", "/secret"), []string{"Location"}, ""},
	}
	ends := map[string]func(rec *response.Recorder){
		"too large": func(rec *response.Recorder) { _, _ = rec.Write(make([]byte, 101)) },
		"too large, and a stream": func(rec *response.Recorder) {
			rec.Flush()
			_, _ = rec.Write(make([]byte, 101))
		},
		"too large with its trailer": func(rec *response.Recorder) {
			rec.Header().Set(http.TrailerPrefix+"X-Large", strings.Repeat("x", answer.MaxFields))
		},
		"short": func(rec *response.Recorder) { _, _ = rec.Write(make([]byte, 1)) },
		"short, and a stream": func(rec *response.Recorder) {
			_, _ = rec.Write(make([]byte, 1))
			rec.Flush()
		},
	}
	for name, c := range cases {
		for how, end := range ends {
			t.Run(name+", "+how, func(t *testing.T) {
				client := httptest.NewRecorder()
				if c.outer != nil {
					client.Header()["Location"] = c.outer
				}
				rec := started(client, response.Settings{Limit: 100, Drop: answer.NamesOf(c.drop...)}, nil)
				c.change(rec.Header())
				sent := rec.Header().Values("Location")
				short := strings.HasPrefix(how, "short")
				if short {
					rec.Header().Set("Content-Length", "10")
				}
				rec.WriteHeader(http.StatusCreated)
				end(rec)
				rec.Close(true)
				require.Equal(t, short, rec.Short())
				a := rec.Answer()
				if short {
					a = rec.NotKept()
				}
				require.Equal(t, answer.KindNotKept, a.Kind)
				require.Equal(t, c.want, a.Location())
				require.NotContains(t, string(a.Encode("key", [32]byte{})), "secret")
				rec.Respond()
				require.Equal(t, sent, client.Result().Header.Values("Location"), "the client of the run gets it")
			})
		}
	}
}
