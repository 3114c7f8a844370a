#!/usr/bin/env bash
# Checks the files alone: Go files are formatted and have at most 500 lines, the table of
# mutants and docs/guarantees.md match the source, and scripts pass shellcheck if that is
# installed.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.go')
unformatted=$(gofmt -l "${files[@]}")
if [ -n "$unformatted" ]; then
	printf 'not formatted with gofmt: %s\n' "$unformatted"
	failed=1
fi

for file in "${files[@]}"; do
	lines=$(wc -l <"$file")
	if [ "$lines" -gt 500 ]; then
		echo "$file has $lines lines; the limit is 500"
		failed=1
	fi
done

if command -v shellcheck >/dev/null; then
	shellcheck .ci/run scripts/*.sh || failed=1
fi
go run ./tools/mutants -check || failed=1
exit "$failed"
