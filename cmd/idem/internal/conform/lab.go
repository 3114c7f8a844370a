package conform

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"
)

// A lab is one run of all checks.
type lab struct {
	ctx       context.Context
	cfg       Config
	wire      *wire
	sink      *sink
	profile   Profile
	keyHeader string
	quoted    bool // how keys are written where the form does not matter
	published *Profile
	noPolicy  string // why there is no published policy
	noEffects string // why effects cannot be counted
	broken    string // why nothing else can be tried
	typical   time.Duration
	trials    map[string]*trial
	unique    int
}

func newLab(ctx context.Context, c Config) (*lab, error) {
	l := &lab{ctx: ctx, cfg: c, wire: newWire(&c), trials: map[string]*trial{}}
	l.profile, _ = findProfile(c.Profile)
	if c.Profile == Published {
		l.profile = Profile{Name: Published, KeyHeader: "Idempotency-Key", Raw: true}
	}
	l.quoted = l.profile.Quoted
	l.keyHeader = c.KeyHeader
	if l.keyHeader == "" {
		l.keyHeader = l.profile.KeyHeader
	}
	if c.Effects.String() == "" {
		l.noEffects = "no way to learn of effects was named (--effects, --sink or --id)"
	}
	random := make([]byte, 3)
	_, _ = rand.Read(random)
	l.unique = 100_000 + (int(random[0])<<16|int(random[1])<<8|int(random[2]))%800_000
	if c.Effects.Sink != "" {
		var err error
		if l.sink, err = listen(ctx, c.Effects.Sink); err != nil {
			return nil, fmt.Errorf("%w: the sink: %w", ErrConfig, err)
		}
	}
	return l, nil
}

func (l *lab) close() {
	if l.sink != nil {
		_ = l.sink.Close()
	}
}

// newKey returns a key that nobody has used: a UUID, which the strictest servers take.
func newKey() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// fresh returns a request that was never sent, with a new key.
func (l *lab) fresh() shot {
	l.unique++
	return l.cfg.Template.shot(l.unique, l.written(newKey()))
}

// written returns a key in the form that the server takes.
func (l *lab) written(key string) string {
	if l.quoted {
		return `"` + key + `"`
	}
	return key
}

// trial returns the trial of an experiment, and makes it if no check has needed it yet.
func (l *lab) trial(e experiment, p *Profile) *trial {
	name := e.name
	if e.by != nil {
		name += fmt.Sprint(e.by(p))
	}
	t := l.trials[name]
	if t == nil {
		t = &trial{lab: l}
		if n, ok := t.count(); ok {
			t.start = n
		}
		e.make(t, p)
		l.trials[name] = t
	}
	return t
}

// prepare finds out in which form the server takes keys, whether effects can be counted, and what the
// server publishes.
func (l *lab) prepare() error {
	t := l.trial(pair, &l.profile)
	if !t.first().ok() && l.quoted {
		l.quoted = false
		if other := l.trial(experiment{name: "raw pair", make: pair.make}, &l.profile); other.first().ok() {
			l.trials[pair.name], t = other, other
		}
	}
	first := t.first()
	switch {
	case t.untried != "":
		l.broken = t.untried
	case first.err != nil:
		return first.err
	case !first.ok():
		l.broken = fmt.Sprintf("the first request gets %d", first.status)
	case l.noEffects == "" && (len(t.marks) == 0 || t.marks[0] < 0):
		l.noEffects = "the source of effects cannot be read: " + l.cfg.Effects.String()
	case l.noEffects == "" && t.marks[0] == 0:
		l.noEffects = "the first request was answered, and has not moved " + l.cfg.Effects.String()
	}
	l.typical = first.began.Sub(first.wrote)
	if l.broken == "" {
		l.findPolicy()
	}
	if l.cfg.Profile == Published {
		if l.published == nil {
			return fmt.Errorf("%w: no published policy: %s", ErrConfig, l.noPolicy)
		}
		l.profile = *l.published
		if l.cfg.KeyHeader == "" && l.profile.KeyHeader != "" && !sameField(l.profile.KeyHeader, l.keyHeader) {
			return fmt.Errorf("%w: the policy has the key in %s: repeat with --key-header", ErrConfig, l.profile.KeyHeader)
		}
	}
	return nil
}

func sameField(a, b string) bool { return http.CanonicalHeaderKey(a) == http.CanonicalHeaderKey(b) }

// find makes a check.
func (l *lab) find(c *check) Finding {
	p, rule := &l.profile, l.profile.rule(c.id)
	f := Finding{Check: c.id, Group: c.group, Claim: c.claim}
	if c.documents {
		p, rule = l.published, Rule{Must, documentation + ", and the published policy, " + c.field}
	}
	f.Level, f.Says = rule.Level, rule.Says
	v := verdict{}
	if l.broken != "" && c.id != "first-answer" {
		v = untried("%s", l.broken)
	} else if t := l.trial(c.try, p); t.untried != "" {
		v = untried("%s", t.untried)
	} else if v = c.judge(p, t); v.result == Fails {
		f.Steps = t.steps
	}
	f.Result, f.Expected, f.Reason = v.result, v.expected, v.reason
	return f
}

// documentation is who says that a server does what it publishes.
const documentation = "draft-ietf-httpapi-idempotency-key-header-07, section 2.5 (the resource publishes its rules)"
