package frameworks

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// Protocols that tell in a body, or in a trailer, how a call has ended, behind a status of HTTP that does
// not.

var (
	errRPC = errors.New("idempotency: calls of gRPC, gRPC-Web and Connect need an interceptor: use module connectidempotency or grpcidempotency")
	errMCP = errors.New("idempotency: calls of the Model Context Protocol need guards around their tools: use module mcpidempotency")
)

// Protocol returns why a guard around a handler cannot protect a call, if the header shows that it is one.
func Protocol(h http.Header) error {
	for _, mediaType := range h["Content-Type"] {
		if mediaType == "application/json" { // as most requests have it
			continue
		}
		mediaType = strings.TrimLeft(mediaType, " \t")
		for _, of := range [...]string{"application/grpc", "application/connect+"} {
			if len(mediaType) >= len(of) && strings.EqualFold(mediaType[:len(of)], of) {
				return errRPC
			}
		}
	}
	switch {
	case len(h["Connect-Protocol-Version"]) > 0:
		return errRPC
	case len(h["Mcp-Protocol-Version"]) > 0, len(h["Mcp-Session-Id"]) > 0:
		return errMCP
	default:
		return nil
	}
}

// Message returns the same if the body shows it: the first clients of the Model Context Protocol send no field of it,
// nor does curl.
func Message(body []byte) error {
	if !bytes.Contains(body, []byte(`"jsonrpc"`)) {
		return nil
	}
	type call struct {
		Method string `json:"method"`
	}
	for _, c := range parts[call](body) {
		if c.Method == "tools/call" {
			return errMCP
		}
	}
	return nil
}

// parts returns the messages of a body of JSON: one, or those of a batch. It returns nil for other bodies.
func parts[T any](body []byte) []T {
	var batch []T
	if json.Unmarshal(body, &batch) != nil {
		batch = make([]T, 1)
		if json.Unmarshal(body, &batch[0]) != nil {
			return nil
		}
	}
	return batch
}

// ErrHidden says that [HidesFailure] is true of an answer.
var ErrHidden = errors.New("idempotency: the answer 200 tells of a failure, as JSON-RPC and GraphQL do, and is recorded as a success: the handler must say with Operation.SetOutcome what a failure leaves behind")

// maxSearched is how much of an answer is parsed.
const maxSearched = 64 << 10

// HidesFailure reports whether the body of an answer 200 tells of a failure: an error of JSON-RPC or the
// errors of GraphQL. An error by which JSON-RPC turns a call away before it runs is an answer like any
// other. Of a body above 64 KiB nothing is known.
func HidesFailure(mediaType string, body []byte) bool {
	if len(body) > maxSearched || !strings.Contains(mediaType, "json") || !bytes.Contains(body, []byte(`"error`)) {
		return false
	}
	for _, r := range parts[result](body) {
		if r.failed() {
			return true
		}
	}
	return false
}

// A result is an answer of JSON-RPC or GraphQL.
type result struct {
	Version string `json:"jsonrpc"`
	Error   *struct {
		Code int `json:"code"`
	} `json:"error"`
	Errors []struct {
		Message string `json:"message"`
	} `json:"errors"`
}

func (r *result) failed() bool {
	if r.Version != "" && r.Error != nil {
		switch r.Error.Code {
		case -32700, -32600, -32601, -32602: // parse error, invalid request, method not found, invalid params
			return false
		}
		return true
	}
	return len(r.Errors) > 0 && r.Errors[0].Message != ""
}
