package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// This file adds the fragment of a policy to an OpenAPI document.

// Describe adds the fragment of [Policy.OpenAPI] to an OpenAPI document in JSON, and returns the
// document. An operation is a method and a path of the document, such as "POST /charges". What
// the document says itself stays as it is: a response with a status that the guard uses too, a
// parameter for the same field, a component of the same name. The operation's own responses get
// the header fields of a recorded answer, unless they are references.
//
// Errors: the document is not JSON, does not have the operation, or is not what OpenAPI says.
func (p Policy) Describe(document []byte, operations ...string) ([]byte, error) {
	var d documentation
	var err error
	if d.document, err = parse(document); err == nil {
		d.fragment, err = parse(p.OpenAPI())
	}
	if err != nil {
		return nil, fmt.Errorf("policy: Describe: %w", err)
	}
	for _, operation := range operations {
		d.describe(operation)
	}
	for kind := range d.fragment.child(&d.err, "components") {
		add(d.document.child(&d.err, "components", kind), d.fragment.child(&d.err, "components", kind))
	}
	if d.err != nil {
		return nil, fmt.Errorf("policy: Describe: %w", d.err)
	}
	return json.MarshalIndent(d.document, "", "  ")
}

func parse(text []byte) (object, error) {
	var o object
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // which says the same again
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || o == nil {
		return nil, errors.New("the document is not one JSON object")
	}
	return o, nil
}

// A documentation is a document that a fragment is added to. It keeps the first error.
type documentation struct {
	document, fragment object
	err                error
}

func (d *documentation) describe(operation string) {
	method, path, _ := strings.Cut(operation, " ")
	item, ok := d.document.child(&d.err, "paths")[path].(map[string]any)
	own, _ := item[strings.ToLower(method)].(map[string]any)
	if !ok || own == nil {
		d.err = errors.Join(d.err, fmt.Errorf("the document has no operation %q", operation))
		return
	}
	responses := object(own).child(&d.err, "responses")
	for status := range responses {
		if response := responses.child(&d.err, status); response["$ref"] == nil {
			add(response.child(&d.err, "headers"), d.fragment.child(&d.err, "headers"))
		}
	}
	add(responses, d.fragment.child(&d.err, "operation", "responses"))

	parameters, _ := own["parameters"].([]any)
	inherited, _ := item["parameters"].([]any)
	more, _ := d.fragment.child(&d.err, "operation")["parameters"].([]any)
	for _, parameter := range more {
		if !d.hasParameter(append(inherited[:len(inherited):len(inherited)], parameters...), d.resolve(parameter)) {
			own["parameters"] = append(parameters, parameter)
		}
	}
}

// resolve returns the parameter of the fragment that a reference leads to.
func (d *documentation) resolve(reference any) object {
	to, _ := reference.(map[string]any)["$ref"].(string)
	return d.fragment.child(&d.err, "components", "parameters", strings.TrimPrefix(to, "#/components/parameters/"))
}

// hasParameter reports whether a list has a parameter for the same field.
func (d *documentation) hasParameter(list []any, parameter object) bool {
	name, _ := parameter["name"].(string)
	for _, e := range list {
		own, _ := e.(map[string]any)
		if to, ok := own["$ref"].(string); ok {
			components := d.document.child(&d.err, "components", "parameters")
			own, _ = components[strings.TrimPrefix(to, "#/components/parameters/")].(map[string]any)
		}
		if text, _ := own["name"].(string); own["in"] == "header" && strings.EqualFold(text, name) {
			return true
		}
	}
	return false
}

// child returns the object at a path of members. It makes those that are missing.
func (o object) child(err *error, path ...string) object {
	for _, name := range path {
		if o[name] == nil {
			o[name] = make(map[string]any)
		}
		member, ok := o[name].(map[string]any)
		if !ok {
			*err = errors.Join(*err, fmt.Errorf("the member %q is not an object", name))
			member = make(map[string]any)
		}
		o = member
	}
	return o
}

// add adds the members that an object does not have.
func add(to, from object) {
	for name, value := range from {
		if to[name] == nil {
			to[name] = value
		}
	}
}
