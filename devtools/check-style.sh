#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Check what a compiler does not: the house style, the rules of the tree, the names of symbols.
set -u

usage() {
	cat <<'EOF'
usage: devtools/check-style.sh [--root DIR] [--build DIR]

Checks every source file of the tree and prints one line per finding: FILE:LINE: RULE: TEXT.
Exit status: 0 nothing found, 1 findings, 2 bad usage.

  --root DIR   the tree to check (default: the one this script stands in)
  --build DIR  also check the symbols of the libraries built there: every global name of a static
               library starts with crpc_ or __crpc_; the software NIC exports no mlx5_ or rte_ name

The rules are in devtools/check-style.awk, the forbidden tokens in devtools/forbidden_tokens.txt, the
words to avoid in devtools/unclear_words.txt.
EOF
}

here=$(cd "$(dirname "$0")" && pwd) || exit 2
root=$here/..
build=
while [ $# -gt 0 ]; do
	case $1 in
	--root | --build)
		[ $# -ge 2 ] || { usage >&2; exit 2; }
		[ "$1" = --root ] && root=$2
		[ "$1" = --build ] && build=$(cd "$2" && pwd)
		shift ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; echo "check-style.sh: unknown argument '$1'" >&2; exit 2 ;;
	esac
	shift
done
cd "$root" || exit 2
findings=$(mktemp) || exit 2
trap 'rm -f "$findings"' EXIT

# What git knows and what it would add; a tree without git is taken as it stands.
list_files() {
	if [ -e .git ] && git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
		git ls-files --cached --others --exclude-standard
	else
		find . -type f -not -path './.git/*' -not -path './build*' | sed 's,^[.]/,,' | sort
	fi
}

sources=()
texts=()
while read -r name; do
	[ -f "$name" ] || continue
	case $name in
	*.c | *.h | *.sh | *.awk | *.py | *.gp | .ci/run) sources+=("$name") ;;
	*/meson.build | meson.build | meson_options.txt) sources+=("$name") ;;
	usertools/*)
		case $(head -c 2 "$name") in
		'#!') sources+=("$name") ;;
		esac ;;
	esac
	case $name in
	*.svg | *.png | *.bin | LICENSE | devtools/check-style.* | devtools/unclear_words.txt | test/style/*) ;;
	*) texts+=("$name") ;;
	esac
done < <(list_files)
if [ ${#sources[@]} = 0 ]; then
	echo "check-style.sh: no sources under $PWD" >&2
	exit 2
fi

LC_ALL=C awk -v tokens="$here/forbidden_tokens.txt" -f "$here/check-style.awk" "${sources[@]}" \
	>"$findings" || { echo "check-style.sh: awk failed" >&2; exit 2; }

# Text that means something on one machine or in one tracker only.
private='(^|[^A-Za-z0-9_./-])/(home|root|work|Users)/|\.\./shared|(^|[^A-Za-z0-9_])issues? #?[0-9]'
grep -nEI "$private" "${texts[@]}" /dev/null |
	sed -E 's/^([^:]*:[0-9]+): */\1: private reference: /' >>"$findings"

# Words for which the field has better ones.
while IFS=$'\t' read -r files words instead; do
	[[ $files != '#'* && -n $words ]] || continue
	mapfile -t found < <(printf '%s\n' "${texts[@]}" | grep -E "$files")
	[ ${#found[@]} = 0 ] || grep -noEiwI "$words" "${found[@]}" /dev/null |
		sed -E "s|^([^:]*:[0-9]+):(.*)|\\1: word: '\\2' - write: $instead|" >>"$findings"
done <"$here/unclear_words.txt"

for name in "${sources[@]}"; do
	case $(head -n 1 "$name") in
	'#!/bin/bash' | '#!/usr/bin/env bash')
		bash -n "$name" || echo "$name:1: shell: does not parse" >>"$findings"
		[ -x "$name" ] || echo "$name:1: shell: is not executable" >>"$findings" ;;
	esac
done

# Links between documents lead somewhere.
check_links() {
	local name target
	for name in "${texts[@]}"; do
		case $name in
		*.md) ;;
		*) continue ;;
		esac
		grep -noE '\]\([^)# ]+' "$name" | while IFS=: read -r line target; do
			target=${target#*](}
			case $target in
			*://* | mailto*) continue ;;
			esac
			[ -e "$(dirname "$name")/$target" ] ||
				echo "$name:$line: link: $target does not exist"
		done
	done
}
check_links >>"$findings"

check_symbols() {
	local lib
	for lib in "$build"/lib/*.a "$build"/drivers/*.a; do
		[ -f "$lib" ] || continue
		nm -g --defined-only "$lib" 2>/dev/null |
			awk -v lib="${lib##*/}" 'NF == 3 && $3 !~ /^(__)?crpc_/ {
				print lib ":0: symbol: " $3 " - exported names start with crpc_"
			}'
	done
	lib=$build/drivers/soft_mlx5/libsoft_mlx5.so
	[ ! -f "$lib" ] || nm -D --defined-only "$lib" | awk '$3 ~ /^(mlx5|rte)_/ {
		print "libsoft_mlx5.so:0: symbol: " $3 " - hides the real one from a program"
	}'
}
[ -z "$build" ] || check_symbols >>"$findings"

sort -t: -k1,1 -k2,2n "$findings"
count=$(wc -l <"$findings")
echo "check-style: ${#sources[@]} files, $count findings"
[ "$count" = 0 ]
