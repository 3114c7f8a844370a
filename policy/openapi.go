package policy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"example.com/idempotency/problem"
)

// This file describes a policy in the words of OpenAPI 3.1.

// An object is a JSON object of the fragment.
type object map[string]any

// OpenAPI returns a fragment of an OpenAPI 3.1 document, in JSON: an object with three members.
//
//   - "components" belongs to the components of the document. It has the parameter of the key,
//     if that is in a header field, the responses by status, the schema of problems, and the
//     header fields.
//   - "operation" belongs to each operation of the route: "parameters" to add to its own, and
//     "responses" by status, all of them references to the components.
//   - "headers" belongs to each response of the operation's own.
//
// It has nothing that OpenAPI 3.0 does not know.
//
// The names of the parameter and of the responses end with the route, in characters that
// OpenAPI allows there, so that the fragments of several routes can be merged: what else they
// have in common is the same.
func (p Policy) OpenAPI() []byte {
	d := describer{policy: &p}
	fragment, err := json.MarshalIndent(object{
		"components": object{
			"parameters": d.parameters(),
			"responses":  d.responses(),
			"headers":    d.headers(),
			"schemas":    object{problemSchema: d.schema()},
		},
		"operation": object{
			"parameters": references("parameters", d.parameters()),
			"responses":  d.responsesByStatus(),
		},
		"headers": d.headerReferences(p.ReplayedHeader, p.Key.Header, p.ExpiryHeader),
	}, "", "  ")
	if err != nil { // cannot happen: strings, numbers and lists of them
		panic(err)
	}
	return append(fragment, '\n')
}

const problemSchema = "IdempotencyProblem"

type describer struct{ policy *Policy }

// name returns the name of a component that depends on the settings of the route.
func (d describer) name(of string) string {
	if d.policy.Route == "" {
		return of
	}
	return of + "." + componentName(d.policy.Route)
}

// componentName makes of any text a name that OpenAPI allows for a component.
func componentName(text string) string {
	allowed := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.'
	}
	return strings.Join(strings.FieldsFunc(text, func(c rune) bool { return !allowed(c) }), "_")
}

func reference(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// references returns a reference to each component of a kind.
func references(kind string, components object) []object {
	list := []object{}
	for name := range components {
		list = append(list, reference(kind, name))
	}
	return list
}

func (d describer) parameters() object {
	key := d.policy.Key
	if key.Header == "" {
		return object{}
	}
	// The quotes, and the backslashes between them, are not bytes of the key.
	quoted := `^"([ !#-\[\]-~]|\\["\\]){1,` + strconv.Itoa(key.MaxBytes) + `}"`
	pattern := `^[!#-+\--:<-~]{1,` + strconv.Itoa(key.MaxBytes) + `}$|` + quoted
	example := "3f1c2b52-6d7a-4c9e-9b1d-0a5e4f8c7d21"
	if key.Strict {
		pattern, example = quoted, `"`+example+`"`
	}
	return object{d.name("IdempotencyKey"): object{
		"name": key.Header, "in": "header", "required": d.policy.Required,
		"description": d.texts("key", "key-strict", "key-required", "key-optional", "replay", "end"),
		"schema":      object{"type": "string", "pattern": pattern},
		"example":     example,
	}}
}

// texts returns some of the rules, as a description.
func (d describer) texts(ids ...string) string {
	var texts []string
	for _, r := range d.policy.Rules() {
		if slices.Contains(ids, r.ID) {
			texts = append(texts, r.Text)
		}
	}
	return strings.Join(texts, " ")
}

// byStatus returns the refusals of each status.
func (d describer) byStatus() map[int][]Refusal {
	all := make(map[int][]Refusal)
	for _, r := range d.policy.Refusals {
		for _, status := range r.Statuses {
			all[status] = append(all[status], r)
		}
	}
	return all
}

func (d describer) responseName(status int) string {
	return d.name("Idempotency" + strconv.Itoa(status))
}

func (d describer) responsesByStatus() object {
	all := object{}
	for status := range d.byStatus() {
		all[strconv.Itoa(status)] = reference("responses", d.responseName(status))
	}
	return all
}

func (d describer) responses() object {
	all := object{}
	for status, refusals := range d.byStatus() {
		response := object{"description": description(refusals), "headers": d.responseHeaders(refusals)}
		if d.policy.Problems {
			response["content"] = object{problem.ContentType: d.content(status, refusals)}
		}
		all[d.responseName(status)] = response
	}
	return all
}

func description(refusals []Refusal) string {
	var texts []string
	for _, r := range refusals {
		texts = append(texts, fmt.Sprintf("%s: %s", r.Code, r.Meaning))
	}
	return strings.Join(texts, "\n\n")
}

func (d describer) responseHeaders(refusals []Refusal) object {
	names := []string{d.policy.ErrorHeader, d.policy.Key.Header}
	retry := func(r Refusal) bool { return r.Retry }
	if slices.ContainsFunc(refusals, retry) {
		names = append(names, retryAfter)
	}
	tells := func(r Refusal) bool {
		return r.Code == problem.InFlight || r.Code == problem.OutcomeUnknown || r.Code == problem.ResponseNotKept
	}
	if slices.ContainsFunc(refusals, tells) {
		names = append(names, d.policy.ExpiryHeader)
	}
	return d.headerReferences(names...)
}

func (d describer) content(status int, refusals []Refusal) object {
	codes, examples := []string{}, object{}
	for _, r := range refusals {
		codes = append(codes, string(r.Code))
		examples[string(r.Code)] = object{"summary": r.Title, "value": problem.Document{
			Type: d.problemType(r.Code), Title: r.Title, Status: status, Detail: r.Meaning, Code: r.Code,
		}}
	}
	return object{
		"schema": object{"allOf": []object{
			reference("schemas", problemSchema),
			{"properties": object{"status": object{"enum": []int{status}}, "code": object{"enum": codes}}},
		}},
		"examples": examples,
	}
}

func (d describer) problemType(code problem.Code) string {
	if d.policy.URL == "" {
		return "about:blank"
	}
	return d.policy.URL + "#" + string(code)
}

// schema describes a [problem.Document].
func (d describer) schema() object {
	text := func(description string) object { return object{"type": "string", "description": description} }
	link := text("A URI for the kind of problem.")
	link["format"] = "uri-reference"
	code := text("The stable name of the problem.")
	code["enum"] = problem.Codes()
	return object{
		"type":        "object",
		"description": "A problem document (RFC 9457) about an idempotency key.",
		"required":    []string{"type", "title", "status", "code"},
		"properties": object{
			"type":   link,
			"title":  text("The same short text for every problem of this code."),
			"status": object{"type": "integer", "description": "The status of the answer.", "minimum": http.StatusBadRequest, "maximum": 599},
			"detail": text("What to do about it."),
			"code":   code,
			"original_status": object{
				"type": "integer", "description": "The status of the answer that was not kept.",
			},
			"original_location": text("The Location field of the answer that was not kept."),
		},
	}
}

const retryAfter = "Retry-After"

func (d describer) headers() object {
	p := d.policy
	all := object{}
	add := func(name, description string, schema object) {
		if name != "" {
			all[componentName(name)] = object{"description": description, "schema": schema}
		}
	}
	text, seconds := object{"type": "string"}, object{"type": "integer", "minimum": 0}
	add(p.ReplayedHeader, "The answer is a recorded one: the request had been processed before.", object{"type": "string", "enum": []string{"true"}})
	add(p.ErrorHeader, "The code of the problem.", object{"type": "string", "enum": problem.Codes()})
	add(retryAfter, "After how many seconds to send the same request with the same key again.", seconds)
	add(p.Key.Header, "The key of the request.", text)
	add(p.ExpiryHeader, "For how many seconds the key is good, counted from when the request was sent.", seconds)
	return all
}

// headerReferences returns references to header fields. The empty name stands for none.
func (d describer) headerReferences(names ...string) object {
	all := object{}
	for _, name := range names {
		if name != "" {
			all[name] = reference("headers", componentName(name))
		}
	}
	return all
}
