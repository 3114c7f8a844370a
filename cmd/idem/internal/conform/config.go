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
	// Late is how long after its answer an effect may come. The program waits that long where it must be sure, and
	// less elsewhere.
	Late time.Duration
	// AtOnce is how many requests are sent at once.
	AtOnce int
	// MaxRequests bounds how many requests are sent in all, and Rate how many in a second.
	MaxRequests int
	Rate        float64
	// Timeout is how long an answer may take, and Patience for how long a request is made
	// again that is refused because another one is running.
	Timeout, Patience time.Duration
}

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
	complain(c.Late < 0, "how late effects are is %v, and must not be negative", c.Late)
	complain(c.TTL < 0, "the TTL is %v, and must not be negative", c.TTL)
	if c.Credential != "" {
		_, _, err := field(c.Credential)
		complain(err != nil, "the credential %w", err)
	}
	return errors.Join(append(errs, c.Template.validate(), c.Effects.validate())...)
}
