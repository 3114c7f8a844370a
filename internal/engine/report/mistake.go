package report

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// A Mistake is what Err tells of a handler: that it has said nothing, for example.
type Mistake struct {
	Method, Route string
	Err           error
}

// Mistakes remember what was reported, so that each route is reported once. The zero value is ready for
// use, also concurrently.
type Mistakes struct {
	reported sync.Map
	shapes   atomic.Int64
}

// IsNew reports whether nothing was reported yet of the same method and route for the same reason. Where no
// router names the routes, as gin and echo 4 do not, the shape of the path tells them apart, and the error
// says so.
func (s *Mistakes) IsNew(of *Mistake, path string) bool {
	key := struct {
		Mistake
		shape string
	}{Mistake: *of}
	if of.Route == "" {
		key.shape = shapeOf(path)
		of.Err = fmt.Errorf("%w (nothing names the route of %q; WithRoute does)", of.Err, key.shape)
	}
	if _, known := s.reported.Load(key); known {
		return false
	}
	if s.shapes.Load() >= maxShapes {
		key.shape = ""
	}
	_, known := s.reported.LoadOrStore(key, nil)
	if !known && key.shape != "" {
		s.shapes.Add(1)
	}
	return !known
}

const (
	maxShapes = 64  // clients choose paths; all others count as one
	maxShape  = 128 // bytes of a path that count
	maxWord   = 24  // bytes of a part of a path; what is longer is a value
)

// shapeOf returns the parts of a path, with an asterisk for each that looks like a value.
func shapeOf(path string) string {
	parts := strings.Split(path[:min(len(path), maxShape)], "/")
	for i, part := range parts {
		if len(part) > maxWord || strings.ContainsAny(part, "0123456789@") {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}
