#!/usr/bin/env bash
# Runs golangci-lint over all modules, in the version that .golangci.yml is written for. The script uses a binary
# of that version from the PATH, or builds one into the user's cache, once: with the linters that .golangci.yml
# names, because the others are a third of what there is to compile. The linter is not in the tools module, because
# its two hundred dependencies would then be resolved together with those of the library.
#   lint.sh            runs it; arguments go to golangci-lint run
#   lint.sh install    only makes sure that it is there
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.12.2
# A linter cannot read code for a newer Go than the one that built it.
go=$(go env GOVERSION)
go=${go%.*}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/golangci-lint-$version-$go
# The cache finds results by the content of a file, and the results contain its path. Results
# from another clone would not match the exclusions, which are paths.
export GOLANGCI_LINT_CACHE=$cache/results$PWD

fits() {
	local it
	it=$("$1" version 2>/dev/null) && [[ $it == *"version $version built with $go"* ]]
}

# The linters of the group standard, and those that .golangci.yml enables.
linters="errcheck govet ineffassign staticcheck unused $(sed -nE 's/^ +- ([a-z]+)$/\1/p' .golangci.yml | sort | paste -sd ' ')"

# build makes a linter with these, from a copy of its source without the others.
build() {
	local source copy=$cache/source list=pkg/lint/lintersdb/builder_linter.go
	source=$(cd / && GOWORK=off go mod download -json "github.com/golangci/golangci-lint/v2@v$version" |
		sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
	rm -rf "$copy"
	cp -R "$source" "$copy"
	chmod -R u+w "$copy"
	# An entry of the list ends with a blank line. Only a linter that is left out needs the replacer.
	awk -v named="$linters" '
		BEGIN { n = split(named, names); for (i = 1; i <= n; i++) wanted["/" names[i] "\""] = wanted["(" names[i] "."] = 1 }
		/^\t".*\/pkg\/golinters\/[a-z0-9]+"$/ { if (!match($0, /\/[a-z0-9]+"$/) || !(substr($0, RSTART) in wanted)) next }
		/^\tplaceholderReplacer := / { next }
		match($0, /^\t\tlinter\.NewConfig\([a-z0-9]+\./) { name = substr($0, 19, RLENGTH - 18); skip = !(name in wanted) && name != "(golinters." }
		skip { if (NF == 0) skip = 0; next }
		{ print }' "$source/$list" >"$copy/$list"
	(cd "$copy" && GOWORK=off GOFLAGS='' go build -ldflags "-s -w -X main.version=$version -X main.date=pinned" -o "$linter" ./cmd/golangci-lint)
	rm -rf "$copy"
}

linter=$(command -v golangci-lint || true)
if [ -z "$linter" ] || ! fits "$linter"; then
	linter=$cache/bin/golangci-lint-$(cksum <<<"$linters" | cut -d ' ' -f 1)
	if ! fits "$linter"; then
		echo "building golangci-lint $version into $cache/bin (minutes)"
		build
	fi
fi

if [ "${1:-}" = install ]; then
	echo "$linter"
	exit
fi
mapfile -t packages < <(go list -m -f '{{.Dir}}/...')
"$linter" run "$@" "${packages[@]}"
