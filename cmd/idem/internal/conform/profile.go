package conform

import (
	"strings"

	"example.com/idempotency/cmd/idem/internal/conform/report"
	"example.com/idempotency/policy"
)

// A Rule says how binding a check is, and who says so.
type Rule struct {
	Level report.Level
	Says  string
}

// A Profile is what a server promises, and whose words these are. What is left out is not promised.
type Profile struct {
	Name, Source string
	// KeyHeader is the field of the key. Quoted says that keys are sent in double quotes.
	KeyHeader string
	Quoted    bool
	// Raw says that keys without quotes are taken, and MaxKey how long a key may be.
	Raw    bool
	MaxKey int
	// Required says whether a key must be there, if that is promised either way.
	Required *bool
	// The statuses of refusals. None stands for any from 400 to 499.
	Mismatch, InFlight, Missing, Invalid []int
	// Binding says whether another spelling of the same JSON is the same request.
	Binding policy.Binding
	// Waits says that a duplicate may wait for the answer, and is not refused at once.
	Waits bool
	// Shared says that all callers share one set of keys.
	Shared bool
	// Mark is the field that marks a replay: its value is true. Code is the field with the code of a
	// refusal, and Expiry that with the seconds for which the key is good.
	Mark, Code, Expiry string
	// Refusals is the form of refusals: "problem" (RFC 9457), "stripe", or any.
	Refusals string
	// MaxRequest is the largest body in bytes.
	MaxRequest int64
	// Rules are those of the checks, by their IDs. A check without a rule is for information.
	Rules map[string]Rule
}

// rule returns the rule of a check.
func (p *Profile) rule(id string) Rule {
	if r, ok := p.Rules[id]; ok {
		return r
	}
	return Rule{report.Info, "profile " + p.Name + " says nothing about it"}
}

// Published is the name of the profile that the server publishes itself.
const Published = "published"

// findProfile returns a copy of a profile.
func findProfile(name string) (Profile, bool) {
	for _, p := range Profiles() {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Names lists the profiles.
func Names() string {
	var all []string
	for _, p := range Profiles() {
		all = append(all, p.Name)
	}
	return strings.Join(append(all, Published), ", ")
}
