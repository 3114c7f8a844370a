package digest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"example.com/idempotency/internal/digest"
	"github.com/stretchr/testify/require"
)

func TestContentTypeSpelling(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{"", ""},
		{" ", ""},
		{"text/plain", "text/plain"},
		{"\tText/plain ", "Text/plain"},
		{"text/plain;", "text/plain"},
		{"text/plain \t;\ta=b ; ", `text/plain;a="b"`},
		{"text/plain;b=X;a=y", `text/plain;a="y";b="X"`},
		{"text/plain; charset=UTF-8", `text/plain;charset="utf-8"`},
		{`text/plain; charset="UTF-8"`, `text/plain;charset="utf-8"`},
		{`text/plain;a=" b, c=d" ;f=g`, `text/plain;a=" b, c=d";f="g"`},
		{`text/plain;a="" ; b=c`, `text/plain;a="";b="c"`},
		{"a!#$%&'*+-.^_`|~9/z;a=b", "a!#$%&'*+-.^_`|~9/z;a=\"b\""},
		{"a/b;h=1;g=1;f=1;e=1;d=1;c=1;b=1;a=1", `a/b;a="1";b="1";c="1";d="1";e="1";f="1";g="1";h="1"`},
	} {
		if got, _ := digest.NormalizeType(tt.value); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.value, got, tt.want)
		}
	}
}

// Parsers read these in different ways, and package mime refuses some of them.
func TestContentTypeThatIsNotPlainIsKept(t *testing.T) {
	for _, value := range []string{
		"text/plain;A=b", "text/plain;a=b;C=d", "text", "text/", "/plain", "text/plain/x", "Te xt/plain", "text/plain, a/b", "text/pläin",
		"text/plain;a", "text/plain;a=", "text/plain;=b", "text/plain;a =b", "text/plain;a= b", "text/plain;a=b c",
		`text/plain;a="b`, `text/plain;a="b\`, `text/plain;a="b\"`, `text/plain;a="b"c`, `text/plain;a=b"c"`,
		"text/plain;a=b;a=b", "text/plain;a=b;a=c", "text/plain;a=b;c=d;a=e",
		`text/plain;a="\b"`, `text/plain;a="\\"`, `text/plain;a="\"" ; b=c`, `text/plain;a=b;c="\(d"`,
		"text/plain;;", "text/plain;;a=b", "text/plain; ;a=b", "text/plain;a=b;;", "text/plain;a=b; ;", "text/plain;a=b;;c=d",
		"text/plain;a*=us-ascii''b", "text/plain;a*0=b;a*1=c", "text/plain;*=b",
		`text/plain;a="b;c=d"`, "text/plain;a=\"b\nc\"", "text/plain;a=\"b\tc\"", "text/plain;a=\"b\x7f\"", `text/plain;a="bä"`,
		`text/plain;a="b" c`, `text/plain;a="b"c=d`,
		"text/plain;a=1;b=1;c=1;d=1;e=1;f=1;g=1;h=1;i=1",
	} {
		if got, ok := digest.NormalizeType(" " + value); ok || got != value {
			t.Errorf("%q: got %q, %v", value, got, ok)
		}
	}
}

func TestBoundary(t *testing.T) {
	longest := strings.Repeat("b", 70)
	for _, tt := range []struct{ value, want string }{
		{"multipart/form-data; boundary=b", "b"},
		{"multipart/form-data; a=b; boundary=\"B:'()+_,-./:=?\"", "B:'()+_,-./:=?"},
		{"Multipart/form-data; boundary=b", ""},
		{"multipart/form-data; Boundary=b", ""},
		{"multipart/form-data; boundary=" + longest, longest},
		{"multipart/form-data; boundary=" + longest + "b", ""},
		{"multipart/form-data", ""},
		{"multipart/form-data; boundary", ""},
		{`multipart/form-data; boundary=""`, ""},
		{`multipart/form-data; boundary="a b"`, ""},
		{`multipart/form-data; boundary="a\b"`, ""},
		{`multipart/form-data; boundary="a\:b"`, ""},
		{`multipart/form-data; boundary="a;b"`, ""},
		{`multipart/form-data; boundary=b; x="\y"`, ""},
		{"multipart/form-data; boundary=b;", "b"},
		{"multipart/form-data; boundary=b;;", ""},
		{"multipart/form-data;; boundary=b", ""},
		{"multipart/form-data; boundary=\"\x7f\"", ""},
		{"multipart/form-data; boundary=b; boundary*=us-ascii''c", ""},
		{"multipart/form-data; boundary*0=b; boundary=b", ""},
		{"multipart/form-data; boundary=b; x*=us-ascii''c", ""},
		{"multipart/mixed; boundary=b", ""},
		{"multipart; boundary=b", ""},
		{"multiparts/form-data; boundary=b", ""},
		{"text/plain; boundary=b", ""},
	} {
		require.Equal(t, tt.want, digest.Boundary(tt.value), tt.value)
	}
}

// Bodies that are not what their bytes say: compressed forms, and JSON in another charset than UTF-8.

func latin1(body string) *digest.Request {
	return &digest.Request{Method: "POST", Path: "/", ContentType: "application/json; charset=ISO-8859-1", Body: []byte(body)}
}

func coded(coding, boundary string) *digest.Request {
	return &digest.Request{
		Method: "POST", Path: "/", ContentType: "multipart/form-data; boundary=" + boundary, ContentEncoding: coding, Body: parcel(boundary),
	}
}

// Every byte that is hashed is pinned, as in TestLayout.
func TestLayoutOfCodedBodies(t *testing.T) {
	const head, jsonBody = "\x04POST\x01/\x00", `{"b": 1.0, "a": [null]}`
	const jsonType = "\x25" + `application/json;charset="iso-8859-1"` + "\x00"
	selected := fields(t, "b")
	wholeForm := "\x09idem-fp\x05r" + head + "\x21" + `multipart/form-data;boundary="zz"` + "\x04gzip" + "\x84\x01" + string(parcel("zz"))
	for name, tt := range map[string]struct {
		got      digest.Sum
		version  byte
		preimage string
	}{
		"form":         {digest.Raw(coded("gzip", "zz")), 5, wholeForm},
		"as sent":      {digest.Raw(&digest.Request{Method: "POST", Path: "/", ContentEncoding: "gzip\nBR"}), 6, "\x09idem-fp\x06r" + head + "\x00\x07gzip\nBR\x00"},
		"form, JSON":   {digest.JSON(coded("gzip", "zz")), 5, wholeForm},
		"form, fields": {selected.Fingerprint(coded("gzip", "zz")), 5, wholeForm},
		"JSON":         {digest.JSON(latin1(jsonBody)), 1, "\x09idem-fp\x01r" + head + jsonType + "\x17" + jsonBody},
		"JSON, raw":    {digest.Raw(latin1(jsonBody)), 1, "\x09idem-fp\x01r" + head + jsonType + "\x17" + jsonBody},
		"JSON, fields": {selected.Fingerprint(latin1(jsonBody)), 1, "\x09idem-fp\x01r" + head + jsonType + "\x17" + jsonBody},
	} {
		want := sha256.Sum256([]byte(tt.preimage))
		want[0] = tt.version
		if tt.got != want {
			t.Errorf("%s: got %s, want %s", name, hex.EncodeToString(tt.got[:]), hex.EncodeToString(want[:]))
		}
	}
}

// What a coding or a charset hides is not compared but byte for byte, by each of the functions.
func TestCodedBodiesCountByteForByte(t *testing.T) {
	selected := fields(t, "a")
	json := func(charset, body string) *digest.Request {
		return &digest.Request{ContentType: "application/json; charset=" + charset, Body: []byte(body)}
	}
	for name, tt := range map[string]struct {
		a, b *digest.Request
		same bool // by JSON and fields
	}{
		"form":                     {coded("gzip", "one"), coded("gzip", "two"), false},
		"form, unknown coding":     {coded("x", "one"), coded("x", "two"), false},
		"form, coding behind none": {coded("identity, deflate", "one"), coded("identity, deflate", "two"), false},
		"latin1":                   {latin1(`{"a":1}`), latin1(`{"a": 1}`), false},
		"utf-16":                   {json("utf-16", `{"a":1}`), json("utf-16", `{"a": 1}`), false},
		"no charset":               {json(`""`, `{"a":1}`), json(`""`, `{"a": 1}`), false},
		"UTF-8":                    {json("UTF-8", `{"a":1}`), json("utf-8", `{"a": 1}`), true},
		"quoted":                   {json(`"utf-8"`, `{"a":1}`), json("utf-8", `{"a": 1}`), true},
		"its other name":           {json("UTF8", `{"a":1}`), json("utf8", `{"a": 1}`), true},
	} {
		if digest.Raw(tt.a) == digest.Raw(tt.b) {
			t.Errorf("%s: raw fingerprints are equal", name)
		}
		require.Equal(t, tt.same, digest.JSON(tt.a) == digest.JSON(tt.b), name)
		require.Equal(t, tt.same, selected.Fingerprint(tt.a) == selected.Fingerprint(tt.b), name)
	}
	if a, b := digest.Checksum(coded("gzip", "one")), digest.Checksum(coded("gzip", "two")); a.Parts[4] == b.Parts[4] {
		t.Error("checksums of compressed forms are equal")
	}
}

// A process leaves a record alone whose version only a later one can have made.
func TestNewerVersions(t *testing.T) {
	for version := range 256 {
		v := byte(version)
		known := v <= digest.VersionAsSent || v >= digest.FirstOwnVersion
		if digest.IsNewer(v) == known {
			t.Errorf("version %d is newer: %v", v, !known)
		}
	}
	for _, v := range []byte{digest.Raw(coded("gzip", "b"))[0], digest.JSON(latin1("{}"))[0], digest.Raw(coded(",", "b"))[0]} {
		if !digest.CountsParts(v) || digest.IsNewer(v) {
			t.Errorf("version %d is not one that every process compares", v)
		}
	}
}
