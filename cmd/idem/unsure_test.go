package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/console"
	"example.com/idempotency/internal/inspect"
)

// This file is about servers that are no console, or none that can be relied on.

// says returns a handler that answers so.
func says(status int, kind, body string, more ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		for n := 0; n < len(more); n += 2 {
			w.Header().Set(more[n], more[n+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// halfway is cut in the middle of an answer.
func halfway(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	w.Header().Set(inspect.ConsoleHeader, inspect.ConsoleForm)
	_, _ = w.Write([]byte("{"))
}

func hangs(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

const (
	page  = "<!DOCTYPE html><title>Sign in</title>"
	isOne = inspect.ConsoleHeader
)

// strange are servers, with what is said of each. Looking fails with code, and deciding with decides.
var strange = []struct {
	name          string
	h             http.HandlerFunc
	says          string
	code, decides int
}{
	{"a page to sign in at", says(200, "text/html; charset=utf-8", page), "status 200 OK, a page of HTML. It may be a page to sign in at", 1, 6},
	{"HTML without a type", says(200, "", " "+page), "a page of HTML", 1, 6},
	{"a redirect", says(302, "text/html", page, "Location", "https://127.0.0.1:1/in?state=hunter2"), "which leads to https://127.0.0.1:1/in and is not followed", 1, 1},
	{"a proxy that refuses", says(401, "text/html", page, "Www-Authenticate", "Basic"), "status 401 Unauthorized, a page of HTML. Give the credentials", 1, 1},
	{"a firewall", says(403, "text/plain", "no"), "status 403 Forbidden, text/plain. Give the credentials", 1, 1},
	{"another path", says(404, "text/plain", "404 page not found"), "Is the path of the console right", 1, 1},
	{"a crash", says(500, "text/html", page), "status 500 Internal Server Error, a page of HTML. Something in front of the service, or the service, has failed", 6, 6},
	{"a gateway without the service", says(502, "application/json", "{}"), "status 502 Bad Gateway", 6, 6},
	{"JSON of something else", says(200, "application/json", `{"type":"now"}`), "what answers is no console", 1, 6},
	{"a later form", says(200, "application/json", `{}`, isOne, "2"), `the console speaks form "2", and this idem speaks form 1`, 1, 6},
	{"nonsense of a console", says(200, "application/json", `{"type":"sentence"}`, isOne, "1"), "it may be of another version", 1, 6},
	{"a status of a console", says(500, "application/json", `{}`, isOne, "1"), "with status 500 and no error", 6, 6},
	{"an error of a console", says(500, "application/json", `{"type":"error","code":1,"error":"The record is damaged."}`, isOne, "1"), "the record is damaged.", 1, 1},
	{"a code that is none", says(422, "application/json", `{"type":"error","code":256,"error":"No."}`, isOne, "1"), "no.", 1, 1},
	{"a store that is away", says(503, "application/json", `{"type":"error","code":6,"error":"The store does not answer: EOF"}`, isOne, "1"), "the store does not answer: EOF", 6, 6},
	{"a stranger to the console", says(401, "application/json", `{"type":"error","code":1,"error":"Sign in to see this console."}`, isOne, "1"), "sign in to see this console. Give the credentials", 1, 1},
	{"an answer without an end", says(200, "application/json", `{"type":"now","says":"`+strings.Repeat("a", 16<<20), isOne, "1"), "larger than 16 MiB", 1, 6},
	{"a connection that breaks", cut, "the service cannot be reached: EOF", 6, 6},
	{"an answer that breaks", halfway, "the answer of the service broke off", 6, 6},
	{"a server that hangs", hangs, "no answer in time", 6, 6},
}

func at(t *testing.T, h http.HandlerFunc) (flags []string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return []string{"--server", server.URL, "--server-header", "Authorization: Bearer " + token}
}

// What is no answer of a console is told as what it is, and never with what was sent to get it.
func TestServerIsStrange(t *testing.T) {
	t.Parallel()
	for _, c := range strange {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			flags := at(t, c.h)
			if c.name == "a server that hangs" {
				flags = append(flags, "--server-timeout", "50ms")
			}
			for _, command := range [][]string{{"held"}, {"stats"}, {"find", "--reference", "77"}, {"find", "--shared", "--key", "k"}, {"erase", "--tenant", "t", "--reason", "x"}} {
				got := call(t, append(command, flags...)...)
				require.Equal(t, c.code, got.code, "%v: %s", command, got.err)
				require.NotContains(t, got.out+got.err, token)
				require.NotContains(t, got.out+got.err, "hunter2")
				require.NotContains(t, got.err, "may have been recorded")
			}
			require.Contains(t, call(t, append([]string{"held"}, flags...)...).err, c.says)
			got := call(t, append([]string{"held", "-o", "json"}, flags...)...)
			require.Contains(t, got.err, fmt.Sprintf(`{"type":"error","code":%d,"error":"`, c.code))
			require.NotContains(t, got.err, token)
		})
	}
}

// A decision whose answer is lost may have been made, and who repeats it finds out.
func TestServerDecidesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range strange {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := serverPlace(t, console.Options{Authorize: isAda})
			s := serve(t, p.records)
			s.post("POST /payouts", "a", broken, hold)
			var lost atomic.Bool
			flags := at(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && lost.CompareAndSwap(true, false) {
					forward(httptest.NewRecorder(), r, p.flags[1])
					c.h(w, r)
					return
				}
				forward(w, r, p.flags[1])
			})
			if c.name == "a server that hangs" {
				flags = append(flags, "--server-timeout", "3s")
			}
			args := append(s.named([]string{"resolve", "name:a", "resume", "--seen", "seen:a", "--reason", "x"}), flags...)
			lost.Store(true)
			got := call(t, append(args, "--dry-run")...)
			require.NotContains(t, got.err, "may have been recorded")
			require.Equal(t, args[4], s.seen("a"))
			lost.Store(true)
			got = call(t, args...)
			require.Equal(t, c.decides, got.code, got.err)
			require.NotContains(t, got.out+got.err, token)
			require.Equal(t, c.decides == inspect.ExitUnreachable, strings.Contains(got.err, "may have been recorded all the same. Repeat the command, which does no harm, or look: idem why "+args[1]))
			require.NotEqual(t, args[4], s.seen("a"), "it was made")
			got = call(t, args...)
			require.Equal(t, inspect.ExitOK, got.code, got.err)
			require.Contains(t, got.out, "Done, decision")
			info, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: "alice", Value: "a"})
			require.NoError(t, err)
			require.Len(t, info.Decisions, 1)
		})
	}
}

// Erasing whose answer is lost may have begun.
func TestServerErasesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	p := serverPlace(t, console.Options{Authorize: isAda})
	fill(t, p)
	var posts atomic.Int32
	flags := at(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/erase" && posts.Add(1) == 2 {
			cut(w, r)
		}
		forward(w, r, p.flags[1])
	})
	got := call(t, append([]string{"erase", "--tenant", "alice", "--reason", "x"}, flags...)...)
	require.Equal(t, inspect.ExitUnreachable, got.code)
	require.Contains(t, got.err, "some may have been erased by now. Repeat the command")
	require.Empty(t, got.out)
	require.Equal(t, inspect.ExitOK, call(t, append([]string{"erase", "--tenant", "alice", "--reason", "x"}, flags...)...).code)
}

// A tenant of which something has changed since it was counted is left as it is.
func TestServerErasesWhatWasCounted(t *testing.T) {
	t.Parallel()
	p := serverPlace(t, console.Options{Authorize: isAda})
	s := fill(t, p)
	var posts atomic.Int32
	flags := at(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/erase" && posts.Add(1) == 2 {
			s.post("POST /orders", "order-90", created)
		}
		forward(w, r, p.flags[1])
	})
	got := call(t, append([]string{"erase", "--tenant", "alice", "--reason", "x"}, flags...)...)
	require.Equal(t, inspect.ExitChanged, got.code, got.err)
	require.Contains(t, got.err, "changed meanwhile, and nothing was erased")
	require.NotEmpty(t, s.seen("order-78"))
}

// A console of an earlier version lacks addresses, and refuses what it does not know: no record is missing, and nothing is decided.
func TestServerOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	p := serverPlace(t, console.Options{Authorize: isAda})
	s := fill(t, p)
	flags := at(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/list", "/counts", "/erase":
			r.URL.Path = "/nothing"
		}
		if r.Method == http.MethodPost {
			if err := r.ParseForm(); err != nil {
				panic(err)
			}
			known := url.Values{}
			for _, field := range []string{"decision", "seen", "reason", "scope", "key"} {
				if r.PostForm.Has(field) {
					known[field] = r.PostForm[field]
				}
			}
			r.Body = http.NoBody
			r, _ = http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), strings.NewReader(known.Encode()))
			r.Header = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/x-www-form-urlencoded"}, "Authorization": {"Bearer " + token}}
		}
		forward(w, r, p.flags[1])
	})
	for _, command := range [][]string{{"stats"}, {"erase", "--tenant", "alice", "--reason", "x"}} {
		got := call(t, append(command, flags...)...)
		require.Equal(t, inspect.ExitError, got.code, command)
		require.Contains(t, got.err, "it is of an earlier version than this idem")
	}
	seen := s.seen("payout-1")
	got := call(t, append(s.named([]string{"resolve", "name:payout-1", "resume", "--dry-run", "--reason", "x"}), flags...)...)
	require.Equal(t, inspect.ExitError, got.code)
	require.Equal(t, seen, s.seen("payout-1"), "what was only to be tried is not done")
	require.Equal(t, inspect.ExitNotFound, call(t, append([]string{"why", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}, flags...)...).code)
}

// A terminal does not obey what a service says.
func TestServerIsNotObeyed(t *testing.T) {
	t.Parallel()
	const evil = `\u001b[2J\u009b\u202e`
	record := strings.ReplaceAll(`{"type":"record","record":"X","route":"X","state":"X","cause":"X","attempt":1,"steps":["X"],"in_doubt":["X"],"started":"X","trace":"X","seen":"X",
		"decided":[{"id":"X","at":"X","attempt":1,"decision":"X","actor":"X","reason":"X"}]}`, "X", evil)
	decision := strings.ReplaceAll(`{"type":"decision","record":"X","decision":"X","allowed":true,"says":"X","answer":{"content_type":"X"},"seen":"X","id":"X","actor":"X","reason":"X"}`, "X", evil)
	answers := map[string]string{
		"/":     `{"type":"now","records":[` + record + `],"next":"` + evil + `"}`,
		"/find": `{"type":"found","records":[` + record + `],"next":"` + evil + `"}`,
		"/list": `{"type":"list","records":[{"record":"` + evil + `","route":"` + evil + `","state":"held"}]}`, "/counts": `{"type":"counts","counts":[{"route":"` + evil + `","state":"` + evil + `"}]}`,
		"POST": decision, "GET": `{"type":"why","record":` + record + `,"runs":[{"attempt":1,"started":"` + evil + `","trace":"` + evil + `"}],"happened":"` + evil + `","decisions":[` + decision + `]}`,
		"/erase": `{"type":"error","code":1,"error":"` + evil + `"}`,
	}
	flags := at(t, func(w http.ResponseWriter, r *http.Request) {
		text, known := answers[r.URL.Path]
		status := http.StatusOK
		if !known {
			text = answers[r.Method]
		}
		if strings.Contains(text, `"error"`) {
			status = http.StatusUnprocessableEntity
		}
		says(status, "application/json", text, isOne, "1")(w, r)
	})
	const name, seen = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "held/1/00000000000000000000000000000001"
	for _, args := range [][]string{
		{"held", "--limit", "1"}, {"find", "--tenant", "t", "--limit", "1"}, {"stats"}, {"why", name}, {"resolve", name, "resume", "--seen", seen, "--reason", "x"}, {"erase", "--tenant", "t", "--reason", "x"},
	} {
		for _, format := range []string{asTable, asJSON} {
			got := call(t, append(append(args, "-o", format), flags...)...)
			require.NotEmpty(t, got.out+got.err, args)
			require.NotContains(t, got.out+got.err, "\x1b", args)
			require.NotContains(t, got.out+got.err, "\u009b", args)
			require.NotContains(t, got.out+got.err, "\u202e", args)
		}
	}
}

// A console that does not know how old is enough is asked to count, and never to erase.
func TestEraseThroughAnOlderConsole(t *testing.T) {
	t.Parallel()
	var erased atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("decision") != "" {
			erased.Store(true)
		}
		says(http.StatusOK, "application/json", `{"type":"erased","dry_run":true,"completed":2,"seen":"2/0/0/0/0/00"}`, isOne, inspect.ConsoleForm)(w, r)
	}))
	t.Cleanup(server.Close)
	got := call(t, "erase", "--tenant", "alice", "--older-than", "720h", "--reason", "x", "--server", server.URL).exits(t, inspect.ExitError)
	require.Contains(t, got.err, "Nothing was erased")
	require.False(t, erased.Load())
	call(t, "erase", "--tenant", "alice", "--reason", "x", "--server", server.URL).exits(t, inspect.ExitOK)
	require.True(t, erased.Load())
}
