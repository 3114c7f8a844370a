#!/usr/bin/env bash
# Checks the root module on platforms other than this one. Vet compiles the library and its tests for
# windows/386, where an int has 32 bits. For macOS and FreeBSD, which differ from Linux in little, it compiles
# the packages that ask for the platform, and those below them. On linux/386 the tests of stored forms run.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

# Nobody runs what is compiled for these. Without optimization it takes half the time.
echo "vet windows/386"
GOOS=windows GOARCH=386 go vet -gcflags='-N -l' ./...
for platform in darwin/arm64 freebsd/amd64; do
	export GOOS=${platform%/*} GOARCH=${platform#*/}
	mapfile -t asking < <(
		go list -f '{{.ImportPath}} {{.IgnoredGoFiles}} {{.Imports}} {{.TestImports}} {{.XTestImports}}' ./... |
			grep -E '\.go\b|\b(syscall|golang\.org/x/sys)\b' | cut -d ' ' -f 1
	)
	echo "vet $platform: ${#asking[@]} packages"
	[ ${#asking[@]} -ge 8 ] # more than that have files for some platforms only
	go vet -gcflags='-N -l' "${asking[@]}"
done
unset GOOS GOARCH
if [ "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" != linux/amd64 ]; then
	echo "a $(go env GOHOSTOS)/$(go env GOHOSTARCH) machine does not run linux/386: tests left out"
	exit
fi
# A kernel may be built or started without 32-bit programs.
try=$(mktemp)
trap 'rm -f "$try"' EXIT
GOOS=linux GOARCH=386 go test -c -o "$try" ./internal/aesgcm
rc=0
"$try" -test.run='^$' >/dev/null 2>&1 || rc=$?
if [ "$rc" -eq 126 ]; then # exec format error
	echo "this kernel does not run linux/386: tests left out"
	exit
fi
# The packages in which the size of an int could matter: what reads and writes stored forms.
echo "test linux/386"
GOOS=linux GOARCH=386 go test -vet=off ./internal/{aesgcm,digest,jcs,keyheader,redisproto,response,watch}
