package digest_test

import (
	"bytes"
	"testing"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/race"
)

// Each part has a checksum of its own, and what a fingerprint does not count has none.
func TestChecksums(t *testing.T) {
	t.Parallel()
	form := func(boundary string) digest.Request {
		return digest.Request{Method: "POST", ContentType: "multipart/form-data; boundary=" + boundary, Body: parcel(boundary)}
	}
	base := digest.Request{
		Method: "POST", Path: "/charges", Query: "a=1", ContentType: "application/json; charset=utf-8", Body: []byte(`{"a":1}`),
	}
	change := func(f func(*digest.Request)) digest.Request { r := base; f(&r); return r }
	for name, c := range map[string]struct {
		a, b   digest.Request
		differ [5]bool
	}{
		"same":           {base, base, [5]bool{}},
		"method":         {base, change(func(r *digest.Request) { r.Method = "PUT" }), [5]bool{0: true}},
		"path":           {base, change(func(r *digest.Request) { r.Path = "/charges/1" }), [5]bool{1: true}},
		"query":          {base, change(func(r *digest.Request) { r.Query = "" }), [5]bool{2: true}},
		"type":           {base, change(func(r *digest.Request) { r.ContentType = "text/plain" }), [5]bool{3: true}},
		"coding":         {base, change(func(r *digest.Request) { r.ContentEncoding = "gzip" }), [5]bool{3: true}},
		"no coding":      {base, change(func(r *digest.Request) { r.ContentEncoding = "identity" }), [5]bool{}},
		"body":           {base, change(func(r *digest.Request) { r.Body = []byte(`{"a":2}`) }), [5]bool{4: true}},
		"spelling":       {base, change(func(r *digest.Request) { r.ContentType = `Application/JSON;charset="UTF-8"` }), [5]bool{}},
		"path and query": {base, change(func(r *digest.Request) { r.Path, r.Query = "/b", "b" }), [5]bool{1: true, 2: true}},
		"boundary":       {form("one"), form("two"), [5]bool{}},
		"form": {form("one"), func() digest.Request {
			r := form("two")
			r.Body = bytes.Replace(r.Body, []byte("\r\n\r\n"), []byte("\r\n\r\nx"), 1)
			return r
		}(), [5]bool{4: true}},
	} {
		a, b := digest.Checksum(&c.a), digest.Checksum(&c.b)
		for i := range a {
			if (a[i] != b[i]) != c.differ[i] {
				t.Errorf("%s: part %d: %x and %x", name, i, a[i], b[i])
			}
		}
	}
	if got := digest.Checksum(&base)[4]; got != digest.Sum16(base.Body) {
		t.Errorf("the body has checksum %x", got)
	}
}

// The checksums are stored, so all versions and all machines make the same.
func TestChecksumsStayTheSame(t *testing.T) {
	t.Parallel()
	r := digest.Request{Method: "POST", Path: "/charges", Query: "a=1", ContentType: "application/json", Body: []byte("{}")}
	want := digest.Checksums{0x4e53, 0x81ce, 0x0915, 0x09d8, 0xf9d1}
	if got := digest.Checksum(&r); got != want {
		t.Errorf("%#04x", got)
	}
}

func TestChecksumsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("pools drop items at random under the race detector")
	}
	for _, r := range []digest.Request{
		{Method: "POST", Path: "/a", Query: "q", ContentType: "application/json; charset=utf-8", Body: make([]byte, 1000)},
		{ContentType: "multipart/form-data; boundary=b", ContentEncoding: "identity", Body: parcel("b")},
	} {
		if got := testing.AllocsPerRun(200, func() { digest.Checksum(&r) }); got >= 1 {
			t.Errorf("%s: %v allocations", r.ContentType, got)
		}
	}
}
