#!/usr/bin/env bash
# Tests the modules for frameworks with the newest versions of what they require, in a copy of the
# tree. What cannot be downloaded stays as it is; without network nothing can, and the check
# passes. Both are said.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t modules < <(scripts/modules.sh released | grep 'idempotency$')
if ! GOWORK=off GOFLAGS=-mod=mod timeout 30 go list -m -versions github.com/stretchr/testify >/dev/null 2>&1; then
	echo "no module proxy can be reached; nothing was tested"
	exit 0
fi

# Always in the same place: the Go cache has what has not changed since the last check, and does not grow by
# a copy each time.
copy=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/newest$PWD
rm -rf "$copy"
mkdir -p "$copy"
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do
		if [ -e "$file" ]; then printf '%s\0' "$file"; fi
	done | tar --null -T - -cf - | tar -xf - -C "$copy"

export GOWORK=off
failed=0
for dir in "${modules[@]}"; do
	cd "$copy/$dir"
	# What the module itself requires, but for the library.
	mapfile -t required < <(go list -m -f '{{if not (or .Main .Indirect .Replace)}}{{.Path}}{{end}}' all | grep .)
	for path in "${required[@]}"; do
		go get "$path@latest" 2>"$copy/errors" || {
			tail -n 1 "$copy/errors"
			echo "$dir: the newest $path cannot be downloaded, and is not tested"
		}
	done
	go list -m "${required[@]}"
	# Half the time goes into compiling: without optimization it is less.
	if ! go mod tidy || ! go test -vet=off -gcflags='-N -l' -count=1 -timeout 3m ./...; then
		echo "$dir does not work with these"
		failed=1
	fi
done
exit "$failed"
