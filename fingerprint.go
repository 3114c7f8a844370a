package idempotency

import (
	"net/http"
	"strings"

	"example.com/idempotency/internal/digest"
)

// A Fingerprint is the digest of the request that a key is bound to. Its first byte
// names the algorithm and its version; the rest is the digest.
//
// To a [Store] it is 32 opaque bytes.
type Fingerprint [32]byte

// A FingerprintFunc decides what of a request its key is bound to: requests with the
// same key are retries of one intent if their fingerprints are equal, and a mistake of
// the client if not. The body is what the handler will read; it must not be changed or
// kept. With an error, the request is refused and no key is claimed.
//
// The functions of this package are [RawFingerprint], which is the default,
// [JSONFingerprint], and those made by [FieldsFingerprint]. Others use
// [NewFingerprint]. What varies between attempts, such as a signature or the time of
// sending, must not count, and what makes it another intent must.
type FingerprintFunc func(r *http.Request, body []byte) (Fingerprint, error)

// RawFingerprint is the default [FingerprintFunc]. All of these count: method, path,
// query, Content-Type, Content-Encoding, and each byte of the body. The spelling of the
// two fields does not: not the case of names, not white space, not the order of the
// parameters.
//
// The boundary of a well-formed multipart body does not count either, because clients
// draw another one for each attempt. Host and all other fields do not count: a retry
// may reach the service by another name, and with another trace. What distinguishes
// callers is the scope of their keys.
//
// It returns no errors, and does not allocate unless the path has characters to escape.
func RawFingerprint(r *http.Request, body []byte) (Fingerprint, error) {
	q := digestRequest(r, body)
	return digest.Raw(&q), nil
}

// JSONFingerprint is a [FingerprintFunc] like [RawFingerprint] for clients that build
// the body anew for each attempt: of a JSON body only the meaning counts, not the order
// of members, white space, or the spelling of strings and numbers.
//
// JSON is what says so, with the type application/json or one with the suffix +json.
// The canonical form is that of RFC 8785, except that a number with more digits than
// an IEEE double holds keeps them: different amounts never have the same fingerprint.
// Any other body counts byte for byte, as does JSON that parsers read in different ways:
// with a name twice in one object, with text that is not valid Unicode, or nested more
// than 1,000 levels deep.
//
// It returns no errors.
func JSONFingerprint(r *http.Request, body []byte) (Fingerprint, error) {
	q := digestRequest(r, body)
	return digest.JSON(&q), nil
}

// FieldsFingerprint returns a [FingerprintFunc] for which only some fields of a JSON
// body count, besides method, path and query. It is for requests in which anything
// else may change between attempts, such as the time of sending.
//
// A field is a path of member names, separated by dots: "customer.id". A dot or a
// backslash in a name is written with a backslash before it. Where a path meets an
// array, it goes on in each element: "items.sku" is the list of all. A field counts
// with all that it contains, in the form that [JSONFingerprint] uses. A field that is
// absent differs from one that is null.
//
// The names of the fields count, too: requests that were recorded with another list do
// not match. Where JSONFingerprint would count the body byte for byte, everything
// counts that does for [RawFingerprint].
//
// FieldsFingerprint panics if no field is given or a path is malformed, as
// [http.ServeMux.Handle] does for patterns. The function it returns has no errors.
func FieldsFingerprint(fields ...string) FingerprintFunc {
	f, err := digest.ParseFields(fields...)
	if err != nil {
		panic("idempotency: FieldsFingerprint: " + err.Error())
	}
	return func(r *http.Request, body []byte) (Fingerprint, error) {
		q := digestRequest(r, body)
		return f.Fingerprint(&q), nil
	}
}

// NewFingerprint returns the fingerprint of the parts, for a [FingerprintFunc] of your
// own. Each part is hashed with its length, so that parts cannot run into each other,
// and with the version.
//
// The version is that of your function: change it when the function comes to hash
// other parts, or the same ones in another order. It becomes the first byte of the
// fingerprint. Versions below 128 are those of this package, and so 128 is added to
// such a version.
func NewFingerprint(version byte, parts ...[]byte) Fingerprint {
	return digest.Parts(version|0x80, parts...)
}

// fingerprintOf returns the function of this package that makes fingerprints of a
// version, with which a record is compared that was made when another function was
// configured. It is nil if the version alone does not tell.
func fingerprintOf(version byte) FingerprintFunc {
	switch version {
	case digest.VersionRaw:
		return RawFingerprint
	case digest.VersionJSON:
		return JSONFingerprint
	default:
		return nil
	}
}

func digestRequest(r *http.Request, body []byte) digest.Request {
	path := r.URL.EscapedPath()
	if r.URL.Opaque != "" {
		// "POST mailto:a@b HTTP/1.1": net/http takes it, and it has no path.
		path = r.URL.Scheme + ":" + r.URL.Opaque
	}
	return digest.Request{
		Method:          r.Method,
		Path:            path,
		Query:           r.URL.RawQuery,
		ContentType:     strings.Join(r.Header["Content-Type"], ","),
		ContentEncoding: strings.Join(r.Header["Content-Encoding"], ","),
		Body:            body,
	}
}
