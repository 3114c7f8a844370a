package inspect_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/memory"
	"example.com/idempotency/internal/redisstore"
	"example.com/idempotency/store"
)

// The forms that are told have golden bytes of each version that is read. Fingerprints have none.
func TestFormsHaveGoldenBytes(t *testing.T) {
	golden := map[string][]int{"fingerprint": {1, 2, 3, 4, 5, 6}}
	require.NoError(t, filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		dir, base := filepath.Split(path)
		n, isVersion := strings.CutPrefix(base, "v")
		if v, bad := strconv.Atoi(n); d.IsDir() && isVersion && bad == nil && filepath.Base(filepath.Dir(filepath.Dir(filepath.Clean(dir)))) == "testdata" {
			form := filepath.Base(dir)
			golden[form] = append(golden[form], v)
		}
		return err
	}))
	for _, st := range []store.Store{memory.New(memory.Config{}), new(redisstore.Store)} {
		for _, f := range inspect.FormsOf(st) {
			require.Equal(t, golden[f.Name], f.Reads, f.Name)
			require.Subset(t, f.Reads, f.Writes, f.Name)
		}
	}
}

// What records have is told by form, and what this program does not read of it.
func TestKeptForms(t *testing.T) {
	forms := inspect.FormsOf(memory.New(memory.Config{}))
	for name, c := range map[string]struct {
		rec    store.Record
		found  string
		unread string
	}{
		"nothing":              {store.Record{}, "", ""},
		"a plain answer":       {store.Record{Fingerprint: store.Fingerprint{2}, Answer: (&answer.Answer{}).Encode("k", [32]byte{2})}, "answer 1, fingerprint 2", ""},
		"a later answer":       {store.Record{Fingerprint: store.Fingerprint{1}, Answer: []byte{2}}, "answer 2, fingerprint 1", "answer 2 in 1 records"},
		"a sealed answer":      {store.Record{Answer: []byte{0x81, 7}}, "sealed 1", ""},
		"one that is later":    {store.Record{Answer: []byte{0x82, 7}}, "sealed 2", "sealed 2 in 1 records"},
		"steps":                {store.Record{Steps: map[string][]byte{"a": []byte("v1"), "b": {0x81}, "c": {}}}, "step 1, sealed 1", ""},
		"a step of no kind":    {store.Record{Steps: map[string][]byte{"a": []byte("z1")}}, "step 0", "step 0 in 1 records"},
		"notes":                {store.Record{Notes: store.AppendDecision(store.AppendNote(nil, []byte{note.Version}), []byte{9})}, "note " + strconv.Itoa(note.Version) + ", decision 9", "decision 9 in 1 records"},
		"a function elsewhere": {store.Record{Fingerprint: store.Fingerprint{0x80}}, "", ""},
		"a later function":     {store.Record{Fingerprint: store.Fingerprint{7}}, "fingerprint 7", "fingerprint 7 in 1 records"},
	} {
		kept := inspect.Kept{}
		kept.Add(&c.rec)
		found, unread := kept.Says(forms)
		require.Equal(t, c.found, found, name)
		require.Equal(t, c.unread, strings.Join(unread, "; "), name)
	}
}

// Versions that follow each other are a range, and bytes have a unit.
func TestVersionsAndSizes(t *testing.T) {
	for want, all := range map[string][]int{"": nil, "1": {1}, "1–2": {1, 2}, "1, 3–5, 9": {1, 3, 4, 5, 9}} {
		require.Equal(t, want, inspect.Versions(all))
	}
	for want, f := range map[string]inspect.Figure{
		"7": {Used: 7}, "7 of 9": {Used: 7, Limit: 9}, "1023 bytes": {Used: 1023, Bytes: true},
		"1.5 KiB of 1.0 GiB": {Used: 1536, Limit: 1 << 30, Bytes: true}, "4096.0 TiB": {Used: 1 << 52, Bytes: true},
	} {
		require.Equal(t, want, f.String())
	}
}
