package main

import (
	"regexp"
	"strings"
)

// A pattern matches names with slashes as the go command's patterns do: "..." stands for any
// text, and "/..." at the end for none, too. A "*" stands for any text without a slash.
type pattern struct {
	text string
	re   *regexp.Regexp
}

func newPattern(text string) pattern {
	re := strings.NewReplacer(`\.\.\.`, `.*`, `\*`, `[^/]*`).Replace(regexp.QuoteMeta(text))
	if rest, ok := strings.CutSuffix(re, "/.*"); ok {
		re = rest + "(/.*)?"
	}
	return pattern{text, regexp.MustCompile("^" + re + "$")}
}

func (p pattern) matches(name string) bool { return p.re.MatchString(name) }
