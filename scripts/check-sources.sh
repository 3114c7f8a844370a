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

# In functions with synctest or a Bubble, and in these folders, the tests run in bubbles, where the clock is controlled: a
# sleep takes no time. Functions that those call say so on the line, "of the bubble". The others are of tests with servers,
# processes and kernels, whose clock is the machine's.
# shellcheck disable=SC2016 # $0 is awk's
naps=$(git ls-files '*_test.go' ':!internal/simulation' ':!internal/policytest' ':!store/storetest' | xargs awk '
	/^func /                                       { lines = ""; bubble = 0 }
	/synctest\.|Bubble/                            { bubble = 1 }
	/time\.Sleep\(/ && !/of the bubble/            { lines = lines FILENAME ":" FNR ":" $0 "\n" }
	/^}/ && lines != "" && !bubble                 { printf "%s", lines }
	/^}/                                           { lines = ""; bubble = 0 }')
most=30
if grep -v ' // ' <<<"$naps" || [ "$(wc -l <<<"$naps")" -gt "$most" ]; then
	printf '%s\n' "tests wait for the thing itself. Where they must sleep in real time, a comment on the line says why, and at most $most do:" "$naps"
	failed=1
fi

if command -v shellcheck >/dev/null; then
	shellcheck .ci/run scripts/*.sh || failed=1
fi
go run ./tools/mutants -check || failed=1
exit "$failed"
