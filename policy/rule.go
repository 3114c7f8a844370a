package policy

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency/problem"
)

// This file says in sentences what the data says. Each sentence is a promise that a test of
// package idempotency holds against a guard, so each has a name.

// A Rule is one sentence of a policy.
type Rule struct {
	// ID names what the rule says. Two policies that say the same have the same IDs, whatever
	// the numbers are.
	ID string `json:"id"`
	// Text is the rule, for people.
	Text string `json:"text"`
}

// Rules returns the policy in sentences.
func (p Policy) Rules() []Rule {
	var rules []Rule
	add := func(id, format string, args ...any) { rules = append(rules, Rule{id, fmt.Sprintf(format, args...)}) }
	choose := func(first bool, id, text, otherID, otherText string) {
		if !first {
			id, text = otherID, otherText
		}
		add(id, "%s", text)
	}

	add("methods", "Requests with the method %s can be repeated with a key. All others run each time they arrive.", list(p.Methods, "or"))
	choose(p.Required,
		"key-required", "A request must have a key. Without one it is refused with "+string(problem.KeyMissing)+".",
		"key-optional", "A request without a key runs each time it arrives.")
	p.keyRules(add)
	choose(p.Shared,
		"shared", "All callers share one set of keys.",
		"own-keys", "Each caller has its own keys. Another caller may use the same ones.")
	add("binding-"+string(p.Binding), "A repetition must be the same request: %s. A different request with a used key is refused with %s, whatever became of the first, unless that was turned away before anything was done.",
		map[Binding]string{
			Exact: "the method, the path, the query, Content-Type, Content-Encoding and every byte of the body count",
			JSON:  "the method, the path, the query, Content-Type, Content-Encoding and the body count, and of a JSON body only its meaning",
			Own:   "what counts is for the operation to say",
		}[p.Binding], problem.KeyReused)
	choose(p.Rebinding,
		"corrected", "A request that was turned away before anything was done may be corrected, and sent with the same key.",
		"bound", "A request that was turned away before anything was done may be sent again with the same key. A corrected one needs a key of its own.")
	if p.outcome(http.StatusTemporaryRedirect) == notExecuted && p.outcome(http.StatusPermanentRedirect) == notExecuted {
		add("redirect", "A redirect with status 307 or 308 does not bind the key if nothing was done before. The request goes to the other place with the same key.")
	}

	add("replay", "An answer that counts is given to each repetition for %s. Such a replay has the field %s: true.", period(p.TTL), p.ReplayedHeader)
	add("end", "After that, the key is forgotten, and a request with it runs as the first. Do not repeat a request that long.")
	if p.ExpiryHeader != "" {
		add("expiry", "The field %s of an answer says for how many seconds the key is good, counted from when the request was sent.", p.ExpiryHeader)
	}
	add("max-response", "An answer with a body of more than %s is sent and not kept. A repetition is refused with %s, and does not run.", size(p.MaxResponseBody), problem.ResponseNotKept)
	if p.Wait > 0 {
		add("wait", "While the first request is running, a repetition waits for its answer, up to %s. Then it is refused with %s.", period(p.Wait), problem.InFlight)
	} else {
		add("in-flight", "While the first request is running, a repetition is refused with %s.", problem.InFlight)
	}
	p.unknownRules(add)
	choose(p.FailOpen,
		"fail-open", "If the store of keys is unavailable, a request runs without protection. A repetition of it may run again.",
		"fail-closed", "If the store of keys is unavailable, a request with a key is refused with "+string(problem.StoreUnavailable)+", and does not run.")
	choose(p.Problems,
		"problems", "A refusal is a problem document (RFC 9457). Its code is in the field "+p.ErrorHeader+" too.",
		"own-errors", "The code of a refusal is in the field "+p.ErrorHeader+".")
	add("retry-after", "A refusal that the same request with the same key may end later has Retry-After. No other refusal has it.")
	return rules
}

func (p Policy) keyRules(add func(id, format string, args ...any)) {
	switch {
	case p.Key.Header == "":
		add("key-elsewhere", "The key is taken from the content of the request. It has at most %d bytes.", p.Key.MaxBytes)
		add("max-every-request", "A request with a body of more than %s is refused with %s.", size(p.MaxRequestBody), problem.BodyTooLarge)
		return
	case p.Key.Strict:
		add("key-strict", `The field %s has the key, as a string in double quotes (RFC 8941): "abc". It has 1 to %d bytes.`, p.Key.Header, p.Key.MaxBytes)
	default:
		add("key", `The field %s has the key: visible ASCII characters without comma, semicolon and double quote, or a string in double quotes (RFC 8941). It has 1 to %d bytes. abc and "abc" are one key.`,
			p.Key.Header, p.Key.MaxBytes)
	}
	add("once", "A request that has the field twice is refused with %s.", problem.KeyInvalid)
	add("max-request", "A request with a key and a body of more than %s is refused with %s.", size(p.MaxRequestBody), problem.BodyTooLarge)
	add("echo", "Each answer to a request with a valid key repeats the field.")
}

func (p Policy) unknownRules(add func(id, format string, args ...any)) {
	switch {
	case !p.Hold && p.Attempts > 0:
		add("rerun-limited", "If it is not known whether a request had its effect, the next one with the key runs again, up to %s. Then a repetition is refused with %s until the outcome is settled.", count(int64(p.Attempts), "run"), problem.OutcomeUnknown)
	case !p.Hold:
		add("rerun", "If it is not known whether a request had its effect, the next one with the key runs again. The operation may rule that out for what it had begun: then a repetition is refused with %s.", problem.OutcomeUnknown)
	case p.HeldFor > 0:
		add("hold-ends", "If it is not known whether a request had its effect, a repetition is refused with %s until that is settled, at most for %s.", problem.OutcomeUnknown, period(p.HeldFor))
	default:
		add("hold", "If it is not known whether a request had its effect, a repetition is refused with %s until that is settled.", problem.OutcomeUnknown)
	}
}

const notExecuted = "not-executed"

// outcome returns the judgement on answers with a status, and empty if there is none.
func (p Policy) outcome(status int) string {
	for _, a := range p.Answers {
		for _, r := range a.Statuses {
			if a.With == "" && r.From <= status && status <= r.To {
				return a.Outcome
			}
		}
	}
	return ""
}

// list joins words.
func list(words []string, conjunction string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// period returns a time in the largest unit that divides it. It never says more than there is.
func period(d time.Duration) string {
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{
		{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"},
	} {
		if n := int64(d / unit.d); n > 0 && d%unit.d == 0 && (n > 1 || unit.name != "day") {
			return count(n, unit.name)
		}
	}
	if d > time.Second {
		return count(seconds(d), "second")
	}
	return count(d.Milliseconds(), "millisecond")
}

// size returns a number of bytes in the largest unit that divides it.
func size(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if bytes := int64(1) << (30 - 10*i); n >= bytes && n%bytes == 0 {
			return strconv.FormatInt(n/bytes, 10) + " " + unit
		}
	}
	return count(n, "byte")
}

func count(n int64, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return strconv.FormatInt(n, 10) + " " + unit
}
