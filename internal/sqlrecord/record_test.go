package sqlrecord

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/formtest"
	"example.com/idempotency/store"
)

// stored returns the columns of a row as text, one a line, as both databases keep them.
func stored(r *Row) []byte {
	var b bytes.Buffer
	names := strings.Split(strings.TrimSuffix(Columns, ", coalesce(octet_length(answer), 0)")+", answer", ", ")
	for i, v := range append([]any{r.Version}, r.Values()...) {
		if p, ok := v.([]byte); ok {
			v = hex.EncodeToString(p)
			if p == nil {
				v = "NULL"
			}
		}
		fmt.Fprintf(&b, "%s=%v\n", names[i], v)
	}
	return b.Bytes()
}

// A storedRow is a result with the columns that stored has written.
type storedRow []byte

func (s storedRow) Scan(dest ...any) error {
	var columns []string
	for line := range strings.Lines(string(s)) {
		_, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		columns = append(columns, value)
	}
	answer := columns[len(columns)-1]
	columns[len(columns)-1] = strconv.Itoa(len(answer) / 2)
	if answer == "NULL" {
		columns[len(columns)-1], answer = "0", ""
	}
	for i, value := range append(columns, answer) {
		switch d := reflect.ValueOf(dest[i]).Elem(); d.Kind() {
		case reflect.Slice:
			p, err := hex.DecodeString(value)
			if err != nil {
				return err
			}
			d.SetBytes(p)
		case reflect.Bool:
			d.SetBool(value == "true")
		case reflect.String:
			d.SetString(value)
		default:
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return err
			}
			d.SetInt(n)
		}
	}
	return nil
}

var formClaim = store.Claim{
	Owner: store.Owner([]byte("owner of the run")), Fingerprint: store.Fingerprint([]byte("\x01123456789abcdefghijklmnopqrstuv")),
	Lease: 30 * time.Second, Retention: 24 * time.Hour, Label: "POST /charges", Note: []byte("note"), SealedKey: []byte("key"),
}

func TestStoredFormOfARow(t *testing.T) {
	const now = Moment(1_700_000_000_000_000)
	var marks Marks // of all rows
	of := func(name string, hold bool, change func(r *Row) error) formtest.Case {
		c := formClaim
		c.Hold, c.HoldEnds = hold, name == "hold-ends"
		r := New(c, now)
		require.NoError(t, change(&r), name)
		marks |= r.Marks
		want, err := r.SeeAll(now.Later(time.Second))
		require.NoError(t, err, name)
		want.Answer = Full(want.Answer)
		return formtest.Case{
			Name: name, Text: true, Want: want, Of: &r,
			Encode: func() []byte { return stored(&r) },
			Decode: func(stored []byte) (any, error) {
				var answer []byte
				r, err := Scan(storedRow(stored), &answer)
				if err != nil {
					return nil, err
				}
				r.Answer = answer
				got, err := r.SeeAll(now.Later(time.Second))
				got.Answer = Full(got.Answer)
				return got, err
			},
		}
	}
	owner := formClaim.Owner
	changed := func(_ bool, err error) error { return err }
	cases := []formtest.Case{
		of("claimed", true, func(r *Row) error {
			require.NoError(t, changed(r.SaveStep(owner, "charge", []byte(`v{"id":1}`))))
			return changed(r.SaveStep(owner, "mail", []byte("s")))
		}),
		of("completed", false, func(r *Row) error {
			return changed(r.Complete(owner, store.Completion{Answer: []byte("answer"), Status: 201, TTL: time.Hour}, now))
		}),
		of("released", false, func(r *Row) error {
			return changed(r.Release(owner, store.Release{Undone: true, Unbind: true, Keep: time.Minute}, now))
		}),
		of("held", true, func(r *Row) error { return changed(r.Hold(owner, nil, now)) }),
		of("lapsed", false, func(r *Row) error {
			c := formClaim
			c.Owner, c.Hold = store.Owner{1}, true
			_, _, err := r.Claim(c, now.Later(time.Minute))
			return err
		}),
		of("taken-over", false, func(r *Row) error {
			c := formClaim
			c.Owner, c.Note, c.Watch = store.Owner{1}, []byte("another note"), true
			_, _, err := r.Claim(c, now.Later(time.Minute))
			return err
		}),
		of("by-hand", true, func(r *Row) error {
			require.NoError(t, changed(r.Hold(owner, nil, now)))
			return changed(r.Resolve(r.seenAs(store.Held), store.Settlement{}, now))
		}),
		of("decided", true, func(r *Row) error {
			require.NoError(t, changed(r.Hold(owner, nil, now)))
			return changed(r.Resolve(r.seenAs(store.Held), store.Settlement{Note: []byte("by ada")}, now))
		}),
		of("hold-ends", true, func(*Row) error { return nil }),
	}
	cases[0].Unstored = []string{
		"Row.Tags",                                                         // the stores have them in a table, with a form of its own
		"Record.Blank", "Record.Lapsed", "Record.Mine", "Record.MayBeLost", // which only a Claim sets
	}
	require.Equal(t, knownMarks, marks, "each mark is set in one of the cases")
	formtest.Check(t, "row", Form, cases...)
}

// A row of a later version is told from damage, whatever part of it says so.
func TestRowOfAnotherVersionIsNotDamage(t *testing.T) {
	for name, change := range map[string]func(r *Row){
		"a version":     func(r *Row) { r.Marks |= 1 << formBits },
		"the last one":  func(r *Row) { r.Marks |= -1 << 62 },
		"an extra mark": func(r *Row) { r.Marks |= ByHand << 1 },
		"a state":       func(r *Row) { r.State = store.Held + 2 },
	} {
		r := New(formClaim, 1)
		change(&r)
		var answer []byte
		_, err := Scan(storedRow(stored(&r)), &answer)
		require.ErrorIs(t, err, store.ErrUnreadableHere, name)
	}
}

func TestStoredFormOfACursor(t *testing.T) {
	q := store.Query{Holding: true, States: []store.State{store.Held}, Label: "POST /charges"}
	c := Cursor{Since: 1_700_000_000_000_000, Key: strings.Repeat("k", 43)}
	of := func(name string, tag ...store.Tag) formtest.Case {
		return formtest.Case{
			Name: name, Text: true, Want: c,
			Encode: func() []byte { return []byte(c.text(&q, tag...) + "\n") },
			Decode: func(stored []byte) (any, error) {
				q := q
				q.Cursor = strings.TrimSpace(string(stored))
				return ParseCursor(&q, tag...)
			},
		}
	}
	formtest.Check(t, "cursor", 1, of("holding"), of("tagged", store.Tag([]byte("order number 77."))))
}

func TestClaimDropsReplacedSteps(t *testing.T) {
	claim := store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour}
	r := New(claim, 1)
	for attempt := range byte(50) {
		for _, value := range []string{"mark", "undone"} {
			_, err := r.SaveStep(claim.Owner, "s", []byte(value))
			require.NoError(t, err)
		}
		_, err := r.Release(claim.Owner, store.Release{}, 1)
		require.NoError(t, err)
		claim.Owner = store.Owner{attempt + 2}
		rec, _, err := r.Claim(claim, 1)
		require.NoError(t, err)
		require.Equal(t, map[string][]byte{"s": []byte("undone")}, rec.Steps)
	}
	require.Equal(t, Step("s", []byte("undone")), r.Steps)
}

// Whoever knows how a cursor is made can make one. It must name a place that a database can look for.
func TestCursorOfAnImpossiblePlace(t *testing.T) {
	good := Cursor{Since: 1, Key: strings.Repeat("k", 43)}
	for name, c := range map[string]Cursor{
		"a key":            good,
		"the last moment":  {Since: Never, Key: good.Key},
		"a moment too old": {Since: -1, Key: good.Key},
		"the first moment": {Since: math.MinInt64, Key: good.Key},
		"no key":           {Since: 1},
		"NUL":              {Since: 1, Key: "k\x00"},
		"a space":          {Since: 1, Key: "k k"},
		"not ASCII":        {Since: 1, Key: "ß"},
		"not UTF-8":        {Since: 1, Key: "\xff"},
		"a long key":       {Since: 1, Key: strings.Repeat("k", 2000)},
	} {
		var q store.Query
		q.Cursor = c.text(&q)
		got, err := ParseCursor(&q)
		want := error(nil)
		if c.Key != good.Key || c.Since < 0 {
			c, want = Cursor{}, store.ErrBadCursor
		}
		if got != c || !errors.Is(err, want) {
			t.Errorf("%s: got %+v and the error %v, want %+v and %v", name, got, err, c, want)
		}
	}
}

// The Limit may change from page to page, and so may the order in which the states are named.
func TestCursorOfAnotherQuery(t *testing.T) {
	claimed, held := store.Claimed, store.Held
	queries := []store.Query{
		{},
		{Holding: true},
		{Label: "a"},
		{Label: "b"},
		{Label: "a", Holding: true},
		{States: []store.State{claimed}},
		{States: []store.State{held}},
		{States: []store.State{claimed, held}},
		{States: []store.State{claimed}, Label: "a"},
	}
	c := Cursor{Since: 1, Key: "key"}
	for i, of := range queries {
		text := c.text(&of)
		for j, q := range queries {
			q.Cursor, q.Limit = text, 5
			if _, err := ParseCursor(&q); (err == nil) != (i == j) {
				t.Errorf("a cursor of %+v for %+v: the error is %v", of, q, err)
			}
		}
	}
	of := store.Query{States: []store.State{claimed, held}}
	again := store.Query{States: []store.State{held, claimed, held}, Cursor: c.text(&of)}
	if _, err := ParseCursor(&again); err != nil {
		t.Errorf("a cursor of the same states in another order: %v", err)
	}
}
