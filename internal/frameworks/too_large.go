package frameworks

import (
	"errors"
	"net/http"
	"strings"
)

// TooLarge reports whether a body could not be read because it is above the limit of a handler in front of
// the guard: of [http.MaxBytesReader], or of the BodyLimit of echo. The error of echo 5 has a status, that of
// echo 4 only says it.
func TooLarge(err error) bool {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return true
	}
	var coded interface{ StatusCode() int }
	if errors.As(err, &coded) {
		return coded.StatusCode() == http.StatusRequestEntityTooLarge
	}
	return strings.HasPrefix(err.Error(), "code=413,")
}
