#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The one list of Debian packages that this project needs, and their installation.
set -u

build_packages=(
	gcc libc6-dev               # the compiler
	meson ninja-build pkg-config
	libdpdk-dev                 # EAL, rings, hash, telemetry
	libibverbs-dev              # rdma-core: libibverbs and mlx5dv
	libnuma-dev libpmix-dev libjansson-dev
	dpkg-dev                    # by it meson finds where Debian has libraries, and pkg-config looks for them
	libcmocka-dev               # the tests are part of the default build
)
run_packages=(
	ibverbs-providers           # libmlx5, loaded by libibverbs at run time
	openmpi-bin                 # mpirun starts the ranks
	gnuplot-nox                 # pictures of the results
	python3                     # usertools/doctor, reading results
)
test_packages=(
	ibverbs-utils perftest rdmacm-utils   # foreign programs that run on the software NIC
	g++                         # C++ programs that include the headers
	clang libclang-rt-14-dev llvm   # second compiler, its sanitizer runtimes, their symbolizer
	python3 binutils procps     # pgrep
	python3-numpy               # the Python package
	python3-pyverbs             # rdma-core's own test suite, which runs on the software NIC
	valgrind                    # counts instructions, which no clock disturbs
	clang-format                # devtools/wrap-lines.py
	iproute2 tshark             # two hosts as network namespaces; captures of the software NIC's wire
	groff-base                  # renders the manual pages
	git make                    # of a job of continuous integration on the software NIC
)
peers_packages=(                # what the benchmarks compare with; each is left out where missing
	libucx-dev libzmq3-dev libmsgpack-dev
	ucx-utils                   # ucx_perftest: a program that polls without libibverbs
	libopenmpi-dev qperf        # further programs on the software NIC
)
docs_packages=(
	doxygen python3-sphinx python3-myst-parser furo
)
launch_packages=(               # the suite "launch": two nodes of Slurm on this host
	slurm-wlm munge
)
guest_packages=(                # devtools/guest.sh, the suite "guest"
	qemu-system-x86 busybox-static kmod cpio
)
bare_packages=(                 # devtools/bare.sh
	mmdebstrap git
)
deb_packages=(                  # devtools/deb.sh
	dpkg-dev debhelper dh-python fakeroot lintian
)
cross_packages=(                # devtools/cross.sh
	gcc-aarch64-linux-gnu qemu-user mmdebstrap
)

usage() {
	cat <<'EOF'
usage: devtools/packages.sh [--list] [build|run|test|peers|docs|launch|guest|bare|deb|cross]...

Install the Debian packages that building, running and testing need (default: all groups but launch,
guest, bare, deb and cross). Nothing happens when everything is there. Needs root or sudo only when
something is missing.

  --list   print the package names, one a line, and install nothing

Undo: apt-get remove --autoremove NAME..., with the names that it said it installs.
EOF
}

fail() {
	echo "packages.sh: $*" >&2
	exit 1
}

list_only=0
groups=()
for arg in "$@"; do
	case $arg in
	--list) list_only=1 ;;
	-h | --help) usage; exit 0 ;;
	build | run | test | peers | docs | launch | guest | bare | deb | cross) groups+=("$arg") ;;
	*) usage >&2; echo "packages.sh: unknown argument '$arg'" >&2; exit 2 ;;
	esac
done
[ ${#groups[@]} -gt 0 ] || groups=(build run test peers docs)

wanted=()
for group in "${groups[@]}"; do
	declare -n list=${group}_packages
	wanted+=("${list[@]}")
done
mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)
if [ $list_only = 1 ]; then
	printf '%s\n' "${wanted[@]}"
	exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	fail "this is not a Debian system; install the equivalents of: ${wanted[*]}," \
		"then call the scripts with --no-packages"
fi

missing=()
for name in "${wanted[@]}"; do
	state=$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)
	[ "$state" = installed ] || missing+=("$name")
done
if [ ${#missing[@]} = 0 ]; then
	echo "packages: all ${#wanted[@]} needed packages are installed"
	exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null ||
		fail "not root and no sudo; as root run: apt-get install ${missing[*]}"
	as_root=(sudo)
fi

export DEBIAN_FRONTEND=noninteractive
apt() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q \
		-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null
}

echo "packages: installing ${missing[*]}"
echo "packages: to undo: apt-get remove --autoremove ${missing[*]}"
# Another apt-get update may hold the lists' lock, which has no timeout of its own: try again.
for try in 1 2 3; do
	apt update && break
	[ "$try" = 3 ] || sleep $((try * 5))
done
apt install -y --no-install-recommends "${missing[@]}" ||
	fail "apt-get could not install: ${missing[*]} (its message is above)"
