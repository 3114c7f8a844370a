#!/usr/bin/env bash
# Checks what the workspace hides: modules.txt, go.work and the go.mod files agree, and each
# module is tidy, and vets, and so compiles, by itself.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

there=$(git ls-files --cached --others --exclude-standard go.mod '*/go.mod' |
	xargs -n 1 dirname | sort | paste -sd ' ')
listed=$(scripts/modules.sh | sort | paste -sd ' ')
used=$(go work edit -json | sed -n 's/.*"DiskPath": "\(.*\)".*/\1/p' |
	sed 's,^\./,,' | sort | paste -sd ' ')
if [ "$there" != "$listed" ] || [ "$there" != "$used" ]; then
	printf '%s\n' "modules differ:" "  go.mod files: $there" "  modules.txt:  $listed" "  go.work:      $used"
	failed=1
fi

# Users of a module inherit its requirements. A program cannot be installed by version from a
# module with replacements, and tools belong to the tools module.
if grep -E '^(replace|exclude|tool|toolchain)\b' go.mod; then
	echo "go.mod: the root module has no such lines"
	failed=1
fi

# Otherwise, go doc and go list rewrite it in a fresh clone.
sums=$(git hash-object go.work.sum)
go list -m all >/dev/null
if [ "$sums" != "$(git hash-object go.work.sum)" ]; then
	echo "go.work.sum was incomplete: run go mod download, and commit the file"
	failed=1
fi

# Where they differ, everything is compiled once for the workspace and once for each module.
versions() { go list -deps -test -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' ./... | sort -u; }
if ! diff <(GOWORK=off versions) <(versions); then
	echo "go.mod has other versions than the workspace: go get these, and run make tidy"
	failed=1
fi

export GOWORK=off
for dir in $listed; do
	echo "$dir"
	(cd "$dir" && go mod tidy -diff && go vet ./...) || failed=1
done
exit "$failed"
