package response

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The writer of a Tap can flush and be hijacked where the writer behind it can, and nowhere else. The
// rest it has always, and says so where nobody behind it can.
func TestTapHasTheAbilitiesOfTheWriter(t *testing.T) {
	type (
		bare    struct{ http.ResponseWriter }
		flushes struct {
			bare
			http.Flusher
		}
		hijacks struct {
			bare
			http.Hijacker
		}
		both struct {
			flushes
			http.Hijacker
		}
	)
	for _, behind := range []http.ResponseWriter{
		bare{httptest.NewRecorder()},
		flushes{bare: bare{httptest.NewRecorder()}},
		hijacks{bare: bare{httptest.NewRecorder()}},
		both{flushes: flushes{bare: bare{httptest.NewRecorder()}}},
	} {
		tap := NewTap(behind)
		w := tap.Writer()
		for _, ability := range []func(w http.ResponseWriter) bool{is[http.Flusher], is[http.Hijacker]} {
			require.Equal(t, ability(behind), ability(w), "%T", behind)
		}
		require.ErrorIs(t, w.(http.Pusher).Push("/style.css", nil), http.ErrNotSupported)
		require.Nil(t, w.(closeNotifier).CloseNotify())
		require.ErrorIs(t, w.(controller).SetReadDeadline(time.Time{}), http.ErrNotSupported)
		require.ErrorIs(t, w.(controller).SetWriteDeadline(time.Time{}), http.ErrNotSupported)
		require.ErrorIs(t, w.(controller).EnableFullDuplex(), http.ErrNotSupported)
		n, err := w.(io.ReaderFrom).ReadFrom(bytes.NewBufferString("text"))
		require.NoError(t, err)
		require.EqualValues(t, 4, n)
		require.EqualValues(t, 4, tap.Size())
	}
}

func is[T any](w http.ResponseWriter) bool {
	_, ok := w.(T)
	return ok
}

// A controller is what [http.ResponseController] asks for besides Flush and Hijack.
type controller interface {
	SetReadDeadline(deadline time.Time) error
	SetWriteDeadline(deadline time.Time) error
	EnableFullDuplex() error
}

type closeNotifier interface{ CloseNotify() <-chan bool }

// The writer of a Tap has all that a writer of net/http has, and an answer through a Tap is framed as
// without it, also where the handler lets the writer copy.
func TestTapChangesNoAnswerOfAServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("x"), 1000), 0o600))
	type abilities []func(http.ResponseWriter) bool
	always := abilities{is[http.Flusher], is[closeNotifier], is[controller]}
	for name, abilities := range map[string]abilities{
		"HTTP/1.1": append(abilities{is[http.Hijacker], is[io.ReaderFrom]}, always...),
		"HTTP/2.0": append(abilities{is[http.Pusher]}, always...),
	} {
		t.Run(name, func(t *testing.T) {
			var taps []*Tap
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("tap") {
					tap := NewTap(w)
					taps, w = append(taps, tap), tap.Writer()
				}
				for i, has := range abilities {
					if !has(w) {
						panic(fmt.Sprintf("ability %d is missing", i))
					}
				}
				switch r.URL.Path {
				case "/file":
					f, err := os.Open(file)
					if err != nil {
						panic(err)
					}
					defer f.Close()
					_, _ = io.Copy(w, f)
				case "/string":
					_, _ = io.WriteString(w, "text")
				case "/flush":
					_, _ = w.Write([]byte("text"))
					if err := http.NewResponseController(w).Flush(); err != nil {
						panic(err)
					}
				}
			}))
			server.EnableHTTP2 = name == "HTTP/2.0"
			server.StartTLS()
			defer server.Close()
			get := func(path string) string {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
				require.NoError(t, err)
				resp, err := server.Client().Do(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, name, resp.Proto)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				resp.Header.Del("Date")
				return fmt.Sprint(resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding, string(body))
			}
			for i, path := range []string{"/file", "/string", "/flush", "/nothing"} {
				require.Equal(t, get(path), get(path+"?tap"), path)
				want := []struct {
					status int
					size   int64
				}{{200, 1000}, {200, 4}, {200, 4}, {0, 0}}[i]
				require.Equal(t, want.status, taps[i].Status(), path)
				require.Equal(t, want.size, taps[i].Size(), path)
			}
		})
	}
}

// A flush that comes past the Flush of the writer behind, because only one further behind has it, is
// seen: an empty 200 goes out with it.
func TestTapSeesAFlush(t *testing.T) {
	type unwrapped struct{ http.ResponseWriter }
	for name, tt := range map[string]struct {
		behind http.ResponseWriter
		err    error
		status int
	}{
		"of the writer":            {httptest.NewRecorder(), nil, http.StatusOK},
		"of a writer behind":       {&unwrapping{unwrapped{httptest.NewRecorder()}, httptest.NewRecorder()}, nil, http.StatusOK},
		"of nobody":                {unwrapped{httptest.NewRecorder()}, http.ErrNotSupported, 0},
		"to a client that is gone": {&brokenFlusher{unwrapped{httptest.NewRecorder()}}, io.ErrClosedPipe, http.StatusOK},
	} {
		tap := NewTap(tt.behind)
		require.ErrorIs(t, http.NewResponseController(tap.Writer()).Flush(), tt.err, name)
		require.Equal(t, tt.status, tap.Status(), name)
	}
}

type unwrapping struct {
	http.ResponseWriter
	behind http.ResponseWriter
}

func (w *unwrapping) Unwrap() http.ResponseWriter { return w.behind }

type brokenFlusher struct{ http.ResponseWriter }

func (*brokenFlusher) FlushError() error { return io.ErrClosedPipe }

// Through a Tap that keeps fields, they go out as the guard has set them or left them out, whatever the
// handler does.
func TestTapKeepsFields(t *testing.T) {
	writes := map[string]func(w http.ResponseWriter){
		"nothing":     func(http.ResponseWriter) {},
		"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
		"Write":       func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"WriteString": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
		"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"FlushError":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"ReadFrom":    func(w http.ResponseWriter) { _, _ = io.Copy(w, bytes.NewBufferString("x")) },
		"1xx": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Add("X-Key", "inner")
			w.WriteHeader(http.StatusCreated)
		},
	}
	for name, write := range writes {
		for change, set := range map[string]func(h http.Header){
			"set":               func(h http.Header) { h.Set("X-Key", "inner") },
			"added":             func(h http.Header) { h.Add("X-Key", "inner") },
			"removed":           func(h http.Header) { h.Del("X-Key") },
			"spelled otherwise": func(h http.Header) { h["x-key"] = []string{"inner"} },
			"changed":           func(h http.Header) { h["X-Key"][0] = "inner" },
		} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Key", "key")
				tap := Keep(w, "X-Key", "", "X-Expiry")
				defer tap.KeepFields()
				set(tap.Header())
				tap.Header().Set("X-Expiry", "inner")
				tap.Header().Set("Trailer", "x-Key, X-Other")
				write(tap.Writer())
				tap.Header()["X-Key"] = []string{"inner"}
				tap.Header().Set("X-Other", "other")
				tap.Header().Set(http.TrailerPrefix+"X-Expiry", "inner")
			}))
			resp, err := server.Client().Get(server.URL)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			server.Close()
			require.Empty(t, resp.Trailer.Values("X-Key"), "%s, %s", name, change)
			require.Empty(t, resp.Trailer.Values("X-Expiry"), "%s, %s", name, change)
			require.Equal(t, []string{"key"}, resp.Header.Values("X-Key"), "%s, %s", name, change)
			require.Empty(t, resp.Header.Values("X-Expiry"), "%s, %s", name, change)
		}
	}
}
