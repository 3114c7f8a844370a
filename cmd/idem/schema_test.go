package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"example.com/idempotency/internal/pagetest"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/cmd/idem/internal/conform/report"
	"example.com/idempotency/internal/inspect"
)

// objects are what a line of -o json and an answer of the console may be, by its type.
var objects = map[string]any{
	"now": inspect.Now{}, "runs": inspect.Runs{}, "group": inspect.Group{}, "decided": inspect.Decided{}, "answer": inspect.ShownAnswer{}, "word": inspect.Word{}, "store": inspect.Store{},
	"record": inspect.Record{}, "next": goesOn{}, "why": inspect.Story{}, "decision": inspect.Decision{}, "list": inspect.List{}, "counts": inspect.Counts{}, "count": inspect.Count{}, "change": change{}, "erased": inspect.Erased{}, "found": inspect.Found{}, "check": check{}, "birth": inspect.Birth{}, "error": inspect.Failure{}, "conformance": report.Report{},
}

const schemaFile = "../../docs/reference/idem.schema.json"

// The schema in the docs is made from the types that are printed, and all that is printed fits it.
func TestSchema(t *testing.T) {
	t.Parallel()
	whole := jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema", Title: "A line of idem -o json, or an answer of the console",
		Description: "Each is one object; type says which. Objects may get more fields.", Defs: map[string]*jsonschema.Schema{},
	}
	resolved := map[string]*jsonschema.Resolved{}
	for name, object := range objects {
		s, err := jsonschema.ForType(reflect.TypeOf(object), &jsonschema.ForOptions{})
		require.NoError(t, err)
		r, err := s.Resolve(nil)
		require.NoError(t, err)
		resolved[name] = r
		open := s.CloneSchemas()
		open.Properties["type"] = &jsonschema.Schema{Const: jsonschema.Ptr[any](name)}
		open.AdditionalProperties = nil
		whole.Defs[name] = open
	}
	for _, name := range []string{"record", "next", "why", "decision", "count", "change", "erased", "check", "birth", "error", "now", "runs", "group", "decided", "answer", "word", "store", "found", "list", "counts", "conformance"} {
		whole.OneOf = append(whole.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + name})
	}
	text, err := json.MarshalIndent(whole, "", "  ")
	require.NoError(t, err)
	text = append(text, '\n')
	if *write {
		require.NoError(t, os.WriteFile(schemaFile, text, 0o644))
	}
	want := pagetest.File(t, schemaFile)
	require.Equal(t, string(want), string(text), "go test ./cmd/idem -write writes it")

	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.Greater(t, len(files), 20)
	screens, err := filepath.Glob("../../console/testdata/*.json")
	require.NoError(t, err)
	require.Greater(t, len(screens), 20)
	files = append(files, screens...)
	seen := map[string]bool{}
	for _, file := range files {
		in, err := os.Open(file)
		require.NoError(t, err)
		lines := json.NewDecoder(in)
		for lines.More() {
			var line map[string]any
			require.NoError(t, lines.Decode(&line), file)
			name, _ := line["type"].(string)
			require.Contains(t, resolved, name, file)
			require.NoError(t, resolved[name].Validate(line), file)
			seen[name] = true
		}
		require.NoError(t, in.Close())
	}
	for name := range objects {
		require.True(t, seen[name], "no golden file has the type %s", name)
	}
}
