#!/usr/bin/env bash
# Runs golangci-lint over all modules, in the version that .golangci.yml is written for. The
# script uses a binary of that version from the PATH, or builds one into the user's cache,
# once. The linter is not in the tools module, because its two hundred dependencies would then
# be resolved together with those of the library.
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

linter=$(command -v golangci-lint || true)
if [ -z "$linter" ] || ! fits "$linter"; then
	linter=$cache/bin/golangci-lint
	if ! fits "$linter"; then
		echo "building golangci-lint $version into $cache/bin (minutes)"
		GOBIN=$cache/bin GOWORK=off GOFLAGS='' \
			go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$version"
	fi
fi

if [ "${1:-}" = install ]; then
	echo "$linter"
	exit
fi
mapfile -t packages < <(go list -m -f '{{.Dir}}/...')
# A fifth of what it computed was for the collection of garbage. Near 4 GiB it collects as often as it must.
export GOGC=400 GOMEMLIMIT=4GiB
"$linter" run "$@" "${packages[@]}"
