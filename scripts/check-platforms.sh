#!/usr/bin/env bash
# Checks the root module on platforms other than this one: tools/platforms type-checks the library and its tests
# for windows/386, where an int has 32 bits, for macOS and for FreeBSD. On linux/386 the tests of stored forms run.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

try=$(mktemp)
trap 'rm -f "$try"' EXIT
go build -o "$try" ./tools/platforms
for platform in windows/386 darwin/arm64 freebsd/amd64; do
	echo "types $platform"
	GOOS=${platform%/*} GOARCH=${platform#*/} "$try" ./...
done
if [ "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" != linux/amd64 ]; then
	echo "a $(go env GOHOSTOS)/$(go env GOHOSTARCH) machine does not run linux/386: tests left out"
	exit
fi
# A kernel may be built or started without 32-bit programs.
GOOS=linux GOARCH=386 go test -c -o "$try" ./internal/aesgcm
rc=0
"$try" -test.run='^$' >/dev/null 2>&1 || rc=$?
if [ "$rc" -eq 126 ]; then # exec format error
	echo "this kernel does not run linux/386: tests left out"
	exit
fi
# The packages in which the size of an int could matter: what reads and writes stored forms. Without optimization
# most compile in half the time; what it saves of allocations is not for here.
echo "test linux/386"
GOOS=linux GOARCH=386 go test -vet=off -gcflags='example.com/idempotency/...=-N -l -dwarf=false' \
	-gcflags='example.com/idempotency/internal/jcs=-dwarf=false' -skip=Alloc \
	./internal/{aesgcm,answer,digest,history,jcs,keyheader,redisproto,response,watch} ./internal/engine/{note,seal}
