package digest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/race"
	"github.com/stretchr/testify/require"
)

// parcel has the multipart body with the given boundary.
func parcel(boundary string) []byte {
	body := "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n" +
		"--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n--b\r\n\r\n" +
		"--B--\r\n"
	return []byte(strings.ReplaceAll(body, "--B", "--"+boundary))
}

func fields(tb testing.TB, names ...string) *digest.Fields {
	tb.Helper()
	f, err := digest.ParseFields(names...)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// TestLayout pins every byte that is hashed. Records outlive deployments. If this test fails,
// the change needs a new version. Otherwise the next deployment refuses the retries of all
// clients that are under way.
func TestLayout(t *testing.T) {
	request := func(contentType, coding string, body []byte) *digest.Request {
		return &digest.Request{
			Method: "POST", Path: "/v1/a%20b", Query: "q=1",
			ContentType: contentType, ContentEncoding: coding, Body: body,
		}
	}
	pad := strings.Repeat("x", 200)
	const jsonBody = `{"b": 1.0, "a": [null]}`
	const head = "\x04POST\x09/v1/a%20b\x03q=1"
	tests := []struct {
		name     string
		got      digest.Sum
		version  byte
		preimage string
		sha      string
	}{
		{
			"raw",
			digest.Raw(request("text/plain ; charset=UTF-8", " gzip , br", []byte("body"))), 1,
			"\x09idem-fp\x01r" + head + "\x1atext/plain;charset=\"utf-8\"\x07gzip,br\x04body",
			"acd20f9ee4992e2c4d35b783c04e7412ecd4f7168658ba57e9646e52a13a5f42",
		},
		{
			"raw, nothing but a method",
			digest.Raw(&digest.Request{Method: "POST"}), 1,
			"\x09idem-fp\x01r\x04POST\x00\x00\x00\x00\x00",
			"543f72707b4a581481fe35e93994c1faeecebebf6efae5ff713e7631592b47aa",
		},
		{
			"raw, long body",
			digest.Raw(request("", "", []byte(pad))), 1,
			"\x09idem-fp\x01r" + head + "\x00\x00\xc8\x01" + pad,
			"0a13fcb837ac02ecf1b0ae98384d8b1c0f61f49c9e5accd3aaf51c8eedd60a40",
		},
		{
			"multipart",
			digest.Raw(request("multipart/form-data; boundary=\"zz\"; a=1", "", parcel("zz"))), 1,
			"\x09idem-fp\x01m" + head + "\x19multipart/form-data;a=\"1\"\x00\x00" +
				"\x31\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n" +
				"\x43\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n--b\r\n\r\n" +
				"\x04--\r\n",
			"bcfe1d4aa163d7fb997812713a348cc0a9fd699d78c7e8a6971190d27431b740",
		},
		{
			"JSON",
			digest.JSON(request("application/json", "", []byte(jsonBody))), 2,
			"\x09idem-fp\x02j" + head + "\x10application/json\x00\x12" + `{"a":[null],"b":1}`,
			"21a7c05310c3a6db6f078f7942eaf17babd9f25ca78bac4930b8953aeeb9ac16",
		},
		{
			"JSON of another kind",
			digest.JSON(request("text/plain", "", []byte(jsonBody))), 2,
			"\x09idem-fp\x02r" + head + "\x0atext/plain\x00\x17" + jsonBody,
			"44e70c83f54f6413f275e33164e1dca0b73ad132933fc3c711b89c594b4239fb",
		},
		{
			"fields",
			fields(t, "b", "a", "c").Fingerprint(request("application/json", "", []byte(jsonBody))), 3,
			"\x09idem-fp\x03f" + head + "\x01a\x01b\x01c\x07=[null]\x02=1\x01-",
			"b38c6559618df4b89ac42c610a31f2fc303b81396c4c943c021bf82ab7f62ce7",
		},
		{
			"fields, not JSON",
			fields(t, "b").Fingerprint(request("text/plain", "", []byte(jsonBody))), 3,
			"\x09idem-fp\x03r" + head + "\x0atext/plain\x00\x17" + jsonBody,
			"267dd20dc16e22dab95a4a6a19dadac0417395a7a5ee3a43d936aab982ca177e",
		},
		{
			"parts",
			digest.Parts(0xfe, []byte("a"), nil, []byte("bc")), 0xfe,
			"\x09idem-fp\xfep\x01a\x00\x02bc",
			"8f9895ac658befd33c1c68545b1a6ca90e0cb40ca75a1dc00a46d6e521881508",
		},
	}
	for _, tt := range tests {
		sum := sha256.Sum256([]byte(tt.preimage))
		require.Equal(t, tt.sha, hex.EncodeToString(sum[:]), tt.name)
		sum[0] = tt.version
		if tt.got != sum {
			t.Errorf("%s: got %x, want %x", tt.name, tt.got, sum)
		}
	}

	key := digest.Key("scope", "key")
	if want := sha256.Sum256([]byte("\x09idem-key\x01\x05scope\x03key")); key != want {
		t.Errorf("key: got %x, want %x", key, want)
	}
	require.Equal(t, "a5a6f0743f9be348d8be6dff811994be3122174e81541664151f6eb42595315a", hex.EncodeToString(key[:]))
}

// sent is a request with a type and a body.
func sent(contentType, body string) digest.Request {
	return digest.Request{ContentType: contentType, Body: []byte(body)}
}

func inJSON(body string) digest.Request { return sent("application/json", body) }

func TestRequestsThatAreTheSame(t *testing.T) {
	amount := fields(t, "amount", "to.iban")
	type fingerprint func(*digest.Request) digest.Sum
	tests := []struct {
		name string
		fp   fingerprint
		a, b digest.Request
	}{
		{
			"white space of the type, and case of its charset", digest.Raw,
			digest.Request{ContentType: "application/json;charset=utf-8"},
			digest.Request{ContentType: " application/json ; charset=\"UTF-8\" ;"},
		},
		{
			"order of the type's parameters", digest.Raw,
			digest.Request{ContentType: `multipart/related;type="text/xml";start=a`},
			digest.Request{ContentType: `multipart/related;start="a";type="text/xml"`},
		},
		{"spelling of the coding", digest.Raw, digest.Request{ContentEncoding: "gzip, br"}, digest.Request{ContentEncoding: "gzip,br"}},
		{"nil and empty body", digest.Raw, digest.Request{Body: []byte{}}, digest.Request{}},
		{
			"random boundary", digest.Raw,
			digest.Request{ContentType: "multipart/form-data; boundary=one", Body: parcel("one")},
			digest.Request{ContentType: "multipart/form-data; boundary=\"and:two\"", Body: parcel("and:two")},
		},
		{
			"random boundary, other fingerprint", digest.JSON,
			digest.Request{ContentType: "multipart/form-data; boundary=one", Body: parcel("one")},
			digest.Request{ContentType: "multipart/form-data; boundary=two", Body: parcel("two")},
		},
		{
			"random boundary, no epilogue", digest.Raw,
			sent("multipart/form-data; boundary=one", "--one\r\n\r\n\r\n--one--"),
			sent("multipart/form-data; boundary=two", "--two\r\n\r\n\r\n--two--"),
		},
		{
			"random boundary, with preamble and epilogue", digest.Raw,
			sent("multipart/form-data; boundary=one", "pre\r\n--one\r\n\r\n\r\n--one--\r\nepi"),
			sent("multipart/form-data; boundary=two", "pre\r\n--two\r\n\r\n\r\n--two--\r\nepi"),
		},
		{"JSON", digest.JSON, inJSON(`{"a":1,"b":"\u0041"}`), inJSON("{\n\t\"b\": \"A\", \"a\": 1.0\n}\n")},
		{
			"JSON by suffix", digest.JSON,
			sent("application/vnd.api+json;", `{"a":1,"b":2}`),
			sent("application/vnd.api+json", `{"b":2,"a":1}`),
		},
		{
			"JSON with numbers beyond doubles", digest.JSON,
			inJSON(`{"id":12345678901234567890,"b":2}`),
			inJSON(`{"b":2,"id":12345678901234567890}`),
		},
		{
			"other fields", amount.Fingerprint,
			inJSON(`{"amount":1,"to":{"iban":"x"},"sent":"10:00"}`),
			sent("application/merge-patch+json", `{"to":{"iban":"x","bank":"y"},"amount":1.0}`),
		},
		{"absent fields", amount.Fingerprint, inJSON(`{}`), inJSON(`{"to":{}}`)},
	}
	for _, tt := range tests {
		if tt.fp(&tt.a) != tt.fp(&tt.b) {
			t.Errorf("%s: fingerprints differ", tt.name)
		}
	}
}

func TestRequestsThatDiffer(t *testing.T) {
	amount := fields(t, "amount", "to.iban")
	type fingerprint func(*digest.Request) digest.Sum
	tests := []struct {
		name string
		fp   fingerprint
		a, b digest.Request
	}{
		{"method", digest.Raw, digest.Request{Method: "POST"}, digest.Request{Method: "PATCH"}},
		{"path", digest.Raw, digest.Request{Path: "/a"}, digest.Request{Path: "/a/"}},
		{"escaped path", digest.Raw, digest.Request{Path: "/a/b"}, digest.Request{Path: "/a%2Fb"}},
		{"query", digest.Raw, digest.Request{Query: "a=1&b=2"}, digest.Request{Query: "b=2&a=1"}},
		{"path into query", digest.Raw, digest.Request{Path: "/ab"}, digest.Request{Path: "/a", Query: "b"}},
		{"body", digest.Raw, digest.Request{Body: []byte("a")}, digest.Request{Body: []byte("b")}},
		{"query into body", digest.Raw, digest.Request{Query: "a"}, digest.Request{Body: []byte("a")}},
		{"type", digest.Raw, digest.Request{ContentType: "text/plain"}, digest.Request{ContentType: "text/html"}},
		{"charset", digest.Raw, digest.Request{ContentType: "text/plain;charset=utf-8"}, digest.Request{ContentType: "text/plain;charset=latin1"}},
		{"case of another parameter", digest.Raw, digest.Request{ContentType: "text/plain;a=x"}, digest.Request{ContentType: "text/plain;a=X"}},
		{
			"boundary with a backslash that package mime keeps", digest.Raw,
			sent(`multipart/form-data;boundary="AA"`, "--AA\r\n\r\nalice, not --AA\r\n--AA--\r\n--A\\A\r\n\r\nbob\r\n--A\\A--"),
			sent(`multipart/form-data;boundary="A\A"`, "--AA\r\n\r\nalice, not --AA\r\n--AA--\r\n--A\\A\r\n\r\nbob\r\n--A\\A--"),
		},
		{
			"form that package mime refuses", digest.Raw,
			sent("multipart/form-data;boundary=b;;", "--b\r\n\r\n1\r\n--b--"),
			sent("multipart/form-data;boundary=c", "--c\r\n\r\n1\r\n--c--"),
		},
		{"backslash in a type", digest.JSON, digest.Request{ContentType: `application/json;a="b"`}, digest.Request{ContentType: `application/json;a="\b"`}},
		{"empty parameter", digest.JSON, digest.Request{ContentType: "application/json;;"}, digest.Request{ContentType: "application/json"}},
		{"boundary of what is not multipart", digest.Raw, digest.Request{ContentType: "text/plain;boundary=x"}, digest.Request{ContentType: "text/plain;boundary=y"}},
		{"malformed type", digest.Raw, digest.Request{ContentType: "text/plain;a"}, digest.Request{ContentType: "text/plain"}},
		{"coding", digest.Raw, digest.Request{ContentEncoding: "gzip"}, digest.Request{}},
		{"case of the type", digest.Raw, digest.Request{ContentType: "application/json"}, digest.Request{ContentType: "Application/JSON"}},
		{"order of a parameter in two cases", digest.Raw, digest.Request{ContentType: "a/b;c=d;C=e"}, digest.Request{ContentType: "a/b;C=e;c=d"}},
		{"case of the coding", digest.Raw, digest.Request{ContentEncoding: "gzip"}, digest.Request{ContentEncoding: "GZIP"}},
		{"identity coding", digest.JSON, digest.Request{ContentEncoding: "identity"}, digest.Request{}},
		{"identity before a coding", digest.Raw, digest.Request{ContentEncoding: "identity\ngzip"}, digest.Request{ContentEncoding: "gzip"}},
		{"identity in the list", digest.Raw, digest.Request{ContentEncoding: "identity,gzip"}, digest.Request{ContentEncoding: "gzip"}},
		{"an empty line of codings", digest.Raw, digest.Request{ContentEncoding: "\ngzip"}, digest.Request{ContentEncoding: "gzip"}},
		{"an empty coding", digest.Raw, digest.Request{ContentEncoding: ",gzip"}, digest.Request{ContentEncoding: "gzip"}},
		{"lines of codings", digest.Raw, digest.Request{ContentEncoding: "gzip\nbr"}, digest.Request{ContentEncoding: "gzip, br"}},
		{"order of codings", digest.Raw, digest.Request{ContentEncoding: "gzip,br"}, digest.Request{ContentEncoding: "br,gzip"}},
		{"type into coding", digest.Raw, digest.Request{ContentType: "gzip"}, digest.Request{ContentEncoding: "gzip"}},

		{
			"content of a part", digest.Raw,
			sent("multipart/form-data;boundary=b", "--b\r\n\r\n1\r\n--b--"),
			sent("multipart/form-data;boundary=b", "--b\r\n\r\n2\r\n--b--"),
		},
		{
			"a delimiter that only one boundary makes", digest.Raw,
			sent("multipart/form-data;boundary=b", "--b\r\n\r\n1\r\n--c\r\n\r\n2\r\n--b--"),
			sent("multipart/form-data;boundary=b", "--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b--"),
		},
		{
			"same body, other boundary", digest.Raw,
			sent("multipart/form-data;boundary=b", "--b\r\n\r\n1\r\n--b--"),
			sent("multipart/form-data;boundary=c", "--b\r\n\r\n1\r\n--b--"),
		},
		{
			"boundary that begins a line of content", digest.Raw,
			sent("multipart/form-data;boundary=b", "--b\r\n\r\n--bb\r\n--b--"),
			sent("multipart/form-data;boundary=c", "--c\r\n\r\n--cb\r\n--c--"),
		},
		{
			"parameter beside the boundary", digest.Raw,
			sent("multipart/form-data;boundary=b;x=1", "--b--"),
			sent("multipart/form-data;boundary=b;x=2", "--b--"),
		},

		{"JSON as raw", digest.Raw, inJSON(`{"a":1}`), inJSON(`{"a": 1}`)},
		{"JSON value", digest.JSON, inJSON(`{"a":1}`), inJSON(`{"a":2}`)},
		{"JSON type", digest.JSON, inJSON(`{"a":1}`), inJSON(`{"a":"1"}`)},
		{"JSON null and absent", digest.JSON, inJSON(`{"a":null}`), inJSON(`{}`)},
		{"amounts beyond doubles", digest.JSON, inJSON(`12345678901234567890`), inJSON(`12345678901234567891`)},
		{"duplicate names", digest.JSON, inJSON(`{"a":1,"a":2}`), inJSON(`{"a":2}`)},
		{"duplicate names, spelled otherwise", digest.JSON, inJSON(`{"a":1,"a":2}`), inJSON(`{"a":1, "a":2}`)},
		{"lone surrogates", digest.JSON, inJSON(`"\ud800"`), inJSON(`"\ud801"`)},
		{"JSON that is compressed", digest.JSON, inJSON(`{"a":1}`), digest.Request{
			ContentType: "application/json", ContentEncoding: "x", Body: []byte(`{"a":1}`),
		}},
		{
			"spelling of JSON that says it is compressed", digest.JSON,
			digest.Request{ContentType: "application/json", ContentEncoding: "x", Body: []byte(`[1]`)},
			digest.Request{ContentType: "application/json", ContentEncoding: "x", Body: []byte(`[ 1]`)},
		},
		{"spelling of JSON under another type", digest.JSON, sent("text/json", `[1]`), sent("text/json", `[ 1]`)},
		{"JSON and its type", digest.JSON, inJSON(`[1]`), sent("application/patch+json", `[1]`)},

		{"selected field", amount.Fingerprint, inJSON(`{"amount":1}`), inJSON(`{"amount":2}`)},
		{"selected field, nested", amount.Fingerprint, inJSON(`{"to":{"iban":"x"}}`), inJSON(`{"to":{"iban":"y"}}`)},
		{"selected field null and absent", amount.Fingerprint, inJSON(`{"amount":null}`), inJSON(`{}`)},
		{"one field's value in the other", amount.Fingerprint, inJSON(`{"amount":1}`), inJSON(`{"to":{"iban":1}}`)},
		{
			"path of a request with fields", amount.Fingerprint,
			digest.Request{Path: "/a", ContentType: "application/json", Body: []byte(`{}`)},
			digest.Request{Path: "/b", ContentType: "application/json", Body: []byte(`{}`)},
		},
		{"fields of what is not JSON", amount.Fingerprint, inJSON(`{"amount":1,}`), inJSON(`{"amount":1,"x"}`)},
		{
			"fields of what is not JSON by type", amount.Fingerprint,
			digest.Request{Body: []byte(`{"amount":1,"x":1}`)},
			digest.Request{Body: []byte(`{"amount":1,"x":2}`)},
		},
	}
	for _, tt := range tests {
		if tt.fp(&tt.a) == tt.fp(&tt.b) {
			t.Errorf("%s: fingerprints are equal", tt.name)
		}
	}

	// Of forms in which @ stands for the boundary, two boundaries make two requests.
	for name, form := range map[string][2]string{
		"boundary of what is not a form":   {"multipart/mixed;boundary=@", "--@\r\n\r\n1\r\n--@--"},
		"boundary beside an encoded one":   {"multipart/form-data;boundary=@;boundary*=us-ascii''x", "--@\r\n\r\n1\r\n--@--"},
		"boundary beside a continued one":  {"multipart/form-data;boundary=@;boundary*0=x;boundary*1=y", "--@\r\n\r\n1\r\n--@--"},
		"backslash beside the boundary":    {`multipart/form-data;boundary=@;x="\y"`, "--@\r\n\r\n1\r\n--@--"},
		"multipart that is cut off":        {"multipart/form-data;boundary=@", "--@\r\n\r\n1\r\n"},
		"boundary inside a line":           {"multipart/form-data;boundary=@", "--@\r\n\r\nx--@\r\n--@--"},
		"text before the first boundary":   {"multipart/form-data;boundary=@", "x--@\r\n\r\n1\r\n--@--"},
		"boundary after a bare line feed":  {"multipart/form-data;boundary=@", "--@\r\n\r\n1\n--@--"},
		"something after the end":          {"multipart/form-data;boundary=@", "--@\r\n\r\n\r\n--@--\r\n--@--"},
		"text after the closing delimiter": {"multipart/form-data;boundary=@", "--@\r\n\r\n\r\n--@--x"},
		"lines without carriage return":    {"multipart/form-data;boundary=@", "--@\n\n1\n--@--\n"},
		"boundary too long":                {"multipart/form-data;boundary=" + strings.Repeat("@", 71), "--" + strings.Repeat("@", 71) + "--"},
	} {
		with := func(boundary string) *digest.Request {
			r := sent(strings.ReplaceAll(form[0], "@", boundary), strings.ReplaceAll(form[1], "@", boundary))
			return &r
		}
		if digest.Raw(with("b")) == digest.Raw(with("c")) {
			t.Errorf("%s: fingerprints are equal", name)
		}
	}
}

// TestVersionsDiffer shows that two versions never make the same fingerprint, even if they hash
// the same content.
func TestVersionsDiffer(t *testing.T) {
	r := &digest.Request{Method: "POST", Body: []byte("x")}
	seen := map[digest.Sum]string{}
	for name, sum := range map[string]digest.Sum{
		"raw":          digest.Raw(r),
		"JSON":         digest.JSON(r),
		"fields":       fields(t, "a").Fingerprint(r),
		"other fields": fields(t, "b").Fingerprint(&digest.Request{Method: "POST", ContentType: "application/json", Body: []byte("{}")}),
		"more fields":  fields(t, "b", "c").Fingerprint(&digest.Request{Method: "POST", ContentType: "application/json", Body: []byte("{}")}),
		"parts":        digest.Parts(200),
		"more parts":   digest.Parts(200, nil),
		"parts 201":    digest.Parts(201),
	} {
		sum[0] = 0
		if other, ok := seen[sum]; ok {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		seen[sum] = name
	}
}

func TestParseFields(t *testing.T) {
	for _, names := range [][]string{{}, {""}, {"a", "b..c"}, {`a\`}} {
		if _, err := digest.ParseFields(names...); err == nil {
			t.Errorf("%q was accepted", names)
		}
	}
	r := &digest.Request{ContentType: "application/json", Body: []byte(`{"a":1,"b":2}`)}
	if fields(t, "b", "a", "b").Fingerprint(r) != fields(t, "a", "b").Fingerprint(r) {
		t.Error("the order of the names matters")
	}
}

func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("pools drop items at random under the race detector")
	}
	onlyA := fields(t, "a")
	for name, hash := range map[string]func(*digest.Request) digest.Sum{
		"raw": digest.Raw, "JSON": digest.JSON, "fields": onlyA.Fingerprint,
	} {
		for _, r := range []*digest.Request{
			{Method: "POST", Path: "/a", Query: "q", ContentType: "Application/JSON; charset=UTF-8", Body: []byte(`{"b":"` + strings.Repeat("x", 1000) + `","a":1}`)},
			{ContentType: "multipart/form-data; boundary=b", ContentEncoding: "identity", Body: parcel("b")},
		} {
			// The limit is not zero, because the garbage collector may empty a pool.
			if got := testing.AllocsPerRun(200, func() { hash(r) }); got >= 1 {
				t.Errorf("%s, %s: %v allocations", name, r.ContentType, got)
			}
		}
	}
	if got := testing.AllocsPerRun(200, func() { digest.Key("scope", "key") }); got >= 1 {
		t.Errorf("key: %v allocations", got)
	}
}

// The memory of a fingerprint does not grow with the number of fields, even if each finds something in
// every element of an array.
func TestMemoryOfFields(t *testing.T) {
	const most = 16
	if race.Enabled {
		t.Skip("the race detector has memory of its own")
	}
	for _, n := range []int{1, 5, 50} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("items.f%d", i))
		}
		f := fields(t, names...)
		for _, element := range []string{"1", "{}", `{"f1":1e20}`} {
			body := []byte(`{"items":[` + strings.Repeat(element+",", 1<<20/(len(element)+1)) + `1]}`)
			r := &digest.Request{ContentType: "application/json", Body: body}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f.Fingerprint(r)
			runtime.ReadMemStats(&after)
			if got := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(body)); got > most {
				t.Errorf("%d fields of %s: %.1f bytes for each of the body", n, element, got)
			}
		}
	}
}

// TestLargeRequestIsNotKept fingerprints a large request, and then a small one that may get the
// same memory.
func TestLargeRequestIsNotKept(t *testing.T) {
	small := &digest.Request{Method: "POST", ContentType: "application/json", Body: []byte(`{"a":1}`)}
	want := digest.JSON(small)
	large := &digest.Request{ContentType: "application/json", Body: fmt.Appendf(nil, `["%s"]`, bytes.Repeat([]byte("x"), 4<<20))}
	for range 3 {
		digest.JSON(large)
		require.Equal(t, want, digest.JSON(small))
	}
}
