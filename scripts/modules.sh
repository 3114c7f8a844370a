#!/usr/bin/env bash
# Prints the directories of the repository's modules, one on each line.
#   modules.sh            all of them
#   modules.sh released   those that are tagged and imported by others
set -euo pipefail
cd "$(dirname "$0")/.."
awk -v only="${1:-}" '!/^#/ && NF && (only != "released" || $2 == "yes") { print $1 }' modules.txt
