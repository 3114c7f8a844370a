package response

import "net/http"

// BodyAllowed reports whether an answer with this status may have a body
// (RFC 9110 section 6.4.1).
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// KeepsMethod reports whether a status tells the client to make the same request elsewhere.
func KeepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// TurnsAway reports whether a status says that nothing was done, and that the same request may come again:
// with credentials, over another connection, or later.
func TurnsAway(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

// GivesUp reports whether a status only says that somebody has given up waiting: the work may go on. With 499,
// proxies and grpc-gateway say it of the client.
func GivesUp(status int) bool { return status == http.StatusRequestTimeout || status == 499 }
