#!/usr/bin/env bash
# Checks the root module on platforms other than this one. Vet compiles the library and its tests
# on each. On linux/386, where an int has 32 bits, the tests of stored forms run too.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

# Nobody runs what is compiled for these. Without optimization it takes half the time.
for platform in windows/amd64 darwin/arm64 freebsd/amd64; do
	echo "vet $platform"
	GOOS=${platform%/*} GOARCH=${platform#*/} go vet -gcflags='-N -l' ./...
done
echo "vet and test linux/386"
GOOS=linux GOARCH=386 go vet ./...
if [ "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" != linux/amd64 ]; then
	echo "a $(go env GOHOSTOS)/$(go env GOHOSTARCH) machine does not run linux/386: tests left out"
	exit
fi
# The packages in which the size of an int could matter: what reads and writes stored forms.
GOOS=linux GOARCH=386 go test ./internal/{aesgcm,digest,jcs,keyheader,redisproto,response,watch}
