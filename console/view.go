package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file writes pages, JSON and what went wrong.

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"list": inspect.Names, "dict": dict, "plural": plural,
}).ParseFS(assets, "assets/*.html"))

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
	err    error // nil, or the cause
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
		return &problem{http.StatusNotFound, says, err}
	case isChanged:
		return &problem{http.StatusConflict, "Changed meanwhile: you saw " + brief(changed.Seen) + ", and now the record is " + brief(changed.Now) +
			". Nothing was changed by your decision.", err}
	case errors.Is(err, store.ErrChanged), settled:
		return &problem{http.StatusConflict, says, err}
	case refused, strings.HasPrefix(err.Error(), "idempotency: Resolve:"), // the answer could not be one of the route's
		errors.Is(err, idempotency.ErrStepsRecorded), errors.Is(err, idempotency.ErrUncertain):
		return &problem{http.StatusUnprocessableEntity, says, err}
	case errors.Is(err, store.ErrBadCursor):
		return &problem{http.StatusBadRequest, "The list cannot go on from there. Begin with the first page.", err}
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrUnreadableHere):
		return &problem{http.StatusInternalServerError, says, err}
	}
	return &problem{http.StatusServiceUnavailable, "The store does not answer: " + says, err}
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
	failure := inspect.Failure{Type: "error", Code: max(codes[p.status], inspect.ExitError), Error: p.says}
	if changed, ok := errors.AsType[*inspect.Changed](err); ok {
		failure.Code, failure.Now = inspect.ExitChanged, changed.Now.String()
	}
	content := dict("Status", p.status, "Text", http.StatusText(p.status), "Says", p.says, "Known", v.known)
	if err := v.show(p.status, "problem", http.StatusText(p.status), content, failure); err != nil {
		http.Error(v.w, p.says, p.status)
	}
}
