package client

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"
	"strings"
	"time"
)

// A journalLine is one line of the file of a journal: the CRC-32C of the rest in
// hexadecimal, a space, a JSON object, a newline. The format is version 1, and the object
// says so.
type journalLine struct {
	Version int       `json:"v"`
	Name    string    `json:"name"`
	Done    bool      `json:"done,omitempty"`
	Key     string    `json:"key,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Payload []byte    `json:"payload,omitempty"`
}

const (
	journalVersion = 1
	checksumLen    = 2*crc32.Size + 1
)

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	errBadLine  = errors.New("a line is cut or altered")
	errLineType = errors.New("a line was written by a newer version")
)

func encodeLine(l journalLine) ([]byte, error) {
	l.Version = journalVersion
	object, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, checksumLen+len(object)+1)
	line = append(line, checksum(object)...)
	line = append(line, object...)
	return append(line, '\n'), nil
}

func decodeLine(line []byte) (journalLine, error) {
	var l journalLine
	object, ok := bytes.CutSuffix(line, []byte("\n"))
	if !ok || len(object) < checksumLen || !bytes.Equal(object[:checksumLen], checksum(object[checksumLen:])) {
		return l, errBadLine
	}
	if err := json.Unmarshal(object[checksumLen:], &l); err != nil {
		return l, err
	}
	if l.Version != journalVersion {
		return l, errLineType
	}
	return l, nil
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

// torn reports whether a line may be one that was being written when the machine stopped:
// its beginning, or all of it with holes, which read as zeros. Any other was acknowledged and
// has been altered since, or is not of a journal.
func torn(line []byte) bool {
	const begin = `00000000 {"v":`
	for i, c := range line[:min(len(line), len(begin))] {
		hexadecimal := i < checksumLen-1 && strings.IndexByte("0123456789abcdef", c) >= 0
		if c != 0 && c != begin[i] && !hexadecimal {
			return false
		}
	}
	return bytes.IndexByte(line, 0) >= 0 || !bytes.HasSuffix(line, []byte("\n"))
}

// cutLine returns the first line, with its newline if it has one, and its length.
func cutLine(data []byte) (line []byte, size int) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return data[:i+1], i + 1
	}
	return data, len(data)
}
