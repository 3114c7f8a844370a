package response

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/token"
)

// Which header fields belong to an answer: what the handler changed, less what must not be
// repeated.

// A headerDiff is what a handler did to the header it was given.
type headerDiff struct {
	rules    rules
	recorded []answer.Field // set, changed or removed: kept with the answer
	added    []answer.Field // put behind the values of outer handlers: kept without theirs
	live     []answer.Field // set or changed, for the first answer only
	more     []answer.Field // put behind the values of outer handlers, for the first answer only
	trailer  []string       // names announced in the field Trailer
}

// take compares the header as the handler leaves it with what outer handlers had set before
// it ran. Only the difference belongs to the answer: outer handlers set their CORS,
// request-id and tracing fields anew for each request. The caller's own fields are none of the
// handler's: what it makes of them counts for nothing.
//
// Outer is the header of outer handlers as it is now. Who holds their writer may have changed it during the run, as
// middleware for sessions does when the handler saves one. That stays in the first answer, and belongs to no other.
//
// After an informational answer, a field that is missing is not one that was removed:
// httputil.ReverseProxy clears the header then, and means only what it had added.
func (d *headerDiff) take(before, outer, after http.Header, informed bool) {
	d.trailer = slices.DeleteFunc(trailerNames(after["Trailer"]), d.rules.isOwn)
	changed, kept := d.recorded, 0 // kept of before
	for name, values := range after {
		if strings.EqualFold(name, "Connection") {
			d.rules.nominate(values)
		}
		was, ok := before[name]
		if ok {
			kept++
		}
		if ok && slices.Equal(values, was) || d.rules.isOwn(name) {
			continue
		}
		if strings.HasPrefix(name, http.TrailerPrefix) || name == "Trailer" {
			continue
		}
		changed = append(changed, answer.Field{Name: name, Values: values})
	}
	d.recorded = changed[:0]
	for _, f := range changed { // when all Connection fields are known
		was := before[f.Name]
		n := len(was)
		recorded, grown := d.rules.record(f.Name), len(f.Values) > n && slices.Equal(f.Values[:n], was)
		switch {
		case !recorded && grown && (n > 0 || f.Name == "Set-Cookie" && len(outer[f.Name]) > 0):
			d.more = append(d.more, answer.Field{Name: f.Name, Values: f.Values[n:]})
		case !recorded:
			d.live = append(d.live, f)
		case grown && n > 0:
			d.added = append(d.added, answer.Field{Name: f.Name, Values: f.Values[n:]})
		default:
			d.recorded = append(d.recorded, f)
		}
	}
	if kept == len(before) { // to count is faster than to walk through the map
		return
	}
	for name, was := range before {
		if _, ok := after[name]; !ok && !d.rules.isOwn(name) && !informed && slices.Equal(outer[name], was) {
			d.recorded = append(d.recorded, answer.Field{Name: name})
		}
	}
}

// own makes all values independent of the handler's header. The handler may change them in place as
// soon as WriteHeader has returned, and net/http has copied them by then.
func (d *headerDiff) own(space *answer.Space) {
	for _, fields := range [...][]answer.Field{d.recorded, d.added, d.live, d.more} {
		for i, f := range fields {
			fields[i].Values = space.Copy(f.Values)
		}
	}
}

// Checked returns a copy of the header that somebody gives an answer, with names in canonical form. It is an
// error if no message can have one of its fields, if one has two spellings, as a map has no order to join them in,
// or if it is the refusal, which says that there is no answer.
func Checked(h http.Header, refusal string) (http.Header, error) {
	checked := make(http.Header, len(h)+1)
	for name, values := range h {
		if !token.Is(name) {
			return nil, fmt.Errorf("%q is not a field name", name)
		}
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n\x00") {
				return nil, fmt.Errorf("the field %s has a line break or a zero byte in its value", name)
			}
		}
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if _, twice := checked[canonical]; twice {
			return nil, fmt.Errorf("the field %s has two spellings", canonical)
		}
		if canonical == refusal {
			return nil, fmt.Errorf("the field %s makes a refusal of an answer", canonical)
		}
		checked[canonical] = slices.Clone(values)
	}
	return checked, nil
}

// Recorded returns the fields of h that a replay may repeat by the settings, sorted by name.
func Recorded(h http.Header, set Settings) []answer.Field {
	d := headerDiff{rules: rulesOf(&set)}
	d.take(nil, nil, h, false)
	slices.SortFunc(d.recorded, func(f, g answer.Field) int { return strings.Compare(f.Name, g.Name) })
	return d.recorded
}

// rules say which fields of a first answer belong to its replay, in its header and in its
// trailer, however the handler spells their names.
type rules struct {
	drop         answer.Names // further names that are left out, in canonical form
	nominated    answer.Names // those that Connection names, in lower case
	echo, expiry string       // the caller's own fields, or empty
}

func rulesOf(set *Settings) rules {
	return rules{drop: set.Drop, echo: set.Echo, expiry: set.Expiry}
}

// record reports whether a field is recorded. Fields that describe the connection, the moment
// or the length are made anew. Fields that give rights to the client that receives them are
// left out.
func (r *rules) record(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Date", "Content-Length", "Idempotency-Ttl",
		"Set-Cookie", "Set-Cookie2", "Authorization", "Www-Authenticate", "Authentication-Info",
		"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info", "Dpop-Nonce", "Replay-Nonce":
		return false
	}
	return !isCredential(name) && !r.drop.Has(name) && !r.isNominated(name)
}

// credentials are how the names of fields end that services give out credentials in.
var credentials = [...]string{"token", "secret", "password", "jwt", "apikey", "api-key", "access-key", "session", "sessionid", "session-id"}

func isCredential(name string) bool {
	if name == "" || strings.IndexByte("dnty", name[len(name)-1]|0x20) < 0 { // as most names
		return false
	}
	last := name[len(name)-1] | 0x20 // to compare it is faster than to call a function for each end
	for _, end := range credentials {
		if end[len(end)-1] == last && len(name) >= len(end) && strings.EqualFold(name[len(name)-len(end):], end) {
			return true
		}
	}
	return false
}

// nominate takes the values of a Connection field, which makes the fields that it names hop-by-hop
// (RFC 9110 section 7.6.1).
func (r *rules) nominate(lines []string) {
	if r.nominated == nil {
		r.nominated = make(answer.Names)
	}
	for _, line := range lines {
		for option := range strings.SplitSeq(line, ",") {
			r.nominated.Add(strings.ToLower(strings.TrimSpace(option)))
		}
	}
}

func (r *rules) isNominated(name string) bool {
	return len(r.nominated) > 0 && r.nominated.Has(strings.ToLower(name))
}

// isOwn reports whether a field is one by which the caller itself tells something: that the answer is
// a replay, which key it has, and for how long that is good. A handler may pass such a field on from a
// service behind it, and there it says nothing of this answer.
func (r *rules) isOwn(name string) bool {
	return isSpelled(name, ReplayedHeader) || isSpelled(name, r.echo) || isSpelled(name, r.expiry)
}

func isSpelled(name, field string) bool {
	return len(name) == len(field) && strings.EqualFold(name, field)
}
