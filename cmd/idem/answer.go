package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
)

// given is the answer that a decision gives.
type given struct {
	status     int
	header     []string
	body, file string
}

func (g *given) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&g.status, "status", 0, "final: the status of the answer")
	f.StringArrayVar(&g.header, "header", nil, `final: a field of the answer, "Name: value"`)
	f.StringVar(&g.body, "body", "", "final: the body of the answer, or the value of a job in its codec")
	f.StringVar(&g.file, "answer", "", "final: a file with the whole answer, as curl -i prints it; - is the standard input")
}

// to completes a resolution that a word names. The library says whether it fits.
func (g *given) to(res *idempotency.Resolution, word string, in io.Reader) error {
	outcome, known := inspect.Outcomes[word]
	res.Outcome, res.Status, res.Body, res.Header = outcome, g.status, []byte(g.body), http.Header{}
	switch {
	case !known:
		return usage("%q is not a decision: say final, not-executed or resume", word)
	case outcome == idempotency.Final && g.status == 0 && g.file == "":
		return usage("final needs the answer that retries get: --status with --body, or --answer")
	case outcome != idempotency.Final && (g.file != "" || g.status != 0 || g.body != "" || len(g.header) > 0):
		return usage("%s records no answer: leave --status, --header, --body and --answer out", word)
	case g.file != "" && (g.status != 0 || g.body != "" || len(g.header) > 0):
		return usage("--answer is the whole answer: leave --status, --header and --body out")
	case g.file == "-":
		return read(res, in)
	case g.file != "":
		f, err := os.Open(g.file)
		if err != nil {
			return usage("--answer: %w", err)
		}
		defer func() { _ = f.Close() }()
		return read(res, f)
	}
	for _, line := range g.header {
		name, value, isField := strings.Cut(line, ":")
		if !isField {
			return usage("--header is %q, and must be like Location: /orders/1", line)
		}
		switch name = http.CanonicalHeaderKey(strings.TrimSpace(name)); name {
		case "Authorization", "Proxy-Authorization", "Cookie": // clients would get it
			return usage("--header: %s is a field of a request, and not of an answer. What --server is to get goes into --server-header", name)
		}
		res.Header.Add(name, strings.TrimSpace(value))
	}
	if says := contradiction(res.Header, res.Body); says != "" {
		return usage("--header: %s", says)
	}
	return nil
}

// mostAnswer is how large an answer may be that somebody gives by hand.
const mostAnswer = 16 << 20

// read reads a whole answer, as curl -i prints it: what it says of its own transfer does not count.
func read(res *idempotency.Resolution, in io.Reader) error {
	all := &io.LimitedReader{R: in, N: mostAnswer}
	text := bufio.NewReader(all)
	line, err := text.ReadString('\n')
	if _, scanErr := fmt.Sscanf(line, "HTTP/%s %d", new(string), &res.Status); err != nil || scanErr != nil {
		return usage("--answer begins with %.40q, and not with a line like HTTP/1.1 201 Created", line)
	}
	fields, err := textproto.NewReader(text).ReadMIMEHeader()
	if err != nil {
		return usage("--answer: %w", err)
	}
	res.Header = http.Header(fields)
	if res.Body, err = io.ReadAll(text); err != nil {
		return err
	}
	if all.N == 0 {
		return usage("--answer is larger than %d MiB", mostAnswer>>20)
	}
	if says := contradiction(res.Header, res.Body); says != "" {
		return usage("--answer: %s", says)
	}
	res.Header.Del("Content-Length")
	res.Header.Del("Transfer-Encoding")
	return nil
}

var (
	otherHead = regexp.MustCompile(`^\s*HTTP/[0-9.]+ [0-9]{3}.*`)
	lastChunk = []byte("0\r\n\r\n")
	gzipMagic = []byte("\x1f\x8b")
)

// contradiction says why a body is not the one that the head before it describes, and what to do, or is empty.
func contradiction(head http.Header, body []byte) string {
	coding, length := strings.ToLower(head.Get("Content-Encoding")), head.Values("Content-Length")
	isCoded := coding != "" && coding != "identity" && len(body) > 0
	switch {
	case otherHead.Match(body):
		return fmt.Sprintf("the body begins with another head, %q. Leave only the answer that a client of the service would have got: behind a proxy, "+
			"call curl with --suppress-connect-headers; leave -L out, because clients follow a redirect themselves; delete a head of 1xx, and that of a challenge",
			strings.TrimSpace(string(otherHead.Find(body))))
	case strings.EqualFold(head.Get("Transfer-Encoding"), "chunked") && bytes.HasSuffix(body, lastChunk):
		return "the body is in chunks, and would be recorded with their lengths: call curl without --raw"
	case isCoded && (utf8.Valid(body) || strings.Contains(coding, "gzip") && !bytes.HasPrefix(body, gzipMagic)):
		return fmt.Sprintf("Content-Encoding is %s, and the body is not in it: call curl without --compressed, or delete the field", coding)
	case len(length) > 0 && length[0] != strconv.Itoa(len(body)):
		return fmt.Sprintf("Content-Length is %s, and the body has %d bytes. If it is whole and the only one, delete the field", length[0], len(body))
	}
	return ""
}
