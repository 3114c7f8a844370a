#!/usr/bin/env bash
# Checks the files alone: Go files are formatted, the table of mutants and docs/reference/protections.md
# match the source, and scripts pass shellcheck if that is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.go')
unformatted=$(gofmt -l "${files[@]}")
if [ -n "$unformatted" ]; then
	printf 'not formatted with gofmt: %s\n' "$unformatted"
	failed=1
fi

if command -v shellcheck >/dev/null; then
	shellcheck .ci/run scripts/*.sh || failed=1
fi
go run ./tools/mutants -check || failed=1
exit "$failed"
