package conform

import (
	"net/url"
	"strings"
	"time"
)

// This file says what is sent. It judges nothing.

// An experiment makes a trial. Trials of one name are made once, and once for each value of by.
type experiment struct {
	name  string
	make  func(t *trial, p *Profile)
	by    func(p *Profile) any
	plain bool // what it does is told from its answers alone, and effects are not counted
}

// retries is how often a request is repeated where that is all there is to it: a client may come more than once.
const retries = 5

// pair: a request, and its retries.
var pair = experiment{name: "pair", make: func(t *trial, _ *Profile) {
	s := t.lab.fresh()
	t.send(s)
	t.firstMark()
	for range retries {
		t.send(s)
	}
	t.watchedMark()
}}

// repeated sends a request twice.
func (t *trial) repeated(s shot) {
	t.send(s)
	t.send(s)
}

// twoKeys: the same request with two keys.
var twoKeys = experiment{name: "two keys", make: func(t *trial, _ *Profile) {
	s := t.lab.fresh()
	t.both(s, s.key(t.lab.written(newKey())))
}}

func (t *trial) both(a, b shot) {
	t.send(a)
	t.send(b)
	t.mark()
}

// alike: the same request with two keys that are nearly the same.
func alike(what string, change func(key string) (string, string)) experiment {
	return experiment{name: "alike " + what, make: func(t *trial, _ *Profile) {
		s := t.lab.fresh()
		a, b := change(newKey())
		t.both(s.key(t.lab.written(a)), s.key(t.lab.written(b)))
	}}
}

var (
	lastByte = alike("last byte", func(k string) (string, string) {
		long := strings.Repeat(k, 3)[:100]
		return long + "1", long + "2"
	})
	letterCase = alike("case", func(k string) (string, string) {
		k = k[:len(k)-2]
		return k + "af", k + "AF"
	})
)

// reused: another request with a used key. It is tried alone first, because a server may not take it
// for reasons of its own; and the first request comes again last.
func reused(part string, plain bool, change func(t *trial, s shot) shot) experiment {
	return experiment{name: "reused " + part, plain: plain, make: func(t *trial, _ *Profile) {
		first := t.lab.fresh()
		other := change(t, first)
		t.send(other.key(t.lab.written(newKey())).noted("alone, with a key of its own"))
		t.send(first)
		t.mark()
		t.send(other)
		t.mark()
		t.send(first)
	}}
}

var (
	otherBody = reused("body", false, func(t *trial, s shot) shot {
		if !strings.Contains(t.lab.cfg.Template.Body, Unique) {
			t.skip("the body has no %s, so there is no other one", Unique)
		}
		return s.with(t.lab.fresh().body)
	})
	otherSpelling = reused("spelling", false, func(t *trial, s shot) shot {
		body, ok := respelled(s.body)
		if !ok {
			t.skip("the body is not JSON")
		}
		return s.with(body)
	})
	otherMethod = reused("method", true, func(_ *trial, s shot) shot {
		if s.method == "PATCH" {
			return s.by("POST")
		}
		return s.by("PATCH")
	})
	otherPath = reused("path", true, func(t *trial, s shot) shot {
		if t.lab.cfg.OtherPath == "" {
			t.skip("no second path was named (--other-path)")
		}
		return s.at(func(u *url.URL) { u.Path, u.RawPath = t.lab.cfg.OtherPath, "" })
	})
	otherQuery = reused("query", true, func(_ *trial, s shot) shot {
		return s.at(func(u *url.URL) { u.RawQuery = strings.TrimPrefix(u.RawQuery+"&conform=1", "&") })
	})
	otherType = reused("content type", true, func(_ *trial, s shot) shot {
		return s.set("Content-Type", "text/plain").noted("Content-Type: text/plain")
	})
)

// single: one request whose key is sent in a certain way.
func single(what string, lines ...string) experiment {
	return experiment{name: what, plain: true, make: func(t *trial, _ *Profile) { t.send(t.lab.fresh().key(lines...)) }}
}

var (
	noKey      = single("no key")
	emptyKey   = single("empty key", "")
	twoLines   = single("two lines", newKey(), newKey())
	listOfKeys = single("list of keys", newKey()+", "+newKey())
	noASCII    = single("no ASCII", "k\xc3\xa9y-"+newKey())
)

// written forms of keys, sent twice.
func formed(what string, key func(p *Profile) string, by func(p *Profile) any) experiment {
	return experiment{name: what, by: by, plain: true, make: func(t *trial, p *Profile) { t.repeated(t.lab.fresh().key(key(p))) }}
}

var (
	quotedKey = formed("quoted key", func(*Profile) string { return `"` + newKey() + `"` }, nil)
	rawKey    = formed("raw key", func(*Profile) string { return newKey() }, nil)
	spelled   = experiment{name: "both forms", plain: true, make: func(t *trial, _ *Profile) {
		key := newKey()
		s := t.lab.fresh().key(key)
		t.send(s)
		t.send(s.key(`"` + key + `"`))
	}}
	longest = long("longest key", 0)
	tooLong = long("too long a key", 1)
)

func long(what string, more int) experiment {
	return experiment{name: what, plain: true, by: func(p *Profile) any { return p.MaxKey }, make: func(t *trial, p *Profile) {
		if p.MaxKey == 0 {
			t.skip("nothing is said about the longest key")
			return
		}
		key := strings.Repeat(newKey(), p.MaxKey/36+2)[:p.MaxKey+more]
		t.repeated(t.lab.fresh().key(t.lab.written(key)))
	}}
}

// otherCaller: a second caller uses the key of the first, with the same request.
var otherCaller = experiment{name: "other caller", make: func(t *trial, _ *Profile) {
	if t.lab.cfg.Credential == "" {
		t.skip("no second credential was named (--credential)")
		return
	}
	name, value, _ := field(t.lab.cfg.Credential)
	first := t.lab.fresh()
	t.send(first)
	t.mark()
	other := first.set(name, value).noted("the second caller")
	t.send(other)
	t.mark()
	t.send(other)
	t.mark()
}}

// stranger: somebody without a credential uses the key of the first.
var stranger = experiment{name: "stranger", plain: true, make: func(t *trial, _ *Profile) {
	name := "Authorization"
	if t.lab.cfg.Credential != "" {
		name, _, _ = field(t.lab.cfg.Credential)
	}
	first := t.lab.fresh()
	if first.header.Get(name) == "" {
		t.skip("the request has no field %s that could be left out", name)
		return
	}
	t.send(first.without(name).key(t.lab.written(newKey())).noted("without credential, with a key of its own"))
	t.send(first)
	t.send(first.without(name).noted("without credential"))
}}

// crowd: one request, several times at once, and once more afterwards. If the requests have not met,
// although the route is slow enough for that, others are sent.
var crowd = experiment{name: "crowd", make: func(t *trial, _ *Profile) {
	for range 3 {
		t.begin()
		s := t.lab.fresh()
		shots := make([]shot, t.lab.cfg.AtOnce)
		for i := range shots {
			shots[i] = s
		}
		t.burst(shots)
		t.settled(s)
		t.mark()
		if t.lab.typical < slow || t.met() || len(t.turnedAway()) > 0 {
			return
		}
	}
}}

// rivals: two requests with one key, several times at once.
var rivals = experiment{name: "rivals", make: func(t *trial, _ *Profile) {
	if !strings.Contains(t.lab.cfg.Template.Body, Unique) {
		t.skip("the body has no %s, so there is no other one", Unique)
		return
	}
	s := t.lab.fresh()
	shots := make([]shot, t.lab.cfg.AtOnce)
	for i := range shots {
		if shots[i] = s; i%2 == 1 {
			shots[i] = s.with(t.lab.fresh().body)
		}
	}
	t.burst(shots)
	t.mark()
}}

// noticed is how long a server gets to notice that its client has gone.
const noticed = 100 * time.Millisecond

// interrupted: a request whose connection breaks, and its retry.
func interrupted(what string, at breakage, note string) experiment {
	return experiment{name: what, make: func(t *trial, _ *Profile) {
		s := t.lab.fresh()
		if at == halfway && s.body == "" {
			t.skip("the request has no body")
		}
		t.sendBroken(s, at, note)
		t.stop(sleep(t.lab.ctx, noticed))
		t.settled(s)
		t.mark()
	}}
}

var (
	cutRequest = interrupted("cut request", halfway, "cut after half of the body")
	goneClient = interrupted("client gone", beforeAnswer, "the client goes before the answer")
	lostAnswer = interrupted("lost answer", inAnswer, "the connection is reset when the answer arrives")
)

// crashed: the server is killed and started after its answer.
var crashed = experiment{name: "crash after the answer", plain: true, make: func(t *trial, _ *Profile) {
	if t.lab.cfg.Restart == nil {
		t.skip(noRestart)
		return
	}
	s := t.lab.fresh()
	t.send(s)
	t.restart()
	t.settled(s.noted("after a restart"))
}}

// crashing: the server is killed while the request is being processed.
var crashing = experiment{name: "crash during the run", plain: true, make: func(t *trial, _ *Profile) {
	if t.lab.cfg.Restart == nil {
		t.skip(noRestart)
		return
	}
	if t.stop(t.lab.wire.take(t.lab.ctx, 1)) {
		return
	}
	s := t.lab.fresh()
	first := make(chan answer, 1)
	go func() { first <- t.lab.wire.send(t.lab.ctx, s, t.lab.keyHeader) }()
	t.stop(sleep(t.lab.ctx, t.lab.typical/2))
	t.restart()
	t.note(s.noted("the server is killed meanwhile"), <-first)
	t.settled(s.noted("after a restart"))
}}

const noRestart = "nobody can restart the server (--restart-cmd)"

// aged: retries before and after the end of the key.
var aged = experiment{name: "expiry", make: func(t *trial, _ *Profile) {
	ttl := t.lab.cfg.TTL
	if ttl == 0 {
		t.skip("the time that a key lives was not named (--ttl)")
		return
	}
	s, begin := t.lab.fresh(), time.Now()
	t.send(s)
	t.mark()
	t.stop(sleep(t.lab.ctx, time.Until(begin.Add(ttl*3/4))))
	t.send(s.noted("after three quarters of the TTL"))
	t.mark()
	t.stop(sleep(t.lab.ctx, time.Until(begin.Add(ttl+ttl/10+time.Second))))
	t.send(s.noted("after the TTL"))
	t.mark()
}}

// heavy: a body over the limit.
var heavy = experiment{name: "body over the limit", plain: true, by: func(p *Profile) any { return p.MaxRequest }, make: func(t *trial, p *Profile) {
	if p.MaxRequest == 0 || p.MaxRequest > maxAnswer {
		t.skip("nothing is said about the largest body, or it is too large to be tried")
		return
	}
	s := t.lab.fresh()
	t.send(s.with(s.body + strings.Repeat(" ", int(p.MaxRequest)-len(s.body)+1)))
}}
