package digest_test

import (
	"bytes"
	"testing"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/race"
	"github.com/stretchr/testify/require"
)

// Each part has a checksum of its own, and what a fingerprint does not count has none.
func TestChecksums(t *testing.T) {
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
		"no coding":      {base, change(func(r *digest.Request) { r.ContentEncoding = "identity" }), [5]bool{3: true}},
		"body":           {base, change(func(r *digest.Request) { r.Body = []byte(`{"a":2}`) }), [5]bool{4: true}},
		"spelling":       {base, change(func(r *digest.Request) { r.ContentType = ` application/json;charset="UTF-8"` }), [5]bool{}},
		"path and query": {base, change(func(r *digest.Request) { r.Path, r.Query = "/b", "b" }), [5]bool{1: true, 2: true}},
		"boundary":       {form("one"), form("two"), [5]bool{}},
		"form": {form("one"), func() digest.Request {
			r := form("two")
			r.Body = bytes.Replace(r.Body, []byte("\r\n\r\n"), []byte("\r\n\r\nx"), 1)
			return r
		}(), [5]bool{4: true}},
	} {
		a, b := digest.Checksum(&c.a), digest.Checksum(&c.b)
		for i := range a.Parts {
			if (a.Parts[i] != b.Parts[i]) != c.differ[i] {
				t.Errorf("%s: part %d: %x and %x", name, i, a.Parts[i], b.Parts[i])
			}
		}
	}
	if got := digest.Checksum(&base); got.Parts[4] != digest.ChecksumBody(base.Body).Parts[4] || got.Partial {
		t.Errorf("the checksums are %v", got)
	}
}

// Of a long body, the length and both ends count, and its checksums say so. A form counts without its
// delimiters, which are as long as the boundary.
func TestChecksumsOfALongBody(t *testing.T) {
	const size = 100 << 10
	plain := func(_ string, body []byte) digest.Request { return digest.Request{Body: body} }
	form := func(boundary string, file []byte) digest.Request {
		body := bytes.Replace(parcel(boundary), []byte("\r\n\r\n"), append([]byte("\r\n\r\n"), file...), 1)
		return digest.Request{ContentType: "multipart/form-data; boundary=" + boundary, Body: body}
	}
	for name, request := range map[string]func(boundary string, body []byte) digest.Request{"plain": plain, "form": form} {
		zeros := request("first", bytes.Repeat([]byte("0"), size))
		base := digest.Checksum(&zeros)
		if !base.Partial {
			t.Errorf("%s: partial is not said", name)
		}
		for at, differs := range map[int]bool{0: true, 4000: true, size / 2: false, size - 4000: true, size - 1: true} {
			body := bytes.Repeat([]byte("0"), size)
			body[at] = '1'
			r := request("another", body)
			if got := digest.Checksum(&r); (got.Parts[4] != base.Parts[4]) != differs || !got.Partial {
				t.Errorf("%s, a difference at byte %d: %v and %v", name, at, base, got)
			}
		}
		longer := request("first", bytes.Repeat([]byte("0"), size+1))
		if got := digest.Checksum(&longer); got.Parts[4] == base.Parts[4] {
			t.Errorf("%s: the length does not count", name)
		}
	}
	whole, part := digest.ChecksumBody(make([]byte, 8<<10)), digest.ChecksumBody(make([]byte, 8<<10+1))
	if whole.Partial || !part.Partial {
		t.Errorf("%v, %v", whole, part)
	}
}

// The checksums are stored, so all versions and all machines make the same.
func TestChecksumsStayTheSame(t *testing.T) {
	r := digest.Request{Method: "POST", Path: "/charges", Query: "a=1", ContentType: "application/json", Body: []byte("{}")}
	want := digest.Checksums{Parts: [5]uint16{0x4e53, 0x81ce, 0x0915, 0x09d8, 0xf9d1}}
	require.Equal(t, want, digest.Checksum(&r))
}

func TestChecksumsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("pools drop items at random under the race detector")
	}
	for _, r := range []digest.Request{
		{Method: "POST", Path: "/a", Query: "q", ContentType: "application/json; charset=utf-8", Body: make([]byte, 1000)},
		{ContentType: "multipart/form-data; boundary=b", ContentEncoding: "identity", Body: parcel("b")},
		{ContentType: "application/json", Body: make([]byte, 100<<10)},
	} {
		if got := testing.AllocsPerRun(200, func() { digest.Checksum(&r) }); got >= 1 {
			t.Errorf("%s: %v allocations", r.ContentType, got)
		}
	}
}
