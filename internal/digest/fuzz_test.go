package digest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"slices"
	"strings"
	"testing"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/jcs"
)

// FuzzFingerprint reads back the bytes that are hashed. If every part of the request can be told
// from them, only requests that are meant to be the same have the same fingerprint, and
// requests of different forms never do.
func FuzzFingerprint(f *testing.F) {
	add := func(contentType, coding string, body []byte) {
		f.Add("POST", "/v1/charges", "a=1", contentType, coding, body, "other")
	}
	add("", "", nil)
	add("text/plain; charset=UTF-8", "gzip, identity", []byte("x"))
	add("application/json", "", []byte(`{"b":1e2,"a":[{"b":null},{}]}`))
	add("application/json", "", []byte(`{"b":12345678901234567890,"b":1}`))
	add("application/vnd.a+json", "br", []byte(`[]`))
	add("application/json; charset=utf-16", "", []byte(`{"b":1e2}`))
	add("application/json; charset=UTF8", "identity", []byte(`{"b":1e2}`))
	add("multipart/form-data; boundary=zz", "gzip", parcel("zz"))
	add("multipart/form-data; boundary=zz", "", parcel("zz"))
	add("multipart/form-data; boundary=zz", "", []byte("--zz\n\n--zz--"))
	add("multipart/form-data; boundary=\"a-\"; x=\"\\y\"", "", []byte("pre\r\n--a-\r\n\r\n\r\n--a---"))
	add("multipart/form-data; boundary=-", "", []byte("---\r\n---\r\n-----"))
	selected := fields(f, "b", "a.b")
	paths := []jcs.Path{{"a", "b"}, {"b"}}

	f.Fuzz(func(t *testing.T, method, path, query, contentType, coding string, body []byte, boundary string) {
		r := &digest.Request{
			Method: method, Path: path, Query: query,
			ContentType: contentType, ContentEncoding: coding, Body: body,
		}
		checkRaw(t, r, 1, decodeParts(t, digest.RawPreimage(r)))
		checkBoundary(t, r, boundary)

		parts := decodeParts(t, digest.JSONPreimage(r))
		if form(parts) == 'j' {
			checkHead(t, r, 2, parts)
			canonical, err := jcs.Canonical(nil, body)
			if parts[5] != "" || !inUTF8(r.ContentType) {
				t.Fatalf("%q of the type %q and with the coding %q is read as JSON", body, contentType, parts[5])
			}
			if err != nil || len(parts) != 7 || parts[6] != string(canonical) {
				t.Fatalf("%q: canonical body is %q, %v, but hashed is %q", body, canonical, err, parts[6:])
			}
		} else {
			checkRaw(t, r, 2, parts)
		}

		parts = decodeParts(t, digest.FieldsPreimage(selected, r))
		if form(parts) == 'f' {
			checkHead(t, r, 3, parts)
			want := []string{"a.b", "b"}
			d, err := jcs.Read(body)
			if err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			for _, path := range paths {
				found, err := d.Select(path)
				if err != nil {
					t.Fatalf("%q: %v", body, err)
				}
				want = append(want, string(found))
			}
			d.Free()
			if !slices.Equal(parts[4:], want) {
				t.Fatalf("%q: fields are %q, but hashed is %q", body, want, parts[4:])
			}
		} else {
			checkRaw(t, r, 3, parts)
		}
	})
}

// decodeParts takes a sequence of parts apart. It fails if the sequence could be written in
// another way.
func decodeParts(t *testing.T, written []byte) []string {
	t.Helper()
	var parts []string
	for rest := written; len(rest) > 0; {
		length, n := binary.Uvarint(rest)
		if n <= 0 || length > uint64(len(rest)-n) || n != len(binary.AppendUvarint(nil, length)) {
			t.Fatalf("%q is no sequence of parts", written)
		}
		parts = append(parts, string(rest[n:n+int(length)]))
		rest = rest[n+int(length):]
	}
	return parts
}

func form(parts []string) byte { return parts[0][len(parts[0])-1] }

func checkHead(t *testing.T, r *digest.Request, version byte, parts []string) {
	t.Helper()
	if want := "idem-fp" + string(rune(version)) + string(rune(form(parts))); parts[0] != want {
		t.Fatalf("the tag is %q, want %q", parts[0], want)
	}
	if parts[1] != r.Method || parts[2] != r.Path || parts[3] != r.Query {
		t.Fatalf("%+v begins with %q", r, parts[:4])
	}
}

// inUTF8 reports whether package mime sees no charset but UTF-8 in a type.
func inUTF8(contentType string) bool {
	_, params, _ := mime.ParseMediaType(contentType)
	charset := strings.ToLower(params["charset"])
	_, ok := params["charset"]
	return !ok || charset == "utf-8" || charset == "utf8"
}

// checkRaw checks the forms that hash the body as it is. Their version may be another one: where what is
// not counted any more might be in an earlier record.
func checkRaw(t *testing.T, r *digest.Request, version byte, parts []string) {
	t.Helper()
	switch {
	case parts[5] == r.ContentEncoding && parts[0][7] == digest.VersionAsSent:
		version = digest.VersionAsSent
	case parts[5] != "" && digest.Boundary(r.ContentType) != "" && parts[0][7] == digest.VersionCoded:
		version = digest.VersionCoded
	case version != digest.VersionRaw && !inUTF8(r.ContentType) && parts[0][7] == digest.VersionRaw:
		version = digest.VersionRaw
	}
	checkHead(t, r, version, parts)
	contentType, _ := digest.NormalizeType(r.ContentType)
	if form(parts) == 'm' {
		if parts[5] != "" {
			t.Fatalf("%q with the coding %q is read as a form", r.Body, parts[5])
		}
		if body := strings.Join(parts[6:], "--"+digest.Boundary(r.ContentType)); body != string(r.Body) {
			t.Fatalf("%q: the pieces %q make %q", r.Body, parts[6:], body)
		}
		return
	}
	if form(parts) != 'r' || len(parts) != 7 || parts[4] != contentType || parts[6] != string(r.Body) {
		t.Fatalf("%+v is hashed as %q", r, parts)
	}
}

// checkBoundary replaces the boundary of a multipart request. If this package takes the body for
// multipart, the fingerprint stays the same, and mime/multipart, which accepts far more, finds
// the same in both bodies.
func checkBoundary(t *testing.T, r *digest.Request, boundary string) {
	t.Helper()
	old := digest.Boundary(r.ContentType)
	contentType := `multipart/form-data; boundary="` + boundary + `"`
	if old == "" || digest.Boundary(contentType) != boundary || bytes.Contains(r.Body, []byte("--"+boundary)) {
		return
	}
	if parts := decodeParts(t, digest.RawPreimage(r)); form(parts) != 'm' {
		return
	}
	one, two := *r, *r
	one.ContentType = `multipart/form-data; boundary="` + old + `"`
	two.ContentType = contentType
	two.Body = bytes.ReplaceAll(r.Body, []byte("--"+old), []byte("--"+boundary))
	if decodeForm := form(decodeParts(t, digest.RawPreimage(&two))); decodeForm != 'm' {
		return // the new boundary and what follows make an earlier occurrence
	}
	if digest.Raw(&one) != digest.Raw(&two) {
		t.Fatalf("%q and %q have different fingerprints", one.Body, two.Body)
	}
	if strings.Contains(old+boundary, ":") {
		return // mime/multipart reads a delimiter with a colon as a header of the part
	}
	if a, b := readMultipart(one.Body, old), readMultipart(two.Body, boundary); a != b {
		t.Fatalf("%q has %s, but %q has %s", one.Body, a, two.Body, b)
	}
}

// FuzzCodedForm builds two requests of one compressed body, whose bytes show a form with another boundary in
// each: in a place that decompressing leaves out, or, stored, as a part of the body. If their fingerprints
// are equal, a handler that decompresses them finds the same in both.
func FuzzCodedForm(f *testing.F) {
	const text = "--a\r\n\r\nalice\r\n--a--\r\n--b\r\n\r\nbob\r\n--b--"
	f.Add([]byte(text), "a", "b", "gzip", false)
	f.Add([]byte(text), "a", "b", "identity, GZIP", true)
	f.Add([]byte(text), "a", "b", "identity", false)
	f.Add([]byte("--x\r\n\r\n1\r\n--x--"), "x", "y", "x-gzip", true)
	f.Fuzz(func(t *testing.T, text []byte, one, two, coding string, stored bool) {
		level := gzip.DefaultCompression
		if stored {
			level = gzip.NoCompression
		}
		request := func(boundary string) *digest.Request {
			var b bytes.Buffer
			w, err := gzip.NewWriterLevel(&b, level)
			if err != nil {
				t.Fatal(err)
			}
			w.Comment = "\r\n--" + boundary + "\r\n\r\n--" + boundary + "--\r\n"
			if _, err := w.Write(text); err != nil {
				return nil // of a boundary that is not for a comment
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			return &digest.Request{ContentType: `multipart/form-data; boundary="` + boundary + `"`, ContentEncoding: coding, Body: b.Bytes()}
		}
		a, b := request(one), request(two)
		if a == nil || b == nil || digest.Boundary(a.ContentType) != one || digest.Boundary(b.ContentType) != two {
			return
		}
		found, foundToo := readMultipart(text, one), readMultipart(text, two)
		for name, fp := range map[string]func(*digest.Request) digest.Sum{"raw": digest.Raw, "JSON": digest.JSON} {
			if isGzip := strings.Contains(strings.ToLower(coding), "gzip"); isGzip && fp(a) == fp(b) && found != foundToo {
				t.Fatalf("%s: with the boundary %q there is %s, and with %q %s", name, one, found, two, foundToo)
			}
		}
	})
}

// readMultipart returns what mime/multipart finds in a body.
func readMultipart(body []byte, boundary string) string {
	var found strings.Builder
	reader := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := reader.NextRawPart()
		if err != nil {
			fmt.Fprint(&found, errors.Is(err, io.EOF))
			return found.String()
		}
		content, err := io.ReadAll(part)
		fmt.Fprintf(&found, "%q %q %v; ", part.Header, content, err == nil)
	}
}

// FuzzContentType checks that package mime, and so net/http, reads a type as this package does,
// and that the canonical spelling is a fixed point that means the same. A type that package mime
// refuses or reads otherwise must be kept as it is.
func FuzzContentType(f *testing.F) {
	for _, seed := range []string{
		"", "text/plain", "TEXT/HTML ; Charset=UTF-8;", `a/b;c="d\"e";b=f`, "a/b;c", "a/b;c=;d=e",
		"a/b;c=d;C=e", `multipart/form-data; boundary="x:y"`, "a/b;a=1;b=2;c=3;d=4;e=5;f=6;g=7;h=8;i=9",
		`multipart/form-data; boundary="A\A"`, `multipart/form-data; boundary="a\(b)"`, "multipart/form-data; boundary=A;;", "a/b; ;c=d",
		"multipart/form-data; boundary=b; boundary*=us-ascii''c", "a/b;c*0=d;c*1=e", `a/b;c="d;e=f"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		spelled, ok := digest.NormalizeType(value)
		again, okAgain := digest.NormalizeType(spelled)
		if again != spelled || ok != okAgain {
			t.Fatalf("%q is spelled %q, but that is spelled %q", value, spelled, again)
		}
		if !ok {
			if kept := strings.Trim(value, " \t"); spelled != kept || digest.Boundary(value) != "" {
				t.Fatalf("%q is not plain, but is spelled %q and has the boundary %q", value, spelled, digest.Boundary(value))
			}
			return
		}
		name, params := read(t, value)
		if charset, ok := params["charset"]; ok {
			params["charset"] = strings.ToLower(charset)
		}
		spelledName, spelledParams := read(t, spelled)
		if name != spelledName || !maps.Equal(params, spelledParams) {
			t.Fatalf("%q is %s %q, but %q is %s %q", value, name, params, spelled, spelledName, spelledParams)
		}
	})
}

// read returns what package mime reads in a type. It fails if this package reads anything else but upper case in
// the name.
func read(t *testing.T, value string) (name string, params map[string]string) {
	t.Helper()
	name, params, err := mime.ParseMediaType(value)
	if err != nil {
		t.Fatalf("package mime refuses %q: %v", value, err)
	}
	gotName, got, ok := digest.ParseType(value)
	if !ok || strings.ToLower(gotName) != name || !maps.Equal(got, params) {
		t.Fatalf("%q is %s %q to package mime, but read as %s %q", value, name, params, gotName, got)
	}
	if boundary := digest.Boundary(value); boundary != "" && boundary != params["boundary"] {
		t.Fatalf("%q has the boundary %q to package mime, but %q is used", value, params["boundary"], boundary)
	}
	return name, params
}
