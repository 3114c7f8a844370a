#!/usr/bin/env bash
# Checks the files alone: Go files are formatted, tests that sleep in real time say why, the table of mutants
# and docs/reference/protections.md match the source, and scripts pass shellcheck if that is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.go')
unformatted=$(gofmt -l "${files[@]}")
if [ -n "$unformatted" ]; then
	printf 'not formatted with gofmt: %s\n' "$unformatted"
	failed=1
fi

# In files with synctest, and in these two folders, the tests run in bubbles, where the clock is controlled.
naps=$(git grep -L 'testing/synctest' -- '*_test.go' ':!internal/simulation' ':!internal/policytest' |
	xargs grep -n 'time\.Sleep(' | grep -v ' // ' || true)
if [ -n "$naps" ]; then
	printf '%s\n' 'tests wait for the thing itself; where they must sleep, a comment on the line says why:' "$naps"
	failed=1
fi

if command -v shellcheck >/dev/null; then
	shellcheck .ci/run scripts/*.sh || failed=1
fi
go run ./tools/mutants -check || failed=1
exit "$failed"
