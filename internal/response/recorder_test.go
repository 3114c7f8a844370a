package response_test

import (
	"io"
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
	rec := new(response.Recorder)
	rec.Init(client, http.MethodPost, response.Settings{Echo: "X-Echo", Limit: limit}, nil)
	return rec, client
}

func TestRecorderKeepsTheAnswerBack(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	for returned, status := range map[bool]int{true: http.StatusOK, false: 0} {
		rec, _ := recorder(100)
		rec.Close(returned)
		require.Equal(t, status, rec.Status())
		require.Equal(t, returned, rec.Silent())
	}
}

type witness struct{ told int }

func (w *witness) WroteLate() { w.told++ }

// What a silent handler writes after its return is noticed, and told once.
func TestLateWriteIsNoticed(t *testing.T) {
	t.Parallel()
	writes := map[string]func(*response.Recorder){
		"WriteHeader": func(rec *response.Recorder) { rec.WriteHeader(http.StatusCreated) },
		"Write":       func(rec *response.Recorder) { _, _ = rec.Write([]byte("late")) },
		"WriteString": func(rec *response.Recorder) { _, _ = rec.WriteString("late") },
	}
	for name, write := range writes {
		for _, silent := range []bool{true, false} {
			var w witness
			rec := new(response.Recorder)
			rec.Init(httptest.NewRecorder(), http.MethodPost, response.Settings{Echo: "X-Echo", Limit: 100}, &w)
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
	t.Parallel()
	for name, limit := range map[string]int64{"kept": 100, "too large": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
	t.Parallel()
	rec, client := recorder(int64(len("Location/charges/1X-Statedone") + 6 + 3))
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

// The field that echoes the key is the caller's. The handler does not see it and so cannot
// remove it, but may set one of its own.
func TestEchoIsHiddenFromTheHandler(t *testing.T) {
	t.Parallel()
	for name, own := range map[string][]string{"echo": nil, "of the handler": {"own"}} {
		client := httptest.NewRecorder()
		client.Header().Set("X-Echo", "key")
		rec := new(response.Recorder)
		rec.Init(client, http.MethodPost, response.Settings{Echo: "X-Echo", Limit: 100}, nil)
		require.NotContains(t, rec.Header(), "X-Echo")
		want := "key"
		if own != nil {
			rec.Header()["X-Echo"], want = own, own[0]
		}
		rec.Close(true)
		a := rec.Answer()
		rec.Respond()
		require.Equal(t, []string{want}, client.Header().Values("X-Echo"), name)
		require.Len(t, a.Header, len(own), name)
	}
}

func TestRecordedFieldsAreSorted(t *testing.T) {
	t.Parallel()
	got := response.Recorded(http.Header{"Vary": {"Origin", "Accept"}, "Set-Cookie": {"a=b"}, "Etag": {`"1"`}, "Content-Length": {"5"}, "X-Own": {"1"}}, []string{"X-Own"})
	require.Equal(t, []answer.Field{{Name: "Etag", Values: []string{`"1"`}}, {Name: "Vary", Values: []string{"Origin", "Accept"}}}, got)
}

// All that is recorded counts in the limit, and the Location that stands for the rest does so
// too.
func TestFieldsCountInTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 4 << 10
	large := strings.Repeat("x", limit)
	handlers := map[string]func(w http.ResponseWriter){
		"header":   func(w http.ResponseWriter) { w.Header().Set("X-Large", large) },
		"added":    func(w http.ResponseWriter) { w.Header().Add("X-Outer", large) },
		"location": func(w http.ResponseWriter) { w.Header().Set("Location", "/"+large) },
		"trailer": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "body")
			w.Header().Set(http.TrailerPrefix+"X-Large", large)
		},
		"type of the body": func(w http.ResponseWriter) { _, _ = io.WriteString(w, large[1:]) },
		"streamed": func(w http.ResponseWriter) {
			w.Header().Set("X-Large", large)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "body")
		},
	}
	for name, h := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bare := httptest.NewRecorder()
			bare.Header().Set("X-Outer", "1")
			h(bare)
			client := httptest.NewRecorder()
			client.Header().Set("X-Outer", "1")
			rec := new(response.Recorder)
			rec.Init(client, http.MethodPost, response.Settings{Limit: limit}, nil)
			h(rec)
			rec.Close(true)
			a := rec.Answer()
			rec.Respond()
			require.Equal(t, answer.KindNotKept, a.Kind)
			require.Less(t, len(a.Encode("key", [32]byte{})), 100)
			require.Equal(t, bare.Body.String(), client.Body.String(), "the client gets all of it")
			require.Equal(t, bare.Result().Trailer, client.Result().Trailer)
			for _, name := range []string{"X-Large", "X-Outer", "Location"} {
				require.Equal(t, bare.Result().Header.Values(name), client.Result().Header.Values(name), name)
			}
		})
	}
}

// The Location of an answer that is not kept is the one that a kept answer would have: that of the
// handler, unless the field is not recorded.
func TestLocationOfAnAnswerThatIsNotKept(t *testing.T) {
	t.Parallel()
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
			rec.Header().Set(http.TrailerPrefix+"X-Large", strings.Repeat("x", 101))
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
				t.Parallel()
				client := httptest.NewRecorder()
				if c.outer != nil {
					client.Header()["Location"] = c.outer
				}
				rec := new(response.Recorder)
				rec.Init(client, http.MethodPost, response.Settings{Limit: 100, Drop: c.drop}, nil)
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
