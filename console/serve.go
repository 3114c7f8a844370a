package console

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"

	"example.com/idempotency/internal/inspect"
)

// This file lists the screens with their addresses, and leads each request to one.

// ServeHTTP shows a screen, or makes a decision.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	v := &visit{console: c, w: w, r: r.WithContext(ctx), base: "./"}
	setHeader(w.Header())
	page, name, found := find(r)
	if page == "records" {
		v.base = "../"
	}
	actor, err := c.Authorize(v.r)
	if err != nil {
		v.fail(unauthorized(err))
		return
	}
	v.actor, v.known = actor, true
	switch {
	case !found:
		v.fail(notFound("There is no such page."))
	case page == "":
		path, _, _ := strings.Cut(r.RequestURI, "?")
		w.Header().Set("Location", "./"+path[strings.LastIndexByte(path, '/')+1:]+"/")
		w.WriteHeader(http.StatusPermanentRedirect)
	default:
		v.serve(screens[page], name)
	}
}

// A screen is what one address shows, and what a POST to it does.
type screen struct {
	get, post func(v *visit, name string) error
}

// screens are those of the console. An address names one by its end, so that the console needs not be told where it
// is mounted.
var screens = map[string]screen{
	"/":         {get: (*visit).showNow},
	"find":      {get: (*visit).showFind, post: (*visit).search},
	"erase":     {get: (*visit).showErase, post: (*visit).erase},
	"store":     {get: (*visit).showStore},
	"list":      {get: (*visit).showList},
	"counts":    {get: (*visit).showCounts},
	"running":   {get: (*visit).showRunning},
	"group":     {get: (*visit).showGroup, post: (*visit).decideGroup},
	"records":   {get: (*visit).showRecord, post: (*visit).decide},
	"style.css": {get: (*visit).asset},
	"icon.svg":  {get: (*visit).asset},
}

// find returns the screen that the address of a request ends with, and the name at its end. An empty screen is the
// first one, whose address lacks the slash at its end: the prefix was stripped, or the router has the console there.
func find(r *http.Request) (page, name string, found bool) {
	u := r.URL
	if u.Path == "" {
		return "", "", true
	}
	if u.RawPath != "" || strings.Contains(u.Path, "//") || strings.TrimSuffix(path.Clean(u.Path), "/") != strings.TrimSuffix(u.Path, "/") {
		return "/", "", false // nobody is led here by a link
	}
	dir, last := path.Split(u.Path)
	if path.Base(dir) == "records" && last != "" {
		return "records", last, true
	}
	if last == "" {
		return "/", "", true
	}
	_, known := screens[last]
	known = known && last != "records"
	if !known && isPattern(r.Pattern, u.Path, last) {
		return "", "", true
	}
	return last, last, known
}

// isPattern reports whether a router has the console at an address with that last part, and not only below it. A pattern may
// begin with a method and a host, its parts may have names, and that of a chi.Mux for all below an address stands for the
// address, too.
func isPattern(pattern, path, last string) bool {
	pattern = strings.TrimSuffix(pattern, "/*")
	return strings.HasSuffix(pattern, "/"+last) && strings.Count(pattern, "/") == strings.Count(path, "/")
}

// serve shows a screen, or does what its form asks for.
func (v *visit) serve(s screen, name string) {
	do := s.get
	switch v.r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		if err := v.origin.Check(v.r); err != nil {
			v.fail(&problem{status: http.StatusForbidden, says: "The form was sent by another site, and nothing was done.", err: err})
			return
		}
		v.r.Body = http.MaxBytesReader(v.w, v.r.Body, inspect.MostForm)
		do = s.post
		if err := v.r.ParseForm(); do != nil && err != nil {
			v.fail(unreadableForm(err))
			return
		}
	default:
		do = nil
	}
	if do == nil {
		allow := "GET, HEAD"
		if s.post != nil {
			allow += ", POST"
		}
		v.w.Header().Set("Allow", allow)
		v.fail(&problem{status: http.StatusMethodNotAllowed, says: "This page is only shown, and not written to."})
		return
	}
	if err := do(v, name); err != nil {
		v.fail(err)
	}
}

func unreadableForm(err error) *problem {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return &problem{status: http.StatusRequestEntityTooLarge, says: "The form is larger than 4 MiB. Decide by Guard.Resolve in the service.", err: err}
	}
	return &problem{status: http.StatusBadRequest, says: "The form cannot be read.", err: err}
}
