package pgproxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// This file reads messages of PostgreSQL's protocol, version 3.

// The kinds of messages that the proxy looks at.
const (
	execute, endOfRequest, query, terminate, flush, password    = 'E', 'S', 'Q', 'X', 'H', 'p'
	keyData, ready, complete, failed, suspended, emptyStatement = 'K', 'Z', 'C', 'E', 's', 'I'
)

const maxMessage = 1 << 30

var errMessage = errors.New("pgproxy: invalid length of a message")

// A message is one message with its header. The first one of a client has no kind.
type message []byte

func (m message) kind() byte { return m[0] }

// flushMessage asks the server for the replies so far.
var flushMessage = message{flush, 0, 0, 0, 4}

// readMessage reads a message with a kind.
func readMessage(r *bufio.Reader) (message, error) {
	var header [5]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n < 4 || n > maxMessage {
		return nil, errMessage
	}
	m := make(message, 1+n)
	copy(m, header[:])
	_, err := io.ReadFull(r, m[5:])
	return m, err
}

// readStartup reads the first message of a client.
func readStartup(r *bufio.Reader) (message, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n < 4 || n > maxMessage {
		return nil, errMessage
	}
	m := make(message, n)
	copy(m, header[:])
	_, err := io.ReadFull(r, m[4:])
	return m, err
}

// A request is what a client sends before it waits for the server.
type request []message

// readRequest reads the messages up to one that the server answers at once.
func readRequest(r *bufio.Reader) (request, error) {
	for req := (request)(nil); ; {
		m, err := readMessage(r)
		if err != nil {
			return nil, err
		}
		req = append(req, m)
		switch m.kind() {
		case endOfRequest, query, terminate, flush, password:
			return req, nil
		}
	}
}

// isTrip reports whether the server answers the request with ReadyForQuery.
func (r request) isTrip() bool {
	last := r[len(r)-1].kind()
	return last == endOfRequest || last == query
}

// statements returns how many statements the request executes.
func (r request) statements() (n int) {
	for _, m := range r {
		if m.kind() == execute || m.kind() == query {
			n++
		}
	}
	return n
}

// cut divides the request before its last statement, or before the end of its transaction. A
// request of the simple protocol cannot be divided, and is all in the first part.
func (r request) cut(between bool) (first, rest request) {
	if r[len(r)-1].kind() == query {
		return r, nil
	}
	if !between {
		return r[:len(r)-1], r[len(r)-1:]
	}
	for i, m := range slices.Backward(r) {
		if m.kind() == execute {
			return r[:i], r[i:]
		}
	}
	return r, nil
}

func (r request) bytes() (b []byte) {
	for _, m := range r {
		b = append(b, m...)
	}
	return b
}
