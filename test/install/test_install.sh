#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that an installation is complete: into an empty folder, then, with nothing but its headers,
# libraries and pkg-config files, each header compiles, all of them in one C++17 program, each library
# links, shared and static, the examples run, and the tools answer --help.
# Arguments: source root, build root, compiler with its options. CXX: a C++ compiler, if there is one.
set -u

source=$1
build=$2
shift 2
cc=("$@")
dest=$(mktemp -d) || exit 99
trap 'rm -rf "$dest"' EXIT
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

meson install -C "$build" --no-rebuild --destdir "$dest/root" >"$dest/log" 2>&1 ||
	{ cat "$dest/log"; exit 1; }
pc_dir=$(find "$dest/root" -type d -name pkgconfig)
include_dir=$(find "$dest/root" -type d -path "*/include/copyrpc")
bin_dir=$(find "$dest/root" -type d -name bin)
lib_dir=$(dirname "$pc_dir")
export LD_LIBRARY_PATH=$lib_dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -n "$pc_dir" ] && [ -n "$include_dir" ] || { echo "nothing was installed"; exit 1; }

# Finds our files in the folder and those of the system where they are.
config() {
	local flags prefix
	flags=$(PKG_CONFIG_PATH=$pc_dir pkg-config "$@") || return 1
	# Ours name the final prefix, where nothing of ours is yet.
	prefix=$(PKG_CONFIG_PATH=$pc_dir pkg-config --variable=prefix crpc_common)
	echo "$flags" | sed "s,-\([IL]\)$prefix,-\1$dest/root$prefix,g"
}

names=()
for pc in "$pc_dir"/crpc_*.pc; do
	names+=("$(basename "$pc" .pc)")
done

# DPDK's too: crpc_compat.h is for programs that link it.
cflags=$(config --cflags "${names[@]}" libdpdk) || fail "pkg-config --cflags"
for header in "$include_dir"/*.h; do
	echo "#include <$(basename "$header")>" >"$dest/header.c"
	# shellcheck disable=SC2086
	"${cc[@]}" -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Werror -c \
		-o "$dest/header.o" "$dest/header.c" $cflags || fail "header $(basename "$header")"
	cat "$dest/header.c" >>"$dest/all.cc"
done

# What a C++17 program calls is found in the libraries by its C name.
if [ -n "${CXX:-}" ]; then
	echo 'int main() { return crpc_rdma_open(nullptr) == nullptr ? 0 : crpc_clock_ns() == 0; }' \
		>>"$dest/all.cc"
	libs=$(config --libs "${names[@]}" libdpdk)
	# shellcheck disable=SC2086
	$CXX "${cc[@]:1}" -std=c++17 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter \
		-Wno-missing-field-initializers -Werror -o "$dest/all" "$dest/all.cc" $cflags $libs &&
		"$dest/all" || fail "a C++17 program with every header"
fi

# The same libraries, but static.
static() {
	sed 's/-lcrpc_\([a-z0-9_]*\)/-l:libcrpc_\1.a/g'
}

echo 'int main(void) { return 0; }' >"$dest/main.c"
for name in "${names[@]}"; do
	libs=$(config --cflags --libs "$name") || { fail "pkg-config $name"; continue; }
	# shellcheck disable=SC2086
	"${cc[@]}" -o "$dest/main" "$dest/main.c" $libs || fail "link with $name"
	# shellcheck disable=SC2046
	"${cc[@]}" -o "$dest/main" "$dest/main.c" $(static <<<"$libs") || fail "link static $name"
	[ "$name" != crpc_drivers ] || continue # static alone
	foreign=$(nm -D --defined-only "$lib_dir/lib$name.so" | grep -vE ' (__)?crpc_| CRPC_')
	[ -z "$foreign" ] || fail "lib$name.so exports $foreign"
done

# An example is named after the library that it shows: the longest name that fits.
library_of() {
	local name best=
	for name in "${names[@]}"; do
		case crpc_$1 in
		"$name" | "$name"_*) [ ${#name} -le ${#best} ] || best=$name ;;
		esac
	done
	echo "$best"
}

# Examples over RDMA have the drivers, too, and run on the software NIC.
for example in "$source"/doc/examples/*.c; do
	program=$(basename "$example" .c)
	case $program in
	bulk_* | copyrpc_* | udrpc_*)
		drivers=(crpc_drivers)
		on=("$bin_dir/crpc-soft-mlx5" --net "install_$$" --) ;;
	*)
		drivers=()
		on=() ;;
	esac
	libs=$(config --cflags --libs "$(library_of "$program")" "${drivers[@]}") ||
		{ fail "$program"; continue; }
	# shellcheck disable=SC2046
	"${cc[@]}" -o "$dest/$program.static" "$example" $(static <<<"$libs") ||
		fail "build $program, static"
	# shellcheck disable=SC2086
	"${cc[@]}" -o "$dest/$program" "$example" $libs || { fail "build $program"; continue; }
	case $program in
	kv_counter) continue ;; # needs a service: below
	esac
	timeout 20 "${on[@]}" "$dest/$program" || fail "$program ended with status $?"
	[ ${#on[@]} = 0 ] || continue
	timeout 20 "$dest/$program.static" || fail "$program, static, ended with status $?"
done

[ -n "$(find "$dest/root" -path "*-packages/copyrpc/clients.py")" ] || fail "the Python package is missing"

# A service, and the example twice at once: no count is lost.
service() {
	local name=install.$$ pid i
	"$bin_dir/kvd" --no-huge --no-telemetry -- --name "$name" --keys 1000 >"$dest/service.out" 2>&1 &
	pid=$!
	for i in {1..200}; do
		[ ! -e "/dev/shm/crpc.$name" ] || break
		sleep 0.1
	done
	timeout 20 "$dest/kv_counter" "$name" 500 >"$dest/count.1" &
	timeout 20 "$dest/kv_counter" "$name" 500 >"$dest/count.2" || fail "kv_counter ended with $?"
	wait $! || fail "the first kv_counter ended with $?"
	i=$(timeout 20 "$dest/kv_counter" "$name") || fail "kv_counter ended with $?"
	[ "$i" = 1001 ] || fail "counted 1001 times and found $i"
	"$bin_dir/kvcli" --name "$name" scan >/dev/null || fail "kvcli ended with $?"
	kill -INT $pid
	wait $pid || { fail "the service ended with $?"; cat "$dest/service.out"; }
}
service

for tool in kvd kvcli crpc-soft-mlx5 crpc-doctor crpc-plot crpc-diff crpc-shm; do
	"$bin_dir/$tool" --help >/dev/null || fail "$tool --help"
done

"$bin_dir/crpc-report" --list >/dev/null || fail "crpc-report does not find its experiments"

echo "${#names[@]} libraries, $failures failures"
[ $failures = 0 ]
