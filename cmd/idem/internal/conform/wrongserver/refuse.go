package wrongserver

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"example.com/idempotency/problem"
)

// refuse says why a request does not run.
func (s *Server) refuse(w http.ResponseWriter, code problem.Code, recorded answer) {
	status := map[problem.Code]int{
		problem.KeyReused: http.StatusConflict, problem.InFlight: http.StatusConflict, problem.BodyTooLarge: http.StatusRequestEntityTooLarge,
	}[code]
	status = cmp.Or(status, http.StatusBadRequest)
	h := w.Header()
	switch {
	case s.is("replay-for-other") && code == problem.KeyReused:
		_, _ = io.WriteString(w, recorded.body)
		return
	case s.is("mismatch-status") && code == problem.KeyReused:
		status = http.StatusUnprocessableEntity
	case s.is("in-flight-status") && code == problem.InFlight:
		status = http.StatusTooManyRequests
	case s.is("missing-status") && code == problem.KeyMissing:
		status = http.StatusNotFound
	}
	if code == problem.InFlight && !s.is("no-retry-after") {
		h.Set("Retry-After", "1")
	}
	if !s.is("no-link") {
		h.Set("Link", `</policy>; rel="describedby"`)
	}
	if !s.is("no-code") {
		h.Set("Idempotency-Error", string(code))
	}
	if s.is("plain-refusals") {
		http.Error(w, "refused", status)
		return
	}
	doc := map[string]any{"type": "about:blank", "title": "Refused", "status": status, "code": code}
	if s.is("mismatch-shows") {
		h.Set("Content-Type", problem.ContentType)
		w.WriteHeader(status)
		fmt.Fprintf(w, "{\"title\":\"Refused\",\"status\":%d,\"code\":%q,\"first\":%s}", status, code, cmp.Or(recorded.body, "null"))
		return
	}
	if code == problem.KeyReused {
		s.show(doc, h, recorded)
	}
	h.Set("Content-Type", problem.ContentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

// show puts what defects show of the first answer into a refusal.
func (s *Server) show(doc map[string]any, h http.Header, first answer) {
	switch s.defect {
	case "mismatch-shows-text":
		doc["detail"] = "it was " + first.body
	case "mismatch-shows-field":
		h.Set("X-First", strings.TrimSpace(first.body))
	case "mismatch-shows-base64":
		doc["first"] = []byte(first.body)
	case "mismatch-shows-url":
		doc["instance"] = "/?first=" + url.QueryEscape(hex.EncodeToString([]byte(first.body)))
	case "mismatch-shows-id":
		doc["detail"] = "the key made " + strings.Split(first.body+`""""`, `"`)[3]
	case "mismatch-shows-place":
		h.Set("Location", first.header.Get("Location"))
	}
}
