#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Run the commands of pages, as a reader does who types what they say.
set -u -o pipefail

usage() {
	cat <<'EOF'
usage: devtools/follow.sh [PAGE.md...]

Runs the code blocks that start with ```sh run, in the order of the pages, in the root of the tree;
devtools/bare.sh does so on a machine that has never seen the project. A block ends at its first command
that fails, and so does this. Default: the README, the tutorial, and how to get started.
EOF
}

cd "$(dirname "$0")/.." || exit 1
case ${1:-} in
-h | --help) usage; exit 0 ;;
-*) usage >&2; exit 2 ;;
esac
[ $# != 0 ] || set -- README.md doc/guides/tutorial.md doc/guides/getting_started.md
blocks=0
for page in "$@"; do
	# The blocks of a page, each ended by a zero byte.
	while IFS= read -r -d '' block; do
		echo "==== follow: $page"
		bash -e -v <<<"$block" || { echo "follow.sh: $page: the block above fails" >&2; exit 1; }
		blocks=$((blocks + 1))
	done < <(awk '/^```sh run$/ { on = 1; next } on && /^```$/ { on = 0; printf "%c", 0; next } on' "$page")
done
[ $blocks != 0 ] || { echo "follow.sh: no page has a block that starts with \`\`\`sh run" >&2; exit 1; }
echo "follow: $blocks blocks"
