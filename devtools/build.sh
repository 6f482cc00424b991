#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Make a build folder and build in it. demo.sh, test.sh and .ci/run all build through this script.
set -u

usage() {
	cat <<'EOF'
usage: devtools/build.sh [options] [-- MESON_OPTION...]

  --sanitize address|thread  build with ASan and UBSan in build-asan/, or TSan in build-tsan/
  --sanitize fuzz            for libFuzzer, with clang, ASan and UBSan, in build-clang-fuzz/
  --cc COMPILER              the C compiler (default gcc); with clang the folder is build-clang*/
  --dir DIR                  the build folder, instead of the one named above
  --print-dir                print the build folder and stop
  --jobs N                   parallel jobs (default: one per core)
  --target NAME              build only this file of the build folder; may be given more than once
  --clean                    remove the folder first

Without options: the release build, in build/. Arguments after -- go to meson setup. A folder that was
set up while other packages were installed is set up again, with its options; what they do not change
is not compiled again.
EOF
}

bad_usage() {
	usage >&2
	echo "build.sh: $*" >&2
	exit 2
}

root=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
sanitize=
compiler=
dir=
print_dir=0
clean=0
jobs=$(nproc)
targets=()
while [ $# -gt 0 ]; do
	case $1 in
	--sanitize | --cc | --dir | --jobs | --target)
		[ $# -ge 2 ] || bad_usage "$1 needs a value"
		case $1 in
		--sanitize) sanitize=$2 ;;
		--cc) compiler=$2 ;;
		--dir) dir=$2 ;;
		--jobs) jobs=$2 ;;
		--target) targets+=("$2") ;;
		esac
		shift ;;
	--print-dir) print_dir=1 ;;
	--clean) clean=1 ;;
	-h | --help) usage; exit 0 ;;
	--) shift; break ;;
	*) bad_usage "unknown argument '$1'" ;;
	esac
	shift
done

[ "$sanitize" = fuzz ] && default=clang || default=${CC:-gcc}
compiler=${compiler:-$default}
name=build
case $(basename "$compiler") in
clang*) name=build-clang ;;
esac
# -O1 keeps the stacks readable. Only programs get the sanitizer's runtime, hence no lundef.
checked=(-Db_lundef=false -Doptimization=1 -Ddebug_checks=true)
options=()
case $sanitize in
'') ;;
address)
	name+=-asan
	options=("-Db_sanitize=address,undefined" "${checked[@]}") ;;
fuzz)
	name+=-fuzz
	options=("-Db_sanitize=address,undefined" "${checked[@]}" -Dlibfuzzer=true) ;;
thread)
	name+=-tsan
	options=(-Db_sanitize=thread "${checked[@]}") ;;
*) bad_usage "--sanitize takes address, thread or fuzz, not '$sanitize'" ;;
esac
if [ -n "$sanitize" ] && [[ $name != *clang* ]]; then
	# gcc warns of variables that only its own instrumentation makes look uninitialized.
	options+=(-Dc_args=-Wno-maybe-uninitialized)
fi
[ -n "$dir" ] || dir=$root/$name
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
if [ $print_dir = 1 ]; then
	echo "$dir"
	exit 0
fi

for tool in "$compiler" meson ninja pkg-config; do
	command -v "$tool" >/dev/null && continue
	echo "build.sh: $tool is not installed; run devtools/packages.sh" >&2
	exit 1
done

# What meson looks for on this machine: when this changes, so may what it finds.
machine() {
	local names
	mapfile -t names < <(devtools/packages.sh --list)
	echo "$compiler"
	dpkg-query -W -f='${Package} ${Version} ${db:Status-Status}\n' "${names[@]}" 2>/dev/null
	pkg-config --list-all | sort
	command -v g++ clang nvcc /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc
}

[ $clean = 0 ] || rm -rf "$dir"
cd "$root" || exit 1
# A build folder that an interrupted setup left behind, or that was copied or moved here, is removed
# and set up again. A folder that holds anything else is not touched.
if [ -d "$dir/meson-private" ] && { [ ! -f "$dir/build.ninja" ] ||
	! grep -qF "\"source\": \"$root\"" "$dir/meson-info/meson-info.json"; }; then
	echo "build.sh: removing $dir: its setup was interrupted or it belongs to another tree"
	rm -rf "$dir"
fi
now=$(machine)
if [ ! -f "$dir/build.ninja" ] || [ "$now" != "$(cat "$dir/machine.txt" 2>/dev/null)" ]; then
	if [ -f "$dir/build.ninja" ]; then
		# Without coredata.dat meson looks for everything again; it would keep what it found.
		echo "build.sh: the installed packages have changed: setting up $dir again"
		mapfile -t options < <(sed -n '/^\[options\]$/,/^\[properties\]$/s/^\([^[ ]*\) = /-D\1=/p' \
			"$dir/meson-private/cmd_line.txt")
		rm -f "$dir/machine.txt" "$dir/meson-private/coredata.dat"
	fi
	CC=$compiler meson setup "$dir" "${options[@]}" "$@" || exit 1
	printf '%s\n' "$now" >"$dir/machine.txt"
elif [ $# -gt 0 ]; then
	meson configure "$dir" "$@" || exit 1
fi
exec ninja -C "$dir" -j "$jobs" "${targets[@]}"
