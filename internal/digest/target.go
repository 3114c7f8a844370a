package digest

import (
	"net/url"
	"strings"
)

// IsLeft reports whether a path, which is not escaped, and a query are what handlers leave of a target that
// a client has sent: the end of its path, and parameters of its query that stand together. A slash at the
// end of a path does not count, because routers add and remove it.
func IsLeft(sentPath, sentQuery, path, query string) bool {
	if sentPath == path && sentQuery == query && strings.IndexByte(path, '%') < 0 { // as most requests have it
		return true
	}
	plain, _ := url.PathUnescape(sentPath) // no server reads a target that cannot be
	return strings.HasSuffix(strings.TrimRight(plain, "/"), strings.TrimRight(path, "/")) &&
		(query == "" || query == sentQuery || strings.Contains("&"+sentQuery+"&", "&"+query+"&"))
}
