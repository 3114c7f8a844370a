package frametest

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
)

// The requests that are sent to each server.

// A Fate is what a retry of a request gets.
type Fate int

// The fates.
const (
	Replayed  Fate = iota // the recorded answer
	RunsAgain             // a run of its own
	NotKept               // 409 response-not-kept
	Untouched             // its own answer: the guard has nothing to do with the request
)

// A Case is a request, and what its handler is to do.
type Case struct {
	// Name is also the last element of the path, if Path ends in a slash.
	Name         string
	Method, Path string // POST and /reply/, if they are empty
	Header       http.Header
	Body         string
	Reply        Reply
	Fate         Fate
}

// Cases returns the requests that are sent to a bare server, to a protected one, and again.
func Cases() []Case {
	var cases []Case
	for _, group := range [][]Case{statuses(), bodies(), headers(), failures(), streams(), requests(), routers()} {
		cases = append(cases, group...)
	}
	for i := range cases {
		c := &cases[i]
		if c.Method == "" {
			c.Method = http.MethodPost
		}
		if c.Path == "" {
			c.Path = "/reply/"
		}
		if strings.HasSuffix(c.Path, "/") {
			c.Path += c.Name
		}
		if c.Header == nil {
			c.Header = http.Header{"Content-Type": {"application/json"}}
		}
		if c.Body == "" {
			c.Body = `{"amount":100}`
		}
	}
	return cases
}

func typed(mediaType string, more ...string) http.Header {
	h := http.Header{"Content-Type": {mediaType}}
	for i := 0; i < len(more); i += 2 {
		h.Add(more[i], more[i+1])
	}
	return h
}

func statuses() []Case {
	var cases []Case
	for status, fate := range map[int]Fate{
		200: Replayed, 201: Replayed, 202: Replayed, 400: Replayed, 402: Replayed, 403: Replayed,
		404: Replayed, 409: Replayed, 410: Replayed, 422: Replayed,
		401: RunsAgain, 429: RunsAgain, 500: RunsAgain, 501: RunsAgain, 503: RunsAgain,
	} {
		cases = append(cases, Case{Name: "status-" + strconv.Itoa(status), Fate: fate, Reply: Reply{
			Status: status, Header: typed("application/json"), Body: `{"status":` + strconv.Itoa(status) + `}`,
		}})
	}
	for status, fate := range map[int]Fate{301: Replayed, 303: Replayed, 307: RunsAgain, 308: RunsAgain} {
		cases = append(cases, Case{Name: "redirect-" + strconv.Itoa(status), Fate: fate, Reply: Reply{
			Status: status, Header: http.Header{"Location": {"/elsewhere?a=1"}},
		}})
	}
	return append(cases,
		Case{Name: "status-204", Reply: Reply{Status: 204, Header: http.Header{"X-Left": {"nothing"}}}},
		Case{Name: "busy", Fate: RunsAgain, Reply: Reply{
			Status: 409, Header: typed("text/plain", "Retry-After", "1"), Body: "come back",
		}},
	)
}

const mebibyte = 1 << 20

func bodies() []Case {
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	return []Case{
		{Name: "body-empty", Reply: Reply{Status: 200, Header: typed("text/plain")}},
		{Name: "body-binary", Reply: Reply{Status: 200, Header: typed("application/octet-stream"), Body: string(binary)}},
		// The limit of an answer, which is 1 MiB, counts the header.
		{Name: "body-large", Reply: Reply{Status: 201, Header: typed("text/plain"), Body: strings.Repeat("0123456789abcdef", mebibyte/16-64)}},
		{Name: "body-too-large", Fate: NotKept, Reply: Reply{Status: 201, Header: typed("text/plain"), Body: strings.Repeat("0123456789abcdef", mebibyte/8)}},
	}
}

func headers() []Case {
	return []Case{
		{Name: "header-many", Reply: Reply{Status: 200, Body: "x", Header: typed(
			"text/plain; charset=utf-8", "X-Many", "one", "X-Many", "two", "Link", "</a>; rel=next", "Link", "</b>; rel=prev", "X-Empty", "")}},
		{Name: "header-cookies", Reply: Reply{Status: 201, Body: "x", Header: typed(
			"text/plain", "Set-Cookie", "a=1; Path=/; HttpOnly", "Set-Cookie", "b=2; Secure")}},
		{Name: "header-cache", Reply: Reply{Status: 200, Body: "x", Header: typed(
			"text/plain", "ETag", `"v1"`, "Vary", "Accept", "Cache-Control", "no-store", "Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")}},
		{Name: "header-outer", Reply: Reply{Status: 201, Body: "x", Header: typed("text/plain"), Outer: http.Header{"Set-Cookie": {"session=1"}}}},
		{Name: "header-location", Reply: Reply{Status: 201, Header: http.Header{"Location": {"/charges/1"}}}},
		{Name: "header-problem", Reply: Reply{Status: 422, Header: typed("application/problem+json"), Body: `{"title":"no"}`}},
		{Name: "header-untyped", Reply: Reply{Status: 200, Body: "<html><body>untyped</body></html>"}},
		{Name: "trailer", Reply: Reply{
			Status: 200, Header: typed("text/plain", "Trailer", "X-Sum"), Body: "summed", Trailer: http.Header{"X-Sum": {"42"}},
		}},
	}
}

func failures() []Case {
	var cases []Case
	for status, fate := range map[int]Fate{
		400: Replayed, 403: Replayed, 404: Replayed, 409: Replayed, 422: Replayed,
		401: RunsAgain, 429: RunsAgain, 500: RunsAgain, 503: RunsAgain,
	} {
		name := "error-" + strconv.Itoa(status)
		cases = append(cases, Case{Name: name, Path: "/error/", Fate: fate, Reply: Reply{Status: status, Body: "because of " + name}})
	}
	return append(
		cases,
		Case{Name: "error-plain", Path: "/error/", Fate: RunsAgain, Reply: Reply{Body: "an error of no status"}},
		Case{Name: "panic-error", Path: "/panic/", Fate: RunsAgain, Reply: Reply{Panic: "a bug"}},
		Case{Name: "panic-abort", Path: "/panic/", Fate: RunsAgain, Reply: Reply{Panic: http.ErrAbortHandler}},
		Case{Name: "panic-late", Path: "/panic/", Fate: RunsAgain, Reply: Reply{Body: "half an answer", Panic: "a bug"}},
		Case{Name: "bind-good", Path: "/bind", Body: `{"amount":7}`},
		Case{Name: "bind-malformed", Path: "/bind", Body: `{"amount":`},
		Case{Name: "bind-wrong-type", Path: "/bind", Body: `{"amount":"much"}`},
	)
}

func streams() []Case {
	chunks := []string{"data: one\n\n", "data: two\n\n", "data: three\n\n"}
	return []Case{
		{Name: "stream", Path: "/stream/", Reply: Reply{Header: typed("text/event-stream"), Chunks: chunks}},
		{Name: "stream-failed", Path: "/stream/", Reply: Reply{Header: typed("text/event-stream"), Chunks: chunks, Status: 500}},
	}
}

func requests() []Case {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	_ = w.SetBoundary("a-boundary")
	_ = w.WriteField("a", "1")
	_ = w.WriteField("b", "two words")
	f, _ := w.CreateFormFile("f", "file.txt")
	_, _ = f.Write([]byte("in the file"))
	_ = w.Close()
	return []Case{
		{
			Name: "request", Path: "/request/request?b=2&a=1&a=%20x", Body: `{"amount":100}`,
			Header: typed("application/json", "Cookie", "session=abc; theme=dark", "X-Many", "one", "X-Many", "two", "User-Agent", "frametest"),
		},
		{Name: "request-escaped", Path: "/request/a%20b"},
		{Name: "request-large", Path: "/request/", Header: typed("text/plain"), Body: strings.Repeat("0123456789abcdef", mebibyte/20)},
		{Name: "form-urlencoded", Path: "/form", Header: typed("application/x-www-form-urlencoded"), Body: "a=1&b=two+words"},
		{Name: "form-multipart", Path: "/form", Header: typed(w.FormDataContentType()), Body: form.String()},
		{Name: "patch", Method: http.MethodPatch, Reply: Reply{Status: 200, Header: typed("text/plain"), Body: "patched"}},
	}
}

func routers() []Case {
	ok := Reply{Status: 200, Header: typed("text/plain"), Body: "read"}
	return []Case{
		{Name: "get", Method: http.MethodGet, Fate: Untouched, Reply: ok},
		{Name: "head", Method: http.MethodHead, Fate: Untouched, Reply: ok},
		{Name: "options", Method: http.MethodOptions, Fate: Untouched, Reply: ok},
		{Name: "no-route", Path: "/nowhere", Fate: Untouched},
		{Name: "no-method", Method: http.MethodDelete, Fate: Untouched},
		{Name: "slash", Path: "/form/?x=1", Fate: Untouched},
	}
}
