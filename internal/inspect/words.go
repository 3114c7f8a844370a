package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/idempotency"
)

// Outcomes are the decisions about a held record, as they are written. The word for removing it is forget.
var Outcomes = map[string]idempotency.Outcome{
	"final": idempotency.Final, "not-executed": idempotency.NotExecuted, "resume": idempotency.Resume,
}

// order is that in which they are told.
var order = []string{"final", "not-executed", "resume"}

// Names lists names for people: none is a dash.
func Names(list []string) string {
	if len(list) == 0 || list[0] == "" {
		return "-"
	}
	return strings.Join(list, ", ")
}

// Doubtful lists the steps that may have happened and have no result, as far as one can tell here.
func (r Record) Doubtful() string {
	names := slices.Clone(r.InDoubt)
	if r.State == "completed" { // nobody has to know
		return Names(names)
	}
	for _, name := range r.Unread {
		names = append(names, name+" (unread)")
	}
	return Names(names)
}

// quoted lists names in a sentence.
func quoted(list []string) string {
	quotes := make([]string, len(list))
	for i, name := range list {
		quotes[i] = strconv.Quote(name)
	}
	return strings.Join(quotes, ", ")
}

// Visible returns a text in one line with nothing in it that does not show: marks that turn the direction of writing,
// letters without width, control characters and what is no UTF-8 are written as Go writes them. All text that was made
// elsewhere is shown as this returns it: names of steps, references, tenants, reasons.
func Visible(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hides) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if part := s[:n]; hides(r) || r == utf8.RuneError && n == 1 {
			quoted := strconv.QuoteToASCII(part)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(part)
		}
		s = s[n:]
	}
	return b.String()
}

func hides(r rune) bool {
	const blank = '\u2800' // of Braille, which counts as a sign
	return r == blank || !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Span says how long something lasts, as exactly as a person needs it.
func Span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}
