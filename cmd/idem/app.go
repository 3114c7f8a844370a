package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
)

// An app is one call of the program.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	env         func(string) string
	now         func() time.Time
	target      target
	format      string
	began       bool // a command has begun, so the arguments were good
}

// formats are what -o takes.
const (
	asTable = "table"
	asJSON  = "json"
)

// on lets a command run at the desk that the flags name.
func (a *app) on(f func(ctx context.Context, d desk, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.began = true
		ctx := cmd.Context()
		t, err := a.target.choose(a.env)
		if err != nil {
			return err
		}
		if t.server != "" {
			a.target.actor = "" // the service knows who decides
			service, err := t.service(cmd.Flags(), a.env)
			if err != nil {
				return err
			}
			return f(ctx, service, args)
		}
		s, err := t.connect(ctx)
		if err != nil {
			return err
		}
		defer s.close()
		if err := s.open(ctx); err != nil {
			return err
		}
		return f(ctx, s, args)
	}
}

// complain tells an error, and what is there now if a record has changed.
func (a *app) complain(err error) {
	if a.format == asJSON {
		a.encode(a.errOut, inspect.FailureOf(codeOf(err), err.Error(), err))
		return
	}
	says := strings.TrimPrefix(err.Error(), "idempotency: ")
	if _, gone := errors.AsType[*inspect.Gone](err); gone { // somebody has written the reason
		says = plain(says)
	}
	fmt.Fprintln(a.errOut, "idem:", says)
}
