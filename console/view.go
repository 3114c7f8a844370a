package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"text/template/parse"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file writes pages, JSON and what went wrong.

//go:embed assets
var assets embed.FS

// pages show all text by [inspect.Visible], because most of it was made elsewhere. A template says raw of what a form or an
// address has to send back as it was, and lines of text with more lines than one.
var pages = allVisible(template.Must(template.New("").Funcs(template.FuncMap{
	"dict": dict, "plural": plural, "visible": visible, "lines": lines, "versions": inspect.Versions, "exact": exact, "raw": func(v any) any { return v },
}).ParseFS(assets, "assets/*.html")))

// visible returns text as it is shown, and anything else as it is.
func visible(v any) any {
	if _, query := v.(template.URL); query {
		return v
	}
	if s, ok := v.(fmt.Stringer); ok {
		return inspect.Visible(s.String())
	}
	if s := reflect.Indirect(reflect.ValueOf(v)); s.Kind() == reflect.String {
		return inspect.Visible(s.String())
	}
	return v
}

var inLines = regexp.MustCompile(`[^\n\t]+`)

// lines is visible for text that may have several.
func lines(text string) string {
	return inLines.ReplaceAllStringFunc(strings.ReplaceAll(text, "\r\n", "\n"), inspect.Visible)
}

// allVisible lets templates show what they show by visible, unless they say otherwise.
func allVisible(t *template.Template) *template.Template {
	for _, one := range t.Templates() {
		if one.Tree != nil {
			showVisible(one.Tree.Root)
		}
	}
	return t
}

func showVisible(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return // no else
		}
		for _, one := range n.Nodes {
			showVisible(one)
		}
	case *parse.IfNode:
		showVisible(n.List)
		showVisible(n.ElseList)
	case *parse.RangeNode:
		showVisible(n.List)
		showVisible(n.ElseList)
	case *parse.WithNode:
		showVisible(n.List)
		showVisible(n.ElseList)
	case *parse.ActionNode:
		last := n.Pipe.Cmds[len(n.Pipe.Cmds)-1].Args[0].String()
		if len(n.Pipe.Decl) == 0 && last != "raw" && last != "lines" {
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier("visible").SetPos(n.Pos)}})
		}
	}
}

// dict makes what a template is given of names and values.
func dict(pairs ...any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return itoa(n) + " " + more
}

// exact is for those who compare a time with a log.
func exact(rfc string) string { return strings.NewReplacer("T", " ", "Z", " UTC").Replace(rfc) }

func itoa(n int) string { return strconv.Itoa(n) }

// edition is that of the style sheet, which a browser may keep.
var edition = func() string {
	css, _ := assets.ReadFile("assets/style.css")
	sum := sha256.Sum256(css)
	return hex.EncodeToString(sum[:4])
}()

// A frame is what each page shows around its content.
type frame struct {
	Base, Page, Title, Edition string
	Actor                      Actor
	Content                    any
}

// wantsJSON reports whether the client asks for JSON, and not for a page.
func (v *visit) wantsJSON() bool {
	accept := strings.Join(v.r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// show writes a page, or what it shows as JSON.
func (v *visit) show(status int, page, title string, content, data any) error {
	var body bytes.Buffer
	kind := "text/html; charset=utf-8"
	if v.wantsJSON() && data != nil {
		kind = "application/json"
		e := json.NewEncoder(&body)
		e.SetEscapeHTML(false)
		if err := e.Encode(data); err != nil {
			return err
		}
	} else if err := pages.ExecuteTemplate(&body, page+".html", frame{v.base, page, title, edition, v.actor, content}); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", kind)
	v.w.Header().Set("Content-Length", itoa(body.Len()))
	v.w.WriteHeader(status)
	if v.r.Method != http.MethodHead {
		_, _ = v.w.Write(body.Bytes()) // a browser that is gone can ask again
	}
	return nil
}

// asset sends a file that pages refer to.
func (v *visit) asset(name string) error {
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		return err
	}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	v.w.Header().Set("Content-Type", kinds[path.Ext(name)])
	v.w.Header().Set("Cache-Control", "private, max-age=86400")
	if v.r.Method != http.MethodHead {
		_, _ = v.w.Write(text)
	}
	return nil
}

// A problem is why a request does not get what it asks for.
type problem struct {
	status int
	says   string
	err    error  // nil, or the cause
	now    string // what is there now, if that is why
}

func (p *problem) Error() string { return p.says }

func (p *problem) Unwrap() error { return p.err }

func notFound(says string) *problem { return &problem{status: http.StatusNotFound, says: says} }

// problemOf returns what an error means for a client.
func problemOf(err error) *problem {
	p, own := errors.AsType[*problem](err)
	changed, isChanged := errors.AsType[*inspect.Changed](err)
	_, refused := errors.AsType[*inspect.Refusal](err)
	_, settled := errors.AsType[*inspect.Settled](err)
	says := upper(strings.TrimPrefix(err.Error(), "idempotency: "))
	switch {
	case own:
		return p
	case errors.Is(err, store.ErrNotFound):
		return &problem{status: http.StatusNotFound, says: says, err: err}
	case isChanged:
		return &problem{http.StatusConflict, "Changed meanwhile: you saw " + brief(changed.Seen) + ", and now the record is " + brief(changed.Now) +
			". Nothing was changed by your decision.", err, changed.Now.String()}
	case errors.Is(err, store.ErrChanged), settled:
		return &problem{status: http.StatusConflict, says: says, err: err}
	case refused, strings.HasPrefix(err.Error(), "idempotency: Resolve:"), // the answer could not be one of the route's
		errors.Is(err, idempotency.ErrStepsRecorded), errors.Is(err, idempotency.ErrUncertain):
		return &problem{status: http.StatusUnprocessableEntity, says: says, err: err}
	case errors.Is(err, store.ErrBadCursor):
		return &problem{status: http.StatusBadRequest, says: "The list cannot go on from there. Begin with the first page.", err: err}
	case errors.Is(err, idempotency.ErrNoFinder):
		return &problem{status: http.StatusNotImplemented, says: says + ".", err: err}
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrUnreadableHere):
		return &problem{status: http.StatusInternalServerError, says: says, err: err}
	}
	if inspect.Replied(err) && !inspect.Away(err) {
		return &problem{status: http.StatusInternalServerError, says: "The store refuses: " + says, err: err}
	}
	return &problem{status: http.StatusServiceUnavailable, says: "The store does not answer: " + says, err: err}
}

// brief says what was seen, for people.
func brief(s store.Seen) string {
	if s.State == store.Corrupt {
		return "unreadable"
	}
	return s.State.String() + " after attempt " + itoa(s.Attempt)
}

// upper makes a sentence of an error.
func upper(says string) string {
	if says == "" {
		return says
	}
	return strings.ToUpper(says[:1]) + says[1:]
}

// codes are the exit codes that the command line has for what a status means.
var codes = map[int]int{
	http.StatusNotFound: inspect.ExitNotFound, http.StatusServiceUnavailable: inspect.ExitUnreachable,
	http.StatusBadRequest: inspect.ExitUsage, http.StatusMethodNotAllowed: inspect.ExitUsage,
}

// fail writes an error.
func (v *visit) fail(err error) {
	p := problemOf(err)
	failure := inspect.FailureOf(max(codes[p.status], inspect.ExitError), p.says, err)
	failure.Actor = v.actor.Name
	if p.now != "" {
		failure.Now = p.now
	}
	if failure.Now != "" {
		failure.Code = inspect.ExitChanged
	}
	content := dict("Status", p.status, "Text", http.StatusText(p.status), "Says", p.says, "Known", v.known)
	if err := v.show(p.status, "problem", http.StatusText(p.status), content, failure); err != nil {
		http.Error(v.w, p.says, p.status)
	}
}
