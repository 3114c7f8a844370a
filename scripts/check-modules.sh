#!/usr/bin/env bash
# Checks what the workspace hides: modules.txt, go.work and the go.mod files agree, and each
# module is tidy, and has by itself what it has in the workspace.
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

# With the versions of the workspace, a module builds as it does there, so that nothing is compiled twice: tests
# and lint.sh compile and vet all of it. go list fails if an import is found in no requirement.
versions() { go list -deps -test -f '{{with .Module}}{{if .Version}}{{if not .Replace}}{{.Path}} {{.Version}}{{end}}{{end}}{{end}}' "$@" | sort -u; }
workspace=$(versions work)

# by_itself checks the module in a directory.
by_itself() {
	local own other
	cd "$1" && go mod tidy -diff && own=$(versions ./...) || return
	other=$(comm -23 <(echo "$own") <(echo "$workspace"))
	[ -z "$other" ] || {
		printf '%s\n' "versions that the workspace does not have; run go work sync, and make tidy:" "$other"
		return 1
	}
}

export GOWORK=off
for dir in $listed; do
	echo "$dir"
	(by_itself "$dir") || failed=1
done
exit "$failed"
