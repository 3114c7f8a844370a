package profile

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// This file finds the rule that an answer matches.

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
