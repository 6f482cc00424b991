#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Plant known faults, one at a time, and see that the contract tests find each.
set -u

usage() {
	cat <<'EOF'
usage: devtools/mutants.sh [--dir DIR] [--jobs N] [MUTANT...]

Applies each patch of test/mutants (or those named, without .patch) to a copy of HEAD, builds the
contract tests that the patch names and runs them. Prints which test finds the fault.
Exit status: 0 each fault was found; 1 one was not, or its patch does not apply or build; 2 bad usage.

  --dir DIR   where the copy lies and stays (default: a new folder, removed at the end)
  --jobs N    parallel jobs (default: one per core)
EOF
}

root=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
dir=
jobs=$(nproc)
while [ $# -gt 0 ]; do
	case $1 in
	--dir | --jobs)
		[ $# -ge 2 ] || { usage >&2; exit 2; }
		case $1 in
		--dir) dir=$2 ;;
		--jobs) jobs=$2 ;;
		esac
		shift ;;
	-h | --help) usage; exit 0 ;;
	-*) usage >&2; echo "mutants.sh: unknown argument '$1'" >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done
names=("$@")
if [ $# = 0 ]; then
	for patch in "$root"/test/mutants/*.patch; do
		names+=("$(basename "$patch" .patch)")
	done
fi
for name in "${names[@]}"; do
	[ -f "$root/test/mutants/$name.patch" ] && continue
	echo "mutants.sh: no test/mutants/$name.patch" >&2
	exit 2
done

if [ -z "$dir" ]; then
	dir=$(mktemp -d) || exit 1
	trap 'rm -rf "$dir"' EXIT
fi
mkdir -p "$dir/tree" && dir=$(cd "$dir" && pwd -P) || exit 1
git -C "$root" archive HEAD | tar -x -C "$dir/tree" || exit 1

# The tests that the mutants $@ name.
tests_of() {
	(cd "$root/test/mutants" && sed -n 's/^tests: //p' "${@/%/.patch}" | tr ' ' '\n' | sort -u)
}

# Build the tests $@ in the copy.
build() {
	"$dir/tree/devtools/build.sh" --jobs "$jobs" \
		$(printf -- '--target test/contract/%s ' "$@") >"$dir/log" 2>&1
}

# Run the tests $@ until one fails, hangs or crashes; prints where.
first_failure() {
	local test rc
	for test in "$@"; do
		timeout 60 "$dir/tree/build/test/contract/$test" >"$dir/log" 2>&1
		rc=$?
		[ $rc = 0 ] && continue
		sed -n 's/^.*FAILED  \] \([a-z_]*\)$/\1/p' "$dir/log" | head -1 | grep . ||
			echo "$(sed -n 's/^.*RUN  *\] //p' "$dir/log" | tail -1) (exit status $rc)"
		return
	done
}

# Plant the mutant $1; prints what finds it. False if nothing does.
plant() {
	local tests found
	mapfile -t tests < <(tests_of "$1")
	if ! patch -s -p1 -F3 --no-backup-if-mismatch -r - -d "$dir/tree" \
		<"$root/test/mutants/$1.patch" >"$dir/log" 2>&1; then
		echo "the patch does not apply"
		return 1
	fi
	build "${tests[@]}" || { echo "it does not build"; return 1; }
	found=$(first_failure "${tests[@]}")
	echo "${found:-it survives}"
	[ -n "$found" ]
}

mapfile -t all < <(tests_of "${names[@]}")
if ! build "${all[@]}"; then
	tail -20 "$dir/log" >&2
	echo "mutants.sh: HEAD does not build" >&2
	exit 1
fi
found=$(first_failure "${all[@]}")
[ -z "$found" ] || { echo "mutants.sh: HEAD itself fails: $found" >&2; exit 1; }
status=0
for name in "${names[@]}"; do
	result=$(plant "$name") || status=1
	printf '%-32s %s\n' "$name" "$result"
	for file in $(sed -n 's,^+++ b/,,p' "$root/test/mutants/$name.patch"); do
		git -C "$root" show "HEAD:$file" >"$dir/tree/$file"
	done
done
exit $status
