package journal

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// This file knows the form of a line: the CRC-32C of the rest in hexadecimal, a space, a JSON
// object, a newline. JSON has no newline and no zero byte in it. The first line of a file is
// its header.

// A header says that the file is a journal, in which version, and how long the file is. It
// is never changed: a file that is too small is replaced by a larger one. So a file that is
// shorter than it says has been cut off.
type header struct {
	Version int   `json:"journal"`
	Size    int64 `json:"size"`
	// Replaced says that another file has taken the place of this one.
	Replaced bool `json:"replaced,omitempty"`
}

const version = 1

// A line is one intent, what the server has said about the life of its key, the end of it, or
// several of these.
type line struct {
	Name     string    `json:"name"`
	Key      string    `json:"key,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Method   string    `json:"method,omitempty"`
	URL      string    `json:"url,omitempty"`
	Type     string    `json:"type,omitempty"`
	Body     []byte    `json:"body,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	Result   []byte    `json:"result,omitempty"`
}

const checksumLen = 2*crc32.Size + 1

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errAltered = errors.New("it is cut or altered")
)

func encode(v any) ([]byte, error) {
	object, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 0, checksumLen+len(object)+1)
	text = append(text, checksum(object)...)
	text = append(text, object...)
	return append(text, '\n'), nil
}

// objectOf returns the object of a line, which ends with its newline.
func objectOf(text []byte) ([]byte, error) {
	object, ok := bytes.CutSuffix(text, []byte("\n"))
	if !ok || len(object) < checksumLen || !bytes.Equal(object[:checksumLen], checksum(object[checksumLen:])) {
		return nil, errAltered
	}
	return object[checksumLen:], nil
}

// decode reads the object of a line into v. It refuses, with [ErrVersion], what is not of this version:
// nothing was altered, and a newer version means something by a field that this one does not know.
func decode(object []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(object))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	return nil
}

// decodeHeader reads the first line of a file.
func decodeHeader(text []byte) (h header, err error) {
	object, err := objectOf(text)
	if err != nil {
		return h, err
	}
	var known struct {
		Version int `json:"journal"`
	}
	switch err := json.Unmarshal(object, &known); {
	case err != nil || known.Version < 1:
		return h, errAltered
	case known.Version != version:
		return h, fmt.Errorf("%w: it has version %d", ErrVersion, known.Version)
	}
	return h, decode(object, &h)
}

// checksum returns the beginning of the line with an object.
func checksum(object []byte) []byte {
	var sum [crc32.Size]byte
	crc := crc32.Checksum(object, castagnoli)
	for i := range sum {
		sum[i] = byte(crc >> (8 * (len(sum) - 1 - i)))
	}
	return append(hex.AppendEncode(nil, sum[:]), ' ')
}

// sector is the unit in which a disk writes.
const sector = 512

// torn reports whether the end of a file may be a line that was being written when the
// process or the machine stopped: its beginning, or all of it with holes of whole sectors,
// in a region that was zeros before. Any other text was acknowledged and has been altered
// since. The text begins at an offset of the file and has no zeros at its end.
func torn(text []byte, offset int64) bool {
	holes := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == 0:
			start := i
			for i+1 < len(text) && text[i+1] == 0 {
				i++
			}
			aligned := start == 0 || (offset+int64(start))%sector == 0
			if !aligned || (offset+int64(i)+1)%sector != 0 {
				return false
			}
			holes = true
		case c == '\n' && i == len(text)-1:
		case c < ' ', i < checksumLen-1 && strings.IndexByte("0123456789abcdef", c) < 0,
			i == checksumLen-1 && c != ' ', i == checksumLen && c != '{':
			return false
		}
	}
	if bytes.HasSuffix(text, []byte("\n")) {
		return holes
	}
	// A whole line whose newline was altered was acknowledged.
	return holes || len(text) == 0 || !whole(text[:len(text)-1])
}

// whole reports whether a text is a line without its newline.
func whole(text []byte) bool {
	return len(text) > checksumLen && bytes.Equal(text[:checksumLen], checksum(text[checksumLen:]))
}
