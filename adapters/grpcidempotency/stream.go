package grpcidempotency

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// A stream keeps the metadata that a handler sets, until it is known whether its answer counts.
// SendHeader lets the header out at once.
type stream struct {
	grpc.ServerTransportStream

	mu              sync.Mutex
	header, trailer metadata.MD
	sent            bool // the header is out
	released        bool
}

// SetHeader implements [grpc.ServerTransportStream].
func (s *stream) SetHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent || s.released {
		return s.ServerTransportStream.SetHeader(md)
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader implements [grpc.ServerTransportStream].
func (s *stream) SendHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent || s.released {
		return s.ServerTransportStream.SendHeader(md)
	}
	s.sent = true
	s.header = metadata.Join(s.header, md)
	return s.ServerTransportStream.SendHeader(s.header)
}

// SetTrailer implements [grpc.ServerTransportStream].
func (s *stream) SetTrailer(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return s.ServerTransportStream.SetTrailer(md)
	}
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// metadata returns what the handler has set.
func (s *stream) metadata() (header, trailer metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header, s.trailer
}

// release hands on what was kept.
func (s *stream) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	if !s.sent {
		_ = s.ServerTransportStream.SetHeader(s.header) // it fails only if something else has answered
	}
	_ = s.ServerTransportStream.SetTrailer(s.trailer)
}
