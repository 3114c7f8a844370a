package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file counts effects.

// A Source is how effects are counted. At most one of its three ways is used.
type Source struct {
	// URL shows a counter of the server, and Pointer leads to it in the JSON that is there
	// (RFC 6901). Of an array or an object, the length counts.
	URL, Pointer string
	// Sink is an address at which the program itself listens: the server calls it for each effect.
	Sink string
	// ID leads to the member of an answer that is another one for each effect.
	ID string
}

func (s *Source) validate() error {
	ways := 0
	for _, way := range []string{s.URL, s.Sink, s.ID} {
		if way != "" {
			ways++
		}
	}
	var errs []error
	if ways > 1 {
		errs = append(errs, fmt.Errorf("%w: effects are counted by a URL, by a sink or by an ID, and not by several", ErrConfig))
	}
	for _, p := range []string{s.Pointer, s.ID} {
		if p != "" && !strings.HasPrefix(p, "/") {
			errs = append(errs, fmt.Errorf("%w: %q is no JSON pointer, such as /count", ErrConfig, p))
		}
	}
	if s.URL != "" {
		if u, err := url.Parse(s.URL); err != nil || u.Host == "" {
			errs = append(errs, fmt.Errorf("%w: the URL of effects is %q", ErrConfig, s.URL))
		}
	}
	return errors.Join(errs...)
}

// String says how effects are counted.
func (s *Source) String() string {
	switch {
	case s.URL != "":
		return "the counter " + s.URL + " " + s.Pointer
	case s.Sink != "":
		return "calls of the sink " + s.Sink
	case s.ID != "":
		return "distinct values of " + s.ID
	}
	return ""
}

// point returns the value in a JSON document to which a pointer leads.
func point(document []byte, pointer string) (any, bool) {
	var at any
	if json.Unmarshal(document, &at) != nil {
		return nil, false
	}
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch node := at.(type) {
		case map[string]any:
			next, ok := node[part]
			if !ok {
				return nil, false
			}
			at = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			at = node[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// A tally is how many effects a source shows, and what it says of each, if it does.
type tally struct {
	n       int
	effects []string
}

// number returns the count that a value of JSON is.
func number(v any) (tally, bool) {
	var to tally
	switch v := v.(type) {
	case float64:
		return tally{n: int(v)}, true
	case []any:
		for _, e := range v {
			text, _ := json.Marshal(e)
			to.effects = append(to.effects, string(text))
		}
	case map[string]any:
		for name, e := range v {
			text, _ := json.Marshal(map[string]any{name: e})
			to.effects = append(to.effects, string(text))
		}
	default:
		return to, false
	}
	to.n = len(to.effects)
	return to, true
}

// of returns how many of the effects show a number above one and up to another. These are numbers that stood in
// the place of Unique.
func (c tally) of(above, upTo int) (n int) {
	for _, text := range c.effects {
		for unique := above + 1; unique <= upTo; unique++ {
			if mentions(text, strconv.Itoa(unique)) {
				n++
				break
			}
		}
	}
	return n
}

// mentions reports whether a text has a mark. A number is not a part of another one.
func mentions(text, mark string) bool {
	_, err := strconv.ParseUint(mark, 10, 64)
	digit := func(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }
	for at := 0; ; at++ {
		i := strings.Index(text[at:], mark)
		if i < 0 {
			return false
		}
		at += i
		if err != nil || !digit(text[max(at-1, 0):at]) && !digit(text[at+len(mark):]) {
			return true
		}
	}
}

// A sink keeps what a server sends to it.
type sink struct {
	server *http.Server
	mu     sync.Mutex
	calls  []string
}

func (s *sink) tally() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tally{len(s.calls), slices.Clone(s.calls)}
}

func listen(ctx context.Context, addr string) (*sink, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := new(sink)
	s.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 4<<10)) // enough to see whose effect it is
		s.mu.Lock()
		s.calls = append(s.calls, r.URL.String()+"\n"+string(body))
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, "{}")
	})}
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

// Close ends the sink.
func (s *sink) Close() error { return s.server.Close() }
