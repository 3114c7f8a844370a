package idempotency

import (
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"

	"example.com/idempotency/internal/digest"
)

// The functions that make the fingerprint of a request. Package digest defines how they hash
// it.

// A FingerprintFunc returns the fingerprint of a request, and so decides which parts of the
// request its key is bound to. Two requests with the same key and equal fingerprints are
// attempts of one intent. If the fingerprints differ, the client has used the key twice by
// mistake. The body is what the handler will read. The function must not change or keep it. The request is a copy that has the
// body, so the function may parse a form.
// If the function returns an error, the guard refuses the request with 400, or with 503 for
// [ErrTryLater], and claims no key.
//
// This package has [RawFingerprint], which is the default, [JSONFingerprint] and
// [FieldsFingerprint]. A function of your own makes its fingerprints with [NewFingerprint].
// It must count everything that would make the request another intent. It must not count
// anything that varies between attempts, such as a signature or the time of sending.
//
// With the functions of this package, a guard refuses a call of gRPC, gRPC-Web, Connect or the Model
// Context Protocol, because equal messages may differ in their bytes, and the status of the answer does
// not tell whether the call has succeeded. Modules connectidempotency, grpcidempotency and mcpidempotency
// protect calls.
type FingerprintFunc func(r *http.Request, body []byte) (Fingerprint, error)

// RawFingerprint is the default [FingerprintFunc]. It counts the method, the path, the query,
// Content-Type, Content-Encoding and every byte of the body. Path and query are those that the
// client has sent: http.StripPrefix, routers and other outer handlers do not change what a key is
// bound to by leaving a part of them out. A URL that has anything else in it, as that of a part of a
// batch has, counts beside what was sent. Of Content-Type and Content-Encoding,
// white space, the order of parameters and the case of a charset do not count. A Content-Encoding of several lines,
// with the coding identity or with an empty element counts as it is, and its body byte for byte: handlers read it in
// different ways.
//
// A Content-Type that handlers read in different ways counts as it is, and its body counts byte for
// byte. Examples are one with upper case in a name, which gin and echo do not know, with a backslash, with an empty
// parameter before another, with a parameter twice, or with an asterisk in the name of a parameter.
//
// The boundary of a well-formed multipart/form-data body does not count, because clients choose a
// new one for each attempt. But a body with a content encoding counts byte for byte, whatever it looks like:
// what a handler finds in it is not in its bytes. Host and all other fields do not count, because a retry may reach the
// service under another name and with another trace. The scope, and not the fingerprint,
// distinguishes callers.
//
// RawFingerprint never returns an error. It allocates nothing for a request that a server has read.
func RawFingerprint(r *http.Request, body []byte) (Fingerprint, error) {
	d := reading(r, body)
	defer d.Free()
	return d.Raw(), nil
}

// JSONFingerprint is a [FingerprintFunc] like [RawFingerprint], for clients that build the
// body anew for each attempt. Only the meaning of a JSON body counts, and not the order of its
// members, white space, or the spelling of strings and numbers.
//
// A body is JSON if its type is application/json or has the suffix +json. Its canonical form
// is that of RFC 8785, with one exception: a number with more digits than an IEEE double holds
// keeps them, so that different amounts never have the same fingerprint. Any other body counts
// byte for byte, and so does one with a content encoding. So does JSON that parsers read in different ways:
// of a type that names another charset than UTF-8, with a name twice in one object, be it in another case,
// with text that is not valid Unicode, or nested more than 1,000 levels deep.
//
// JSONFingerprint never returns an error. It parses the body, which for one of 1 MiB can take 0.1 s of a processor, and
// memory of up to 16 times its size. [Limits].RequestBody bounds both. [FieldsFingerprint] takes as much
// memory, and more time.
func JSONFingerprint(r *http.Request, body []byte) (Fingerprint, error) {
	d := reading(r, body)
	defer d.Free()
	return d.JSON(), nil
}

// FieldsFingerprint returns a [FingerprintFunc] that counts only some fields of a JSON body,
// besides the method, the path and the query. It is for requests in which something else may
// change between attempts, such as the time of sending.
//
// A field is a path of member names separated by dots, for example "customer.id". Write a
// backslash before a dot or a backslash that is part of a name. Where a path meets an array, it
// continues in each element: "items.sku" selects the sku of every item. A field counts with all
// that it contains, in the form that [JSONFingerprint] uses. A field that is absent differs
// from one that is null, and from a value that stands where its object should be.
//
// The case of names counts. A body in which a field has its name in another case counts byte for
// byte, because encoding/json would read that field.
//
// The names of the fields count too, so requests that were recorded with another list do not
// match. If JSONFingerprint would count the body byte for byte, the function counts what
// [RawFingerprint] counts.
//
// The function takes the time of JSONFingerprint, and more for each field, because it looks for each in the
// whole body. For a body of 1 MiB, a field can take 5 ms. It can take 15 ms if it is part of another one
// of the list, and then it distinguishes nothing: leave it out. The memory does not grow with the fields.
//
// FieldsFingerprint panics if there are no fields or if a path is malformed, as
// [http.ServeMux.Handle] does for an invalid pattern. The function that it returns never
// returns an error.
func FieldsFingerprint(fields ...string) FingerprintFunc {
	f, err := digest.ParseFields(fields...)
	if err != nil {
		panic("idempotency: FieldsFingerprint: " + err.Error())
	}
	return func(r *http.Request, body []byte) (Fingerprint, error) {
		d := reading(r, body)
		defer d.Free()
		return d.Fields(f), nil
	}
}

// NewFingerprint returns the fingerprint of the parts, for a [FingerprintFunc] of your own. It
// hashes the version, and each part with its length, so that parts cannot run into each other.
//
// The version is that of your function. Change it when the function begins to hash other parts,
// or the same parts in another order. It becomes the first byte of the fingerprint. Versions
// below 128 belong to this package, so NewFingerprint adds 128 to a version below that.
func NewFingerprint(version byte, parts ...[]byte) Fingerprint {
	return digest.Parts(version|digest.FirstOwnVersion, parts...)
}

// fingerprintOf returns the function of this package that makes fingerprints of a version, or
// nil if the version alone does not tell. A guard compares a record with the function that made
// it, even if another one is configured now.
func fingerprintOf(version byte) FingerprintFunc {
	switch version {
	case digest.VersionRaw, digest.VersionCoded, digest.VersionAsSent:
		return RawFingerprint
	case digest.VersionJSON:
		return JSONFingerprint
	default:
		return nil
	}
}

// reading reads a request for a function of this package.
func reading(r *http.Request, body []byte) digest.Reading {
	return digest.Read(digestRequest(r, body))
}

func digestRequest(r *http.Request, body []byte) digest.Request {
	path, query := target(r)
	return digest.Request{
		Method: r.Method,
		Path:   path,
		Query:  query,
		// Handlers read the first line of several. A line feed cannot be in a field, so several never
		// look like one.
		ContentType:     strings.Join(r.Header["Content-Type"], "\n"),
		ContentEncoding: strings.Join(r.Header["Content-Encoding"], "\n"),
		Body:            body,
	}
}

// knows reports whether a fingerprint of a version can be told from that of another request. The
// functions of this package make versions that every process knows, but for those with parameters.
// Any other version is known if a route of this process makes it. If not, the record is from a
// process with another configuration, and may well be that of the same request.
func (s *versionSet) knows(version byte) bool {
	return digest.CountsParts(version) || s[version].Load()
}

// target returns what the client has asked for, as a path and a query. r.RequestURI has that as
// it was sent. r.URL is what outer handlers have made of it: http.StripPrefix and mounted
// routers cut /billing/orders/1 and /shipping/orders/1 down to the same path, and one of these
// services would be answered from a record of the other.
//
// Where r.URL is more than what is left of the target, it counts too. A handler that makes requests of
// the parts of a batch gives each a path of its own, and Request.Clone gives all of them one RequestURI.
// No target has a line feed in it.
//
// A request that no server has read, such as one that a test builds, has only r.URL.
func target(r *http.Request) (path, query string) {
	switch {
	case r.RequestURI != "":
		path, query, _ = strings.Cut(r.RequestURI, "?")
		// The absolute form (RFC 9112, section 3.2.2) names the service too.
		if scheme, rest, ok := strings.Cut(path, "://"); ok && !strings.ContainsAny(scheme, ":/") {
			authority, _, _ := strings.Cut(rest, "/")
			path = authority[:strings.LastIndexByte(authority, '@')+1] + rest[len(authority):] // with the user
		}
		if r.URL != nil && !digest.IsLeft(path, query, r.URL.Path, r.URL.RawQuery) {
			return path + "\n" + r.URL.EscapedPath(), query + "\n" + r.URL.RawQuery
		}
		return path, query
	case r.URL.Opaque != "":
		// net/http accepts a target without a path, as in "POST mailto:a@b HTTP/1.1".
		return r.URL.Scheme + ":" + r.URL.Opaque, r.URL.RawQuery
	default:
		return r.URL.EscapedPath(), r.URL.RawQuery
	}
}

// A versionSet is a set of versions of fingerprints.
type versionSet [256]atomic.Bool

func (s *versionSet) add(version byte) {
	if !s[version].Load() { // so that processors need not hand the memory around
		s[version].Store(true)
	}
}

// sameFunc reports whether f is the function g of this package, which must not be a closure.
func sameFunc(f, g any) bool { return reflect.ValueOf(f).Pointer() == reflect.ValueOf(g).Pointer() }
