package formtest

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

type (
	order struct {
		Number int
		Lines  []item
	}
	item struct{ Count int }
)

// Each way in which a form can part from its golden bytes is an error that says what to do.
func TestFormsThatPartFromTheirGoldenBytes(t *testing.T) {
	encode := func(stored string) func() []byte { return func() []byte { return []byte(stored) } }
	decode := func(stored []byte) (any, error) {
		if stored[0] > 2 {
			return nil, errors.New("unknown version")
		}
		return string(stored[1:]), nil
	}
	value := Case{Name: "value", Encode: encode("\x02ab"), Decode: decode, Want: "ab"}
	text := Case{Name: "line", Text: true, Encode: encode("a line\n")}
	files := func(names ...string) fstest.MapFS {
		all := fstest.MapFS{}
		for i := 0; i < len(names); i += 2 {
			all[names[i]] = &fstest.MapFile{Data: []byte(names[i+1])}
		}
		return all
	}
	const v1, v2 = "01 6162 # version, text", "02\n61 62\n"
	for name, c := range map[string]struct {
		folders fstest.MapFS
		version int
		cases   []Case
		wrong   string // part of what is wrong, or empty
	}{
		"all is well":          {files("v1/value.hex", v1, "v2/value.hex", v2), 2, []Case{value}, ""},
		"text":                 {files("v1/line.txt", "a line\n"), 1, []Case{text}, ""},
		"only an old one":      {files("v1/old.hex", v1, "v2/value.hex", v2), 2, []Case{value, {Name: "old", Decode: decode, Want: "ab"}}, ""},
		"another encoder":      {files("v2/value.hex", "02 6163"), 2, []Case{{Name: "value", Encode: value.Encode}}, "give it a new version"},
		"another text":         {files("v1/line.txt", "a\n"), 1, []Case{text}, "give it a new version"},
		"no folder":            {files(), 2, []Case{value}, "add a folder v2"},
		"no folder of its own": {files("v1/value.hex", v1), 2, []Case{value}, "add a folder v2"},
		"no file":              {files("v2/other.hex", v2), 2, []Case{value, {Name: "other"}}, "the encoder makes:\n026162"},
		"a later folder":       {files("v2/value.hex", v2, "v3/value.hex", v2), 2, []Case{value}, "the current version is 2"},
		"not a folder":         {files("v2/value.hex", v2, "latest", ""), 2, []Case{value}, "latest is not the folder"},
		"nothing reads it":     {files("v1/old.hex", v1, "v2/value.hex", v2), 2, []Case{value}, "nothing reads old.hex"},
		"an old one is lost":   {files("v1/value.hex", "03 6162", "v2/value.hex", v2), 2, []Case{value}, "it cannot be read any more: unknown version"},
		"an old one differs":   {files("v1/value.hex", "01 6163", "v2/value.hex", v2), 2, []Case{value}, "and was made of\nab"},
		"an empty file":        {files("v2/value.hex", "# nothing"), 2, []Case{value}, "the file has no bytes"},
		"a field is never set": {files("v1/line.txt", "a line\n"), 1, []Case{{Name: "line", Text: true, Of: []any{&order{Lines: []item{{}}}}}}, "item.Count is zero in all cases"},
		"a field is not kept":  {files("v1/line.txt", "a line\n"), 1, []Case{{Name: "line", Text: true, Of: order{Number: 7}, Unstored: []string{"order.Lines"}}}, ""},
		"a field is set once":  {files("v1/line.txt", "a line\n"), 1, []Case{{Name: "line", Text: true, Of: []order{{Number: 7}, {Lines: []item{{Count: 1}}}}}}, ""},
	} {
		wrong := errors.Join(check(c.folders, "sample", c.version, c.cases)...)
		if c.wrong == "" {
			require.NoError(t, wrong, name)
		} else {
			require.ErrorContains(t, wrong, c.wrong, name)
		}
	}
}
