// Package truncate bounds the text of a peer in errors and logs. A peer may send megabytes where
// a line was expected.
package truncate

import (
	"fmt"
	"strings"
)

// Max is how many bytes of a text are kept.
const Max = 2 << 10

// Text returns a text of at most [Max] bytes as it is. Of a longer one it returns the beginning,
// and its length.
func Text(s string) string {
	if len(s) <= Max {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:Max], ""), len(s))
}

// Error returns an error whose text is that of [Text], and which wraps err if that is shorter.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if s := err.Error(); len(s) > Max {
		return &truncated{err, Text(s)}
	}
	return err
}

type truncated struct {
	error
	text string
}

func (t *truncated) Error() string { return t.text }
func (t *truncated) Unwrap() error { return t.error }
