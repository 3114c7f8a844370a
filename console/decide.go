package console

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file decides about a record.

// A form is what an actor has filled in.
type form struct {
	Seen, Decision, Reason              string
	Status, ContentType, Location, Body string
	Header                              []string // further fields of the answer, as a program sends them
	NotDone                             []string
	// Of an erasure: whose records, whether those that are held, too, and how old they are at least.
	Tenant    string
	AlsoHeld  bool
	OlderThan string
	// Of a decision about a group: what names it, how many keys it has, and where a decision that had to stop goes on.
	Route, Minute, Count, After string
}

// Ticked reports whether the form says that a step has not happened.
func (f form) Ticked(step string) bool { return slices.Contains(f.NotDone, step) }

func (v *visit) form() form {
	f := v.r.PostForm
	body := f.Get("body")
	if !v.wantsJSON() {
		body = strings.ReplaceAll(body, "\r\n", "\n") // as it was before the browser sent it
	}
	return form{
		Seen: f.Get("seen"), Decision: f.Get("decision"), Reason: strings.TrimSpace(f.Get("reason")),
		Status: strings.TrimSpace(f.Get("status")), ContentType: strings.TrimSpace(f.Get("content_type")), Location: strings.TrimSpace(f.Get("location")),
		Body: body, Header: f["header"], Tenant: f.Get("tenant"), AlsoHeld: f.Get("also_held") != "", OlderThan: strings.TrimSpace(f.Get("older_than")),
		NotDone: f["not_done"], Route: f.Get("route"), Minute: f.Get("minute"), Count: strings.TrimSpace(f.Get("count")), After: f.Get("after"),
	}
}

// errSeen says that a form was not made from a record that was looked at.
var errSeen = &problem{status: http.StatusBadRequest, says: "The form does not say what was seen. Look first, and decide about that."}

func (v *visit) mayDecide() error {
	if !v.actor.Decide || v.actor.Name == "" {
		return &problem{status: http.StatusForbidden, says: "You may look, and not decide."}
	}
	return nil
}

func (v *visit) decide(name string) error {
	f := v.form()
	if err := v.mayDecide(); err != nil {
		return err
	}
	if f.Decision == "ask" {
		return v.ask(name)
	}
	if f.Decision == "" {
		if f.Decision = v.r.PostFormValue("rehearse"); f.Decision != "" {
			return v.rehearse(name, f)
		}
	}
	seen, res, err := f.about(v.actor.Name)
	switch {
	case errors.Is(err, errSeen):
		return err
	case err != nil:
		return v.again(name, f, err)
	}
	defer v.stay(patience)()
	done, err := v.settle(name, &f, seen, res)
	if err != nil {
		return v.again(name, f, err)
	}
	return v.show(http.StatusOK, "done", "Decided", done, done)
}

// stay lets what is decided be done, also if the browser has gone.
func (v *visit) stay(d time.Duration) context.CancelFunc {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), d)
	v.r = v.r.WithContext(ctx)
	return cancel
}

// settle makes the decision of a form about a record, and returns what that has done, or why it was not made.
func (v *visit) settle(name string, f *form, seen store.Seen, res idempotency.Resolution) (inspect.Decision, error) {
	ctx := v.r.Context()
	v.made.mu.Lock()
	defer v.made.mu.Unlock()
	o := inspect.Order{Record: name, Word: f.Decision, Seen: seen, Resolution: res}
	r, err := v.ruling(name)
	if again := v.made.of[name]; again.by == f.sum(v.actor, seen.String()) && stands(&o, r, err) {
		return again.result, nil
	}
	if err != nil {
		return o.Told(), err
	}
	d, err := r.Decide(ctx, o)
	if d.Allowed {
		v.made.add(name, f.sum(v.actor, seen.String()), d)
	}
	return d, err
}

// stands reports whether a decision that was made is still in force: nobody has claimed the key since, nor forgotten it, after which
// attempts count from 1 again.
func stands(o *inspect.Order, r *inspect.Ruling, err error) bool {
	if o.Word == "forget" {
		return errors.Is(err, store.ErrNotFound)
	}
	now := r.Info.Seen()
	return err == nil && now.Attempt == o.Seen.Attempt && now.Owner == o.Seen.Owner && now.State != store.Held
}

// The decisions are those that a console has made last, by record or tenant, with what each has done. A form that is sent
// twice is one of them. Only one is made at a time.
type decisions[T any] struct {
	mu sync.Mutex
	of map[string]made[T]
}

// A made decision is what it has done, and the form that it was made by.
type made[T any] struct {
	by     [sha256.Size]byte
	result T
}

// A decided group is what became of it.
type decided struct {
	inspect.Decided
	status int
}

const mostMade = 1000

func (m *decisions[T]) add(name string, by [sha256.Size]byte, result T) {
	if m.of == nil || len(m.of) >= mostMade {
		m.of = make(map[string]made[T])
	}
	m.of[name] = made[T]{by, result}
}

// sum is equal for two forms of one actor that make the same decision about what was seen.
func (f *form) sum(who Actor, seen string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q", []any{who.Name, seen, f.Decision, f.Reason, f.Status, f.ContentType, f.Location, f.Body, f.Header, f.NotDone}))
}

// about returns what a form says of one record, and about what was seen of it.
func (f *form) about(actor string) (seen store.Seen, res idempotency.Resolution, err error) {
	if seen.UnmarshalText([]byte(f.Seen)) != nil {
		return seen, res, errSeen
	}
	res, err = f.resolution(actor)
	return seen, res, err
}

// resolution returns what a form says, and as whose decision.
func (f *form) resolution(actor string) (res idempotency.Resolution, err error) {
	outcome, known := inspect.Outcomes[f.Decision]
	res.Outcome, res.NotDone, res.Header = outcome, f.NotDone, http.Header{}
	res.Decision = idempotency.Decision{Actor: actor, Reason: f.Reason}
	switch {
	case !known && f.Decision != "forget":
		return res, unfinished("Say final, not-executed, resume or forget.")
	case f.unreasoned() != nil:
		return res, f.unreasoned()
	case outcome != idempotency.Final || f.Decision == "forget":
		return res, nil
	}
	if res.Status, err = strconv.Atoi(f.Status); err != nil || res.Status < 200 || res.Status > 599 {
		return res, unfinished("Give the answer that retries get: at least its status, from 200 to 599.")
	}
	for name, value := range map[string]string{"Content-Type": f.ContentType, "Location": f.Location} {
		if value != "" {
			res.Header.Set(name, value)
		}
	}
	for _, line := range f.Header {
		name, value, isField := strings.Cut(line, ":")
		if !isField {
			return res, unfinished("Each header must be like Retry-After: 5.")
		}
		res.Header.Add(name, strings.TrimSpace(value))
	}
	res.Body = []byte(f.Body)
	return res, nil
}

// maxReason is how long a reason may be, in bytes.
const maxReason = 2000

// unreasoned says what is wrong with the reason of a form.
func (f *form) unreasoned() error {
	switch {
	case f.Reason == "":
		return unfinished("Say how you found it out, for whoever asks later.")
	case len(f.Reason) > maxReason:
		return unfinished("Say it in at most 2,000 bytes: it becomes a line of the log.")
	}
	return nil
}

func unfinished(says string) *problem {
	return &problem{status: http.StatusUnprocessableEntity, says: says}
}

// again shows the record as it is now, with what was filled in and why that was not done.
func (v *visit) again(name string, f form, err error) error {
	p := problemOf(err)
	if v.wantsJSON() || p.status >= http.StatusInternalServerError {
		return p
	}
	r, lookErr := v.ruling(name)
	if lookErr != nil {
		return lookErr // it is gone, or the store is
	}
	page := v.pageOf(r)
	f.Seen, page.Notice, page.Form = page.Record.Seen, p.says, f
	if p.status == http.StatusConflict {
		page.Notice += " This is what is there now."
	}
	return v.show(p.status, "record", "Not decided", page, nil)
}

// ask shows what the resolver of the route says.
func (v *visit) ask(name string) error {
	r, err := v.ruling(name)
	if err != nil {
		return err
	}
	word, err := inspect.AskResolver(v.r.Context(), r.Guard, name)
	switch {
	case errors.Is(err, store.ErrChanged):
		return v.again(name, v.form(), err)
	case err != nil:
		return v.again(name, v.form(), &problem{status: http.StatusUnprocessableEntity, says: upper(strings.TrimPrefix(err.Error(), "idempotency: ")) + ".", err: err})
	}
	page := v.pageOf(r)
	page.Word = &word
	page.Form.Reason = word.Reason
	return v.show(http.StatusOK, "record", "One key", page, word)
}
