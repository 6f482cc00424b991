#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Build for aarch64 on another machine, and run the tests of single programs in emulation.
set -u

usage() {
	cat <<'EOF'
usage: devtools/cross.sh [options] [TEST...]

Unpacks Debian 12's aarch64 libraries into a folder, builds with gcc's cross compiler in
build-aarch64/ and runs the suite fast with qemu-aarch64. Nothing is installed for aarch64, and
nothing needs root but the packages of the group "cross" (devtools/packages.sh). Emulated code is 10 to
50 times slower, so time limits are larger, and tests that emulation cannot serve are skipped with the
reason. On x86 the emulator gives x86's memory order: what it proves is
the code for the other machine; test/weak proves the orderings.

  --root DIR   keep the libraries in this folder (default build-aarch64-root/; about 450 MB)
  --build      build and stop
  --list       print the tests that would run and stop
TEST is a name as --list shows it. The last line is "N passed, N failed, N skipped".
EOF
}

fail() {
	echo "cross.sh: $*" >&2
	exit 1
}

source=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
root=$source/build-aarch64-root
declare -A cannot=(
	[ipc_proc]='a fork keeps its lock, as the emulator ignores MADV_DONTFORK, and a start takes too long'
)
dir=$source/build-aarch64
action=test
tests=()
while [ $# -gt 0 ]; do
	case $1 in
	--root)
		[ $# -ge 2 ] || fail "--root needs a value"
		root=$(realpath -m "$2")
		shift ;;
	--build) action=build ;;
	--list) action=list ;;
	-h | --help) usage; exit 0 ;;
	-*) usage >&2; fail "unknown option '$1'" ;;
	*) tests+=("$1") ;;
	esac
	shift
done

"$source/devtools/packages.sh" build cross || fail "packages are missing (see above)"

if [ ! -e "$root/complete" ]; then
	# Unpacked, not installed: no script of a package runs, so nothing here has to run aarch64 code.
	libraries=$("$source/devtools/packages.sh" --list build | grep -e '-dev$' | paste -sd ,)
	sources=()
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
		[ ! -s "$file" ] || sources+=("$file")
	done
	rm -rf "$root"
	mmdebstrap --quiet --variant=extract --architectures=arm64 \
		--include="$libraries,libgcc-12-dev,ibverbs-providers" bookworm "$root" "${sources[@]}" ||
		fail "could not unpack the libraries of aarch64"
	# The emulator looks up each path in this folder first: /dev/shm, /proc and /tmp are the host's.
	find "$root" -mindepth 1 -maxdepth 1 ! -name usr ! -name 'lib*' ! -name etc -exec rm -rf {} +
	touch "$root/complete"
fi

mkdir -p "$dir" || exit 1
cat >"$dir/cross.ini" <<EOF
[binaries]
c = ['aarch64-linux-gnu-gcc', '--sysroot=$root']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '$root']
[properties]
sys_root = '$root'
pkg_config_libdir = ['$root/usr/lib/aarch64-linux-gnu/pkgconfig', '$root/usr/share/pkgconfig']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'generic'
endian = 'little'
EOF
[ -f "$dir/build.ninja" ] || (cd "$source" && meson setup --cross-file "$dir/cross.ini" "$dir") || exit 1
ninja -C "$dir" || fail "the build failed (see above)"
[ $action != build ] || exit 0

# Programs of the suite fast; scripts start programs of their own, which would need the emulator, too.
mapfile -t all < <(meson introspect --tests "$dir" | python3 -c '
import json, sys
for test in json.load(sys.stdin):
    program = test["cmd"][0]
    if any(s.endswith("fast") for s in test["suite"]) and program.startswith(sys.argv[1]):
        print(test["name"])
' "$dir/")
skipped=0
chosen=()
for name in "${all[@]}"; do
	reason=${cannot[$name]:-}
	if [ ${#tests[@]} != 0 ]; then
		case " ${tests[*]} " in *" $name "*) chosen+=("$name") ;; esac
	elif [ -n "$reason" ]; then
		echo "skipped: $name: $reason"
		skipped=$((skipped + 1))
	else
		chosen+=("$name")
	fi
done
[ ${#tests[@]} = 0 ] || [ ${#tests[@]} = ${#chosen[@]} ] || fail "not all of these are tests: ${tests[*]}"
if [ $action = list ]; then
	printf '%s\n' "${chosen[@]}"
	exit 0
fi
rm -f "$dir/meson-logs/cross.json"
meson test -C "$dir" --no-rebuild --print-errorlogs --timeout-multiplier 20 --logbase cross "${chosen[@]}"
[ -s "$dir/meson-logs/cross.json" ] || fail "meson left no log"
passed=$(grep -c '"result": "OK"' "$dir/meson-logs/cross.json")
left=$(grep -c '"result": "SKIP"' "$dir/meson-logs/cross.json")
failed=$((${#chosen[@]} - passed - left))
echo "$passed passed, $failed failed, $((skipped + left)) skipped"
[ "$passed" != 0 ] && [ $failed = 0 ]
