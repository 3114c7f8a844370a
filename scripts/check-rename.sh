#!/usr/bin/env bash
# Renames the modules of a copy of the tree: all imports must be found under the new path, the root must compile,
# and nothing may be left of the old path.
set -euo pipefail
cd "$(dirname "$0")/.."
old=$(GOWORK=off go list -m)
# Sorts behind its neighbours in imports and go.mod files, and its last element is not
# the name of the package.
new=zeta.example.org/team/safe-retries

# Always in the same place: the Go cache has what has not changed since the last check, and does not grow by
# a copy each time.
copy=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/renamed$PWD
rm -rf "$copy"
mkdir -p "$copy"
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do
		if [ -e "$file" ]; then printf '%s\0' "$file"; fi
	done | tar --null -T - -cf - | tar -xf - -C "$copy"
cd "$copy"

commit() {
	git add -A
	git -c user.name=check -c user.email=check@example.org -c commit.gpgsign=false commit -qm "$1"
}
refuses() {
	if scripts/rename-module.sh "$@" >/dev/null 2>&1; then
		echo "rename-module.sh accepts: $*"
		exit 1
	fi
}
git init -q
commit "before"

for bad in '' name example.org 'example.org/a b' /abs/path example.org/a/ example.org//a \
	../up.example/a https://example.org/a example.org/a/v2 "example.org/a';b"; do
	refuses "$bad"
done
echo >>modules.txt
refuses "$new"
git checkout -q modules.txt
if [ -n "$(git status --porcelain)" ]; then
	echo "rename-module.sh has changed what it refused to change"
	exit 1
fi

scripts/rename-module.sh "$new"
commit "after"
left=$(git grep -nIF "$old" | grep -vE "(//|[[:alnum:]_.-])${old}|${old}[[:alnum:]_-]" || true)
if [ -n "$left" ]; then
	printf '%s\n' "left of the old path:" "$left"
	exit 1
fi
scripts/rename-module.sh "$new"
if [ -n "$(git status --porcelain)" ]; then
	echo "renaming twice is not the same as renaming once"
	exit 1
fi
unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	printf '%s\n' "not formatted after it:" "$unformatted"
	exit 1
fi
# A name changes nothing but imports, so that a list of all of them proves as much as compiling all packages.
go list -deps -test work >/dev/null
go build -gcflags='-N -l' .
for dir in $(scripts/modules.sh); do
	(cd "$dir" && GOWORK=off go mod tidy -diff)
done
