#!/usr/bin/env bash
# Checks what a release needs beside make check: what has changed in the API of the released modules since the
# last tag is told in the changelog, and the modules require each other, and Go, in the same version. Until there
# is a tag it compares with the commit of scripts/check-versions.sh. It prints the changes of the API; it needs
# the network once, for apidiff.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
complain() {
	printf '%s\n' "$@" >&2
	failed=1
}

base=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || sed -n 's/^earlier=//p' scripts/check-versions.sh)
apidiff=golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4
dir=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/released$PWD # the Go cache knows what is in it
rm -rf "$dir"
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/base"
git archive "$base" | tar -x -C "$dir/base"
GOBIN=$dir GOWORK=off GOFLAGS='' go install "$apidiff"

# api writes the exported names of the module in a directory to a file.
api() { (cd "$1" && GOWORK=off "$dir/apidiff" -m -w "$2" "$(GOWORK=off go list -m)" 2>&1) | quiet; }
quiet() { grep -v '^Ignoring internal package' || true; }

echo "the API since $base:"
changed=0 broken=0
while read -r module; do
	if ! [ -e "$dir/base/$module/go.mod" ]; then
		printf '%s\n' "$module is a new module, or has another place"
		changed=1
		continue
	fi
	api "$module" "$dir/new"
	api "$dir/base/$module" "$dir/old"
	"$dir/apidiff" -m "$dir/old" "$dir/new" 2>&1 | quiet >"$dir/diff"
	[ -s "$dir/diff" ] || continue
	printf '%s\n' "$module"
	cat "$dir/diff"
	changed=1
	! grep -q '^Incompatible changes' "$dir/diff" || broken=1
done < <(scripts/modules.sh released)

# The newest section of the changelog, without its heading.
news=$(awk '/^## / { if (inside) exit; inside = 1; next } inside' CHANGELOG.md)
heading=$(grep -m 1 '^## ' CHANGELOG.md)
if [ "$changed" = 1 ] && ! grep -q '^- ' <<<"$news"; then
	complain "the API has changed, and CHANGELOG.md has nothing under \"$heading\""
fi
if [ "$broken" = 1 ] && ! grep -qE '^### (Changed|Removed)' <<<"$news"; then
	complain "programs break, and CHANGELOG.md has neither Changed nor Removed under \"$heading\""
fi

mapfile -t files < <(scripts/modules.sh | sed 's,$,/go.mod,')
ours=$(GOWORK=off go list -m)
versions=$(sed -nE "s,^(require )?\s*$ours(/\S+)? (v\S+).*,\3,p" "${files[@]}" | sort -u)
[ "$(wc -l <<<"$versions")" -eq 1 ] || complain "the modules require each other in more than one version:" "$versions"
gos=$(sed -nE 's/^go //p' "${files[@]}" | sort -u)
[ "$(wc -l <<<"$gos")" -eq 1 ] || complain "the modules require more than one version of Go:" "$gos"
released=$(sed -nE 's/^## \[([0-9.]+)\].*/v\1/p' <<<"$heading")
if [ -n "$released" ] && [ "$versions" != "$released" ]; then
	complain "CHANGELOG.md is about $released, and the modules require each other as $versions"
fi
exit "$failed"
