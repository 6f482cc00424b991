#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that the scripts that call git work in a tree without .git, as a tarball has it, also if that
# lies within another repository, or end in a line that says what to do.
# Argument: the source tree.
set -u

source=$1
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
failures=0

check() { # WHAT, and whether the command before succeeded
	[ "$2" = 0 ] && echo "ok: $1" && return
	echo "FAIL: $1"
	failures=$((failures + 1))
}

command -v git >/dev/null || { echo "git is not installed"; exit 77; }
mkdir "$tmp/tree"
# The scripts, and what they read: the style of a whole tree takes a minute.
(cd "$source" && tar -c VERSION devtools/* apps/common test/mutants lib/rpc) | tar -x -C "$tmp/tree" || exit 99
git -C "$tmp" init -q && git -C "$tmp" -c user.name=a -c user.email=a@b commit -q --allow-empty -m outer || exit 99
cd "$tmp/tree" || exit 99

# What meson runs for the commit of result lines: it must fail, for then the fallback is taken.
command="git $(sed -n "s/^app_describe = \[\(.*\)\]$/\1/p" apps/common/meson.build | tr -d "',")"
[[ $command == *describe* ]]
check "the command that finds the commit: $command" $?
read -ra words <<<"$command"
! "${words[@]}" >"$tmp/out" 2>&1 || { cat "$tmp/out"; false; }
check "the commit of another repository is not taken" $?
devtools/check-style.sh >"$tmp/out" 2>&1 || { cat "$tmp/out"; false; }
check "check-style.sh" $?
devtools/size.sh >"$tmp/out" 2>&1
[ $? != 0 ] && [ "$(wc -l <"$tmp/out")" = 1 ] && grep -q 'run it in a clone' "$tmp/out"
check "size.sh says what it needs" $?
devtools/bare.sh --no-such-option >/dev/null 2>&1
[ $? = 2 ]
check "bare.sh reads its options" $?
# Faults planted in a copy of the tree: the copy is whole.
printf '#!/bin/sh\nexit 1\n' >"$tmp/meson" && chmod +x "$tmp/meson"
PATH=$tmp:$PATH devtools/mutants.sh --dir "$tmp/copy" >"$tmp/out" 2>&1
diff -r "$tmp/tree" "$tmp/copy/tree" >"$tmp/diff" || { head "$tmp/diff" "$tmp/out"; false; }
check "mutants.sh copies the tree" $?
[ $failures = 0 ]
