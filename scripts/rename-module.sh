#!/usr/bin/env bash
# Gives every module of the repository another path:
#   scripts/rename-module.sh [--force] NEW/PATH
# It rewrites the path in go.mod files, imports, documentation and settings: in every text
# file that git does not ignore. It leaves alone a URL with the same host and path
# (https://example.com/…).
#
# It refuses to work on uncommitted changes unless it is forced, so you can review and undo
# its changes. A second run changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
	printf '%s\n' "$@" >&2
	exit 1
}

force=
if [ "${1:-}" = --force ]; then
	force=1
	shift
fi
[ $# -eq 1 ] || die "usage: scripts/rename-module.sh [--force] NEW/PATH"
new=$1
old=$(GOWORK=off go list -m)

word='[A-Za-z0-9_~-]+'
[[ $new =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+(/$word(\.$word)*)+$ ]] ||
	die "$new is not a module path such as host.example/team/name"
[[ ! $new =~ /v[0-9]+$ ]] ||
	die "$new ends in a major version: that comes with a release, not with a name"
if [ "$new" = "$old" ]; then
	echo "the module is called $old already"
	exit
fi
if [ -z "$force" ] && [ -n "$(git status --porcelain)" ]; then
	die "there are uncommitted changes; commit them first, or use --force"
fi

mapfile -d '' -t files < <(git grep --untracked -lzIF "$old")
OLD=$old NEW=$new perl -pi -e '
	s{(?<![\w.-])(?<!//)\Q$ENV{OLD}\E(?![\w-])}{$ENV{NEW}}g' "${files[@]}"

# The new path sorts elsewhere among its neighbours.
for file in "${files[@]}"; do
	case $file in
	*.go) gofmt -w "$file" ;;
	go.mod | */go.mod) go mod edit -fmt "$file" ;;
	esac
done
echo "$old is now $new in ${#files[@]} files"
