package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// limits are the rules of limits.txt.
type limits struct {
	rules []rule
	kits  []pattern
}

// A rule says how much there may be of a measure. Those of today are for one thing each, which
// is over its limit or has none.
type rule struct {
	line    int
	today   bool
	measure string
	of      pattern
	most    int
}

func parseLimits(text string) (*limits, error) {
	l := &limits{}
	err := eachLine(text, func(line int, words []string) error {
		if words[0] == "kit" && len(words) == 2 {
			l.kits = append(l.kits, newPattern(words[1]))
			return nil
		}
		if len(words) != 4 || (words[0] != "limit" && words[0] != "today") {
			return errors.New("neither kit PATTERN, nor limit or today MEASURE OF N")
		}
		if _, ok := measures[words[1]]; !ok {
			return fmt.Errorf("%s is not a measure", words[1])
		}
		most, err := strconv.Atoi(words[3])
		if err != nil || most < 0 {
			return fmt.Errorf("%s is not a number of things", words[3])
		}
		r := rule{line: line, today: words[0] == "today", measure: words[1], of: newPattern(words[2]), most: most}
		same := func(other rule) bool {
			return other.today == r.today && other.measure == r.measure && other.of.text == r.of.text
		}
		if slices.ContainsFunc(l.rules, same) {
			return fmt.Errorf("a second line for %s %s", r.measure, r.of.text)
		}
		l.rules = append(l.rules, r)
		return nil
	})
	return l, err
}

// named returns for which things there are rules about a measure.
func (l *limits) named(measure string) []string {
	var names []string
	for _, r := range l.rules {
		if r.measure == measure && !slices.Contains(names, r.of.text) {
			names = append(names, r.of.text)
		}
	}
	return names
}

// find returns the first rule for a figure: that of today, or the limit.
func (l *limits) find(today bool, f figure) *rule {
	i := slices.IndexFunc(l.rules, func(r rule) bool {
		return r.today == today && r.measure == f.measure && r.of.matches(f.of)
	})
	if i < 0 {
		return nil
	}
	return &l.rules[i]
}

// A verdict is what the rules say to the figures.
type verdict struct {
	table    string
	problems []string
	lower    map[int]int // lines of limits.txt, and how much is enough there; -1 if nothing is needed
}

func (l *limits) judge(figures []figure) verdict {
	v := verdict{lower: map[int]int{}}
	worst := map[*rule]figure{} // of those that a rule decides on
	for _, f := range figures {
		limit, today := l.find(false, f), l.find(true, f)
		r := limit
		if today != nil {
			r = today
		}
		if r == nil {
			continue
		}
		if old, ok := worst[r]; !ok || old.value < f.value {
			worst[r] = f
		}
		enough, loose := f.value, f.value
		if measures[f.measure].slack {
			enough += f.value / 200
			loose += f.value / 100
		}
		complain := func(format string, args ...any) {
			what := fmt.Sprintf("%s of %s is %d: ", f.measure, f.of, f.value)
			v.problems = append(v.problems, what+fmt.Sprintf(format, args...)+fmt.Sprintf(" (%s:%d)", limitsFile, r.line))
		}
		switch {
		case f.value > r.most:
			complain("more than %d", r.most)
		case today == nil:
		case limit != nil && f.value <= limit.most:
			complain("within its limit of %d: remove the line", limit.most)
			v.lower[r.line] = -1
		case r.most > loose:
			complain("lower the limit to %d", enough)
			v.lower[r.line] = enough
		}
	}
	v.table = l.table(worst)
	for i := range l.rules {
		r := &l.rules[i]
		if _, ok := worst[r]; r.today && !ok {
			v.problems = append(v.problems, fmt.Sprintf("%s:%d: there is no %s of %s: remove the line", limitsFile, r.line, r.measure, r.of.text))
			v.lower[r.line] = -1
		}
	}
	slices.Sort(v.problems)
	return v
}

// table prints, for each rule, the worst of what it decides on.
func (l *limits) table(worst map[*rule]figure) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "measure\tof\ttoday\tmay be\tshall be")
	for i := range l.rules {
		r := &l.rules[i]
		f, ok := worst[r]
		if !ok {
			continue
		}
		of, shall := f.of, "-"
		if limit := l.find(false, f); limit != nil {
			shall = strconv.Itoa(limit.most)
		}
		if f.of != r.of.text {
			of = fmt.Sprintf("%s, the most of %s", f.of, r.of.text)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", f.measure, of, f.value, r.most, shall)
	}
	_ = w.Flush() // a Builder takes everything
	return text.String()
}

// lowered returns the text of limits.txt with lower limits, and without lines that say nothing
// anymore.
func lowered(text string, lower map[int]int) string {
	var kept []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		enough, ok := lower[number]
		switch {
		case !ok:
			kept = append(kept, line)
		case enough >= 0:
			words := strings.Fields(line)
			old := words[len(words)-1]
			kept = append(kept, line[:strings.LastIndex(line, old)]+strconv.Itoa(enough)+"\n")
		}
	}
	return strings.Join(kept, "")
}
