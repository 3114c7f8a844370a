package conform

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
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
	order     []*trial // as they were first made
	unique    int

	acted      time.Time     // when the last answer came
	late       time.Duration // how long after an answer an effect has come
	known      int           // what the counter showed at the end of the last trial, if that counts; -1 if that is not known
	attributed bool          // effects show the numbers of their requests
	strayed    bool          // an effect came between two trials
}

func newLab(ctx context.Context, c Config) (*lab, error) {
	l := &lab{ctx: ctx, cfg: c, wire: newWire(&c), trials: map[string]*trial{}, known: -1}
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
		t = &trial{lab: l, plain: e.plain}
		t.make = func() { e.make(t, p) }
		l.trials[name] = t
		l.order = append(l.order, t)
		t.run()
	}
	return t
}
