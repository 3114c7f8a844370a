package inspect

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
)

// reply is what Redis has replied, and refusal what PostgreSQL has.
type (
	reply interface {
		error
		RedisError()
	}
	refusal interface {
		error
		SQLState() string
	}
)

// Replied reports whether an error is what the server of a store has replied.
func Replied(err error) bool {
	_, isReply := errors.AsType[reply](err)
	_, isRefusal := errors.AsType[refusal](err)
	return isReply || isRefusal
}

// Away reports whether an error says that a store does not answer, not yet, or not to this account.
func Away(err error) bool {
	// A connection failure, a wrong password, no such database, too many connections, start or shutdown.
	if r, ok := errors.AsType[refusal](err); ok {
		code := r.SQLState()
		return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "28") || code == "3D000" || code == "53300" || strings.HasPrefix(code, "57P0")
	}
	if r, ok := errors.AsType[reply](err); ok {
		word, _, _ := strings.Cut(r.Error(), " ")
		return slices.Contains([]string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "NOAUTH", "WRONGPASS"}, word) || strings.HasPrefix(r.Error(), "ERR DB index is out of range")
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF)
}
