// Package conform finds out, over the wire, whether a server keeps what is said about
// idempotency keys. It sends requests of one form to a server, makes them again in all the ways in
// which clients and networks do, and compares what comes back with a profile.
//
//   - check.go: the checks, as a table: what is sent and who judges it
//   - profile.go, profiles.go, published.go: what is expected, by whom it is said, and how binding
//     that is; the profiles; the one that a server publishes itself
//   - try_*.go: what is sent; judge_*.go: what the answers mean, as pure functions
//   - lab.go, trial.go, template.go, client.go, broken.go, effects.go: how it is sent, and how
//     effects are counted
//   - report.go, matrix.go, print_*.go: what was found, and the forms in which it is shown
package conform

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Config says what is tested, by which profile, and within which bounds.
type Config struct {
	// Template is the request that is sent, with a key of its own each time.
	Template Template
	// Profile is a name of [Profiles], or [Published] for what the server says itself.
	Profile string
	// KeyHeader is the field of the key. Empty stands for that of the profile.
	KeyHeader string
	// Policy is the URL of the server's published policy. Empty stands for the one to which
	// refusals link.
	Policy string
	// Effects says how effects are counted.
	Effects Source
	// Credential is the header field, "Name: value", by which a second caller is known.
	Credential string
	// OtherPath is the path of a second route that takes the same request.
	OtherPath string
	// Restart kills the server and starts it again. Nil stands for nobody who can.
	Restart func(context.Context) error
	// TTL is how long the server keeps a key. Zero leaves expiry out.
	TTL time.Duration
	// AtOnce is how many requests are sent at once.
	AtOnce int
	// MaxRequests bounds how many requests are sent in all, and Rate how many in a second.
	MaxRequests int
	Rate        float64
	// Timeout is how long an answer may take, and Patience for how long a request is made
	// again that is refused because another one is running.
	Timeout, Patience time.Duration
}

// Run makes all checks, and returns what was found. It returns an error if the server cannot be
// reached at all, or if the configuration is wrong.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	l, err := newLab(ctx, c)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.prepare(); err != nil {
		return nil, err
	}
	r := &Report{
		Type: "conformance", Target: c.Template.URL, Method: c.Template.Method, Profile: l.profile.Name, Source: l.profile.Source,
		Effects: c.Effects.String(),
	}
	for i := range checks {
		if checks[i].documents && (l.published == nil || c.Profile == Published) {
			continue // there is no policy, or it is the profile
		}
		r.Findings = append(r.Findings, l.find(&checks[i]))
	}
	r.Requests = l.wire.sent()
	return r, nil
}

// ErrConfig is wrapped by errors about a [Config].
var ErrConfig = errors.New("conform")

func (c *Config) validate() error {
	var errs []error
	complain := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
		}
	}
	_, known := findProfile(c.Profile)
	complain(!known && c.Profile != Published, "the profile is %q, and must be one of %s", c.Profile, Names())
	complain(c.AtOnce < 2, "%d requests at once show nothing: at least 2", c.AtOnce)
	complain(c.MaxRequests < 1 || c.Rate <= 0, "the number and the rate of requests must be positive")
	complain(c.Timeout <= 0 || c.Patience <= 0, "the timeout and the patience must be positive")
	complain(c.TTL < 0, "the TTL is %v, and must not be negative", c.TTL)
	if c.Credential != "" {
		_, _, err := field(c.Credential)
		complain(err != nil, "the credential %w", err)
	}
	return errors.Join(append(errs, c.Template.validate(), c.Effects.validate())...)
}
