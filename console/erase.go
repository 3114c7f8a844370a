package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
)

// This file erases a tenant: it counts first, and then erases what was counted, or nothing.

// An erasePage is what the screen shows: the form that counts, and with the numbers that which erases.
type erasePage struct {
	Finds  bool
	Would  *inspect.Erased // nil if nothing was counted
	Form   form
	Notice string
}

func (v *visit) showErase(string) error {
	return v.show(http.StatusOK, "erase", "Erase a tenant", erasePage{Finds: v.finds()}, nil)
}

// erase counts what would be erased of a tenant, or erases it if the form says so.
func (v *visit) erase(string) error {
	if err := v.mayDecide(); err != nil {
		return err
	}
	f := v.form()
	switch {
	case f.Tenant == "":
		return unfinished("Name the tenant.")
	case f.Decision == "":
		return v.count(http.StatusOK, f, "")
	case f.Decision != "erase":
		return unfinished("Say erase, or nothing to have it counted.")
	}
	if err := f.unreasoned(); err != nil {
		if v.wantsJSON() {
			return err
		}
		return v.count(http.StatusUnprocessableEntity, f, err.Error())
	}
	if f.Seen == "" {
		return errSeen
	}
	defer v.stay(inspect.EraseTime)()
	done, err := v.eraseSeen(&f)
	p, _ := errors.AsType[*problem](err)
	switch {
	case p != nil && p.now != "" && !v.wantsJSON():
		return v.count(p.status, f, p.says)
	case err != nil:
		return err
	}
	return v.show(http.StatusOK, "erased", "Erased", dict("Erased", &done, "Tenant", f.Tenant), done)
}

// count shows what would be erased now.
func (v *visit) count(status int, f form, notice string) error {
	f.Seen = ""
	x, err := v.plan(&f)
	if err != nil {
		return err
	}
	f.Seen = x.Would.Seen
	return v.show(status, "erase", "Erase a tenant", erasePage{true, &x.Would, f, notice}, x.Would)
}

// plan looks at the records of a tenant.
func (v *visit) plan(f *form) (*inspect.Erasure, error) {
	what := idempotency.Erasing{Scope: inspect.ScopeNamed(f.Tenant), Held: f.AlsoHeld}
	age, before, err := v.oldEnough(f)
	if err != nil {
		return nil, err
	}
	if age > 0 {
		what.OlderThan = v.now().Sub(before)
	}
	ctx := v.r.Context()
	x, err := v.finder().PlanErasure(ctx, what)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, &problem{status: http.StatusServiceUnavailable, says: "The tenant has more records than could be counted in time. Nothing was erased: idem erase has no such limit.", err: err}
	case err != nil:
		return nil, err
	}
	if age > 0 {
		x.Would.OlderThan, x.Would.Seen = int64(age/time.Second), x.Would.Seen+"@"+before.Format(time.RFC3339Nano)
	}
	return x, nil
}

// oldEnough returns how old records are at least, and since when. That is what was old enough when the form was counted: while
// records grow old, no form would be about what was seen.
func (v *visit) oldEnough(f *form) (age time.Duration, before time.Time, err error) {
	if f.OlderThan == "" {
		return 0, before, nil
	}
	if age, err = time.ParseDuration(f.OlderThan); err != nil || age < time.Second {
		return 0, before, unfinished("Say how old records are at least: 720h, for example, or 90m.")
	}
	before = v.now().Add(-age)
	if _, counted, ok := strings.Cut(f.Seen, "@"); ok {
		then, err := time.Parse(time.RFC3339Nano, counted)
		if err != nil || then.After(before) {
			return 0, before, errSeen
		}
		before = then
	}
	return age, before.UTC(), nil
}

// eraseSeen erases what the form has seen, if that is what is there.
func (v *visit) eraseSeen(f *form) (inspect.Erased, error) {
	v.erased.mu.Lock()
	defer v.erased.mu.Unlock()
	by := f.sum(v.actor, f.Seen)
	if again := v.erased.of[f.Tenant]; again.by == by {
		return again.result, nil
	}
	x, err := v.plan(f)
	switch {
	case err != nil:
		return inspect.Erased{}, err
	case f.Seen != x.Would.Seen:
		return inspect.Erased{}, &problem{status: http.StatusConflict, says: "Changed meanwhile, and nothing was erased. " + x.Would.Does(), now: x.Would.Seen}
	}
	done, err := x.Do(v.r.Context(), v.guardOf, idempotency.Decision{Actor: v.actor.Name, Reason: f.Reason})
	if err != nil {
		p := problemOf(err)
		if v.r.Context().Err() != nil {
			p = &problem{status: http.StatusServiceUnavailable, says: "Its minute was over."}
		}
		return done, &problem{status: p.status, says: done.Does() + " Then it stopped, and the others are left: count again, and repeat it. " + p.says, err: err}
	}
	v.erased.add(f.Tenant, by, done)
	return done, nil
}
