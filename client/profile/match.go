package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file reads answers: their header fields, and the rule that they match.

// MaxDocument is how much of a body is looked at. A longer document has no members.
const MaxDocument = 64 << 10

// Reads reports whether the body of an answer tells something that its header does not.
func (s *Server) Reads(resp *http.Response) bool {
	if resp.StatusCode < http.StatusBadRequest {
		return false
	}
	if s.Classify != nil {
		return true
	}
	return s.isDocument(resp) && slices.ContainsFunc(s.Rules, func(r Rule) bool { return r.Member != "" })
}

// Meaning returns what an answer says about the key. The body is its beginning, for an
// answer that [Server.Reads] names, and may be nil for others.
func (s *Server) Meaning(resp *http.Response, body []byte) Meaning {
	if s.Classify != nil {
		if m := s.Classify(resp, body); m != Silent {
			return m
		}
	}
	var document any
	if len(body) > 0 && len(body) < MaxDocument && s.isDocument(resp) {
		if err := json.Unmarshal(body, &document); err != nil {
			document = nil // a body that is not JSON has no members
		}
	}
	for _, r := range s.Rules {
		if r.matches(resp, document) {
			return r.Means
		}
	}
	return Silent
}

// IsReplay reports whether an answer is marked as a recorded one.
func (s *Server) IsReplay(resp *http.Response) bool {
	return s.Replayed.Name != "" && s.Replayed.in(resp.Header)
}

// Hint returns what the server says to whether another attempt makes sense; ok is false if
// it says nothing.
func (s *Server) Hint(resp *http.Response) (again, ok bool) {
	if s.RetryHint == "" {
		return false, false
	}
	switch strings.ToLower(strings.TrimSpace(resp.Header.Get(s.RetryHint))) {
	case "true":
		return true, true
	case "false":
		return false, true
	default:
		return false, false
	}
}

// GoodFor returns for how long the server remembers the key, counted from when the request was
// sent; ok is false if it does not say. A value that is not a number of seconds says nothing.
func (s *Server) GoodFor(resp *http.Response) (d time.Duration, ok bool) {
	if s.Expiry == "" {
		return 0, false
	}
	const most = 100 * 365 * 24 * 60 * 60 // more would not fit a time.Duration for long
	seconds, err := strconv.ParseUint(strings.TrimSpace(resp.Header.Get(s.Expiry)), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return time.Duration(min(seconds, most)) * time.Second, true
}

// Echoes reports whether an answer repeats the key as it was sent.
func (s *Server) Echoes(resp *http.Response, key string) bool {
	return s.Echo != "" && key != "" && resp.Header.Get(s.Echo) == key
}

func (s *Server) isDocument(resp *http.Response) bool {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return false
	}
	if s.MediaType != "" {
		return mediaType == s.MediaType
	}
	return mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
}

func (f Field) in(h http.Header) bool {
	values := h.Values(f.Name)
	return f.Value == "" && len(values) > 0 ||
		slices.ContainsFunc(values, func(v string) bool { return like(strings.TrimSpace(v), f.Value) })
}

func (r *Rule) matches(resp *http.Response, document any) bool {
	if len(r.Status) > 0 && !slices.Contains(r.Status, resp.StatusCode) {
		return false
	}
	if r.Header.Name != "" && !r.Header.in(resp.Header) {
		return false
	}
	return r.Member == "" || document != nil && has(document, strings.Split(r.Member, "."), r.Value)
}

// has reports whether a JSON value has a member at a path that is like value.
func has(v any, path []string, value string) bool {
	if list, ok := v.([]any); ok {
		return slices.ContainsFunc(list, func(e any) bool { return has(e, path, value) })
	}
	if len(path) == 0 {
		switch v.(type) {
		case nil, map[string]any:
			return value == "" && v != nil
		}
		return value == "" || like(fmt.Sprint(v), value)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	member, ok := object[path[0]]
	return ok && has(member, path[1:], value)
}

// like compares regardless of case. A "*" at the beginning or end of the pattern stands for
// anything.
func like(s, pattern string) bool {
	if pattern == "" {
		return false
	}
	s, pattern = strings.ToLower(s), strings.ToLower(pattern)
	rest, anyStart := strings.CutPrefix(pattern, "*")
	rest, anyEnd := strings.CutSuffix(rest, "*")
	switch {
	case anyStart && anyEnd:
		return strings.Contains(s, rest)
	case anyStart:
		return strings.HasSuffix(s, rest)
	case anyEnd:
		return strings.HasPrefix(s, rest)
	default:
		return s == rest
	}
}
