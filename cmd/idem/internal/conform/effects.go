package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
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

// number returns the count that a value of JSON is.
func number(v any) (int, bool) {
	switch v := v.(type) {
	case float64:
		return int(v), true
	case []any:
		return len(v), true
	case map[string]any:
		return len(v), true
	}
	return 0, false
}

// A sink counts the calls of a server.
type sink struct {
	server *http.Server
	calls  atomic.Int64
}

func listen(ctx context.Context, addr string) (*sink, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := new(sink)
	s.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, "{}")
	})}
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

// Close ends the sink.
func (s *sink) Close() error { return s.server.Close() }
