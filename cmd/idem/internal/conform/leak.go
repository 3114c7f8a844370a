package conform

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// This file finds one answer in another, however it is written there.

var (
	word       = regexp.MustCompile(`[A-Za-z0-9]{6,}`)
	moment     = regexp.MustCompile(`^(19|20)\d{6}(T?\d{4,6}Z?)?$`)
	escaped    = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|["\\/bfnrt])`)
	percent    = regexp.MustCompile(`(%[0-9a-fA-F]{2})+`)
	encoded    = regexp.MustCompile(`[A-Za-z0-9+/_-]{8,}`)
	resources  = []string{"Location", "Content-Location", "Etag"}
	hasNumeral = regexp.MustCompile(`[0-9]`)
)

// text is all of an answer that may say something of a run, with so much of the body.
func (a answer) text(most int) string {
	var all strings.Builder
	all.WriteString(a.body[:min(len(a.body), most)])
	for name, values := range a.header {
		if !own.MatchString(name) {
			all.WriteString("\n" + strings.Join(values, "\n"))
		}
	}
	return all.String()
}

// text is all that a request says.
func (s shot) text() string {
	all := append([]string{s.method, s.url, s.body}, s.keys...)
	for _, values := range s.header {
		all = append(all, values...)
	}
	return strings.Join(all, "\n")
}

// A mark is something that one answer contains and nothing else does. maxMarked bytes of an answer are searched for
// marks, and maxMarks are taken: what a server sends bounds how long the search takes.
const (
	maxMarked = 64 << 10
	maxMarks  = 200
)

// marksOf returns what an answer contains, and neither a request nor other answers do: the ID that was made for it,
// or what its request alone has sent. A time is no mark, because two answers of one moment share it.
func marksOf(a answer, sent shot, others []answer) (marks []string) {
	body, request, known := strings.TrimSpace(a.body), sent.text(), map[string]bool{}
	whole := len(body) >= 8 && len(body) <= maxMarked && !strings.Contains(request, body)
	for _, other := range others {
		whole = whole && strings.TrimSpace(other.body) != body
		for _, w := range word.FindAllString(other.text(maxMarked), -1) {
			known[w] = true
		}
	}
	if whole {
		marks = append(marks, body)
	}
	for _, w := range word.FindAllString(a.text(maxMarked), -1) {
		if (hasNumeral.MatchString(w) || len(w) >= 12) && !known[w] && !isMoment(w) && !mentions(request, w) && len(marks) < maxMarks {
			known[w], marks = true, append(marks, w)
		}
	}
	return marks
}

// isMoment reports whether a word is a time of this day, as a date or as a number of seconds or parts of them.
func isMoment(w string) bool {
	if moment.MatchString(w) {
		return true
	}
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil {
		return false
	}
	for unit := time.Second; unit >= time.Nanosecond; unit /= 1000 {
		day := int64(24 * time.Hour / unit)
		if now := time.Now().UnixNano() / int64(unit); n > now-day && n < now+day {
			return true
		}
	}
	return false
}

// spellings returns a text, and what it may stand for: without the escapes of JSON, URLs and HTML, and what is
// in it in base64 or hexadecimal.
func spellings(text string) (all []string) {
	all = []string{text}
	for i, round := 0, 0; round < 3; round++ {
		end := len(all)
		for ; i < end; i++ {
			all = append(all, unescaped(all[i]), decoded(all[i]))
		}
	}
	return all
}

func unescaped(text string) string {
	text = escaped.ReplaceAllStringFunc(text, func(s string) string {
		if plain, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `\/`, "/") + `"`); err == nil {
			return plain
		}
		return s
	})
	text = percent.ReplaceAllStringFunc(text, func(s string) string {
		plain, _ := url.PathUnescape(s)
		return plain
	})
	return html.UnescapeString(text)
}

func decoded(text string) string {
	var all []string
	for _, s := range encoded.FindAllString(text, -1) {
		for _, decode := range []func(string) ([]byte, error){
			base64.RawStdEncoding.DecodeString, base64.RawURLEncoding.DecodeString, hex.DecodeString,
		} {
			if plain, err := decode(s); err == nil {
				all = append(all, string(plain))
			}
		}
	}
	return strings.Join(all, "\n")
}

// shows returns what of the marks an answer shows, or nothing.
func shows(a answer, marks []string) string {
	texts := spellings(a.text(maxKept))
	for _, mark := range marks {
		for _, text := range texts {
			if mentions(text, mark) {
				return mark
			}
		}
	}
	return ""
}

// sameResource returns the value of a field of a refusal that names what the first run has made, or nothing.
func sameResource(first, alone, refusal answer) string {
	for _, name := range resources {
		if v := first.header.Get(name); v != "" && v != alone.header.Get(name) && v == refusal.header.Get(name) {
			return v
		}
	}
	return ""
}
