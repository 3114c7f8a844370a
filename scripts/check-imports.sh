#!/usr/bin/env bash
# Checks what a program links that uses the root module: the standard library and go-redis,
# and go-redis only through store_redis.go, internal/redisstore and internal/redisclient. Tests
# may import more.
set -euo pipefail
cd "$(dirname "$0")/.."
redis=github.com/redis/go-redis/v9
module=$(GOWORK=off go list -m)
failed=0

# The packages that a user can import or run, and the packages of the module that these
# import. Packages that only tests use are not among them.
public=$(go list ./... | grep -v /internal/)
# shellcheck disable=SC2086 # one argument for each package
linked=$(go list -deps $public | grep -E "^$module(/|\$)")
# shellcheck disable=SC2086
imports=$(go list -f '{{range .Imports}}{{$.ImportPath}} {{.}}{{"\n"}}{{end}}' $linked)
while read -r pkg import; do
	case $import in
	"$module" | "$module"/*) continue ;;
	"$redis")
		# internal/redisproto, for one, is linked and must not import it.
		case $pkg in
		"$module"/internal/redisstore | "$module"/internal/redisclient) continue ;;
		"$module"/internal/*) ;;
		*) continue ;;
		esac ;;
	esac
	# No path of the standard library has a dot in its first element.
	if [[ ${import%%/*} == *.* ]]; then
		echo "$pkg imports $import: only the standard library is allowed, and $redis in store_redis.go, internal/redisstore and internal/redisclient"
		failed=1
	fi
done <<<"$imports"

# A program that is only a client links no store.
if go list -deps ./client | grep -xF -e "$module" -e "$redis"; then
	echo "client imports the library with its stores"
	failed=1
fi

# A store knows the contract of stores, and not the guard that calls it.
if go list -deps ./internal/memory ./internal/redisstore | grep -xF "$module"; then
	echo "a store imports the library that calls it"
	failed=1
fi

# go list knows the imports of packages, not of files.
importers=$(git grep --untracked -lF "\"$redis" -- '*.go' ':!*_test.go' ':!internal' ':!examples' || true)
while read -r file; do
	if [[ -n $file && $file != store_redis.go ]]; then
		echo "$file imports go-redis: only store_redis.go and the examples may"
		failed=1
	fi
done <<<"$importers"
exit "$failed"
