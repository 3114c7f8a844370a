// Package formtest holds stored forms to golden bytes. What a process stores is read by processes of other
// versions, so a form changes with its version number only, and a form that has been stored stays readable.
//
// The golden bytes of a form are the files in testdata/forms/FORM/vN of the package that makes it, one folder
// for each version. A file NAME.txt is as it is stored. A file NAME.hex has the bytes in hexadecimal, with
// white space where it helps a reader, and comments from # to the end of the line. People write these files,
// and no tool does.
package formtest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A Case is a value and its stored form.
type Case struct {
	// Name is that of the golden file, without its ending.
	Name string
	// Text says that the form is text: its file ends with .txt in place of .hex.
	Text bool
	// Encode returns the stored form of the current version. Nil is for what only earlier versions store.
	Encode func() []byte
	// Decode reads a stored form. Nil is for a form that nothing reads back.
	Decode func(stored []byte) (any, error)
	// Want is what Decode must return for the golden bytes of every version that has the file.
	Want any
	// Of is what the form was made of, where that has more fields than Want.
	Of any
	// Unstored names, as Type.Field, the fields of Want and Of that this form does not keep. The others must be set
	// in one of the cases.
	Unstored []string
}

func (c *Case) file() string {
	if c.Text {
		return c.Name + ".txt"
	}
	return c.Name + ".hex"
}

// Check compares a form with its golden bytes. Version is the one that the package stores now. The test
// fails if an encoder makes other bytes, if the golden bytes of any version are not read as the values that
// they were made of, if the current version has no folder, and if a folder has a version that is not known. It
// fails too if a field of what is stored is zero in all cases, because then its bytes could change unseen.
func Check(t *testing.T, form string, version int, cases ...Case) {
	t.Helper()
	for _, err := range check(os.DirFS(path.Join("testdata", "forms", form)), form, version, cases) {
		t.Error(err)
	}
}

// check returns what is wrong with a form, of which folders has the golden bytes.
func check(folders fs.FS, form string, version int, cases []Case) (wrong []error) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	byFile := map[string]*Case{}
	for i := range cases {
		byFile[cases[i].file()] = &cases[i]
	}
	current := false
	entries, err := fs.ReadDir(folders, ".")
	if err != nil {
		fail("the form %s has no golden bytes: %w", form, err)
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "v")
		v, err := strconv.Atoi(digits)
		if !ok || err != nil || v < 1 || !e.IsDir() {
			fail("%s is not the folder of a version of the form %s", e.Name(), form)
			continue
		}
		if v > version {
			fail("the form %s has golden bytes of version %d, and the current version is %d", form, v, version)
			continue
		}
		current = current || v == version
		files, err := fs.ReadDir(folders, e.Name())
		if err != nil {
			fail("%w", err)
		}
		for _, f := range files {
			c := byFile[f.Name()]
			if c == nil {
				fail("nothing reads %s of version %d of the form %s: what was stored once stays readable", f.Name(), v, form)
				continue
			}
			golden, err := read(folders, path.Join(e.Name(), f.Name()), c.Text)
			if err == nil {
				err = c.reads(golden)
			}
			if err != nil {
				fail("%s of version %d of the form %s: %w", f.Name(), v, form, err)
			}
		}
	}
	if !current {
		fail("version %d of the form %s has no golden bytes: add a folder v%[1]d, and keep the others", version, form)
		return wrong
	}
	var values []any
	var unstored []string
	for _, c := range cases {
		values, unstored = append(values, c.Want, c.Of), append(unstored, c.Unstored...)
	}
	for _, name := range unset(values...) {
		if !slices.Contains(unstored, name) {
			fail("%s is zero in all cases of the form %s: add one, so that a change of its bytes is seen", name, form)
		}
	}
	for _, c := range cases {
		if c.Encode == nil {
			continue
		}
		got := c.Encode()
		golden, err := read(folders, path.Join("v"+strconv.Itoa(version), c.file()), c.Text)
		switch {
		case err != nil:
			fail("%s of version %d of the form %s: %w\nthe encoder makes:\n%s", c.file(), version, form, err, show(got, c.Text))
		case !bytes.Equal(got, golden):
			fail("%s: the form %s has changed: give it a new version, add a folder for it, and keep version %d and its folder readable: "+
				"processes of both versions share a store\nstored by version %[3]d:\n%s\nnow:\n%s",
				c.file(), form, version, show(golden, c.Text), show(got, c.Text))
		}
	}
	return wrong
}

// reads returns nil if golden bytes are read as what they were made of.
func (c *Case) reads(golden []byte) error {
	if c.Decode == nil {
		return nil
	}
	got, err := c.Decode(golden)
	if err != nil {
		return fmt.Errorf("it cannot be read any more: %w", err)
	}
	if !assert.ObjectsAreEqual(c.Want, got) {
		return fmt.Errorf("it is read as\n%+v\nand was made of\n%+v", got, c.Want)
	}
	return nil
}

// read returns the golden bytes in a file.
func read(folders fs.FS, name string, text bool) ([]byte, error) {
	data, err := fs.ReadFile(folders, name)
	if err != nil || text {
		return data, err
	}
	var digits strings.Builder
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		for word := range strings.FieldsSeq(line) {
			digits.WriteString(word)
		}
	}
	if digits.Len() == 0 {
		return nil, errors.New("the file has no bytes")
	}
	return hex.DecodeString(digits.String())
}

// show returns bytes as a file has them.
func show(b []byte, text bool) string {
	if text {
		return string(b)
	}
	const perLine = 32
	var lines strings.Builder
	for len(b) > 0 {
		n := min(perLine, len(b))
		fmt.Fprintf(&lines, "%x\n", b[:n])
		b = b[n:]
	}
	return lines.String()
}
