// Package intern gives numbers to texts that many records have in common, so that a record keeps no
// pointer.
package intern

import "strings"

// A Table counts the uses of each text, and forgets a text that nobody uses. The zero Table is empty.
type Table struct {
	numbers map[string]uint32
	entries []entry // by number, from 1 on
	unused  []uint32
}

// fewEntries is up to how many entries a table is not worth making smaller.
const fewEntries = 64

type entry struct {
	text string
	uses int
}

// Take returns the number of a text, and counts one more use of it. That of the empty text is 0.
func (t *Table) Take(text string) uint32 {
	if text == "" {
		return 0
	}
	number, ok := t.numbers[text]
	if !ok {
		number = t.add(strings.Clone(text))
	}
	t.entries[number-1].uses++
	return number
}

func (t *Table) add(text string) (number uint32) {
	if t.numbers == nil {
		t.numbers = make(map[string]uint32)
	}
	if n := len(t.unused); n > 0 {
		number = t.unused[n-1]
		t.unused = t.unused[:n-1]
	} else {
		t.entries = append(t.entries, entry{})
		number = uint32(len(t.entries))
	}
	t.entries[number-1].text = text
	t.numbers[text] = number
	return number
}

// Release ends one use of the text with that number.
func (t *Table) Release(number uint32) {
	if number == 0 {
		return
	}
	e := &t.entries[number-1]
	if e.uses--; e.uses > 0 {
		return
	}
	delete(t.numbers, e.text)
	if len(t.numbers) == 0 && len(t.entries) > fewEntries {
		*t = Table{} // a map never becomes smaller
		return
	}
	*e = entry{}
	t.unused = append(t.unused, number)
}

// Text returns the text with that number.
func (t *Table) Text(number uint32) string {
	if number == 0 {
		return ""
	}
	return t.entries[number-1].text
}
