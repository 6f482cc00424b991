#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# From a fresh machine to a measured key-value service: two ranks of benchkv, one core each.
set -u

usage() {
	cat <<'EOF'
usage: usertools/demo.sh [options] [-- BENCHKV_OPTION...]

Installs missing packages, builds, reserves hugepages if it may, runs benchkv
with two ranks for 10 s and verifies every answer, prints the result table and
writes

  results/demo.jsonl           the figures, one object per line
  results/demo.svg             the latency distribution (and the .hgrm files it
                               is drawn from)

Where there is no active mlx5 device, the ranks run on the software ConnectX
(usertools/soft-mlx5). What stands after -- goes to benchkv and overrides: --
--seconds 3 --value-size 1024

  --ranks N      how many ranks (default 2)
  --out DIR      where results go (default: results/ of this tree)
  --soft         the software NIC even if there is a real one
  --no-huge      do not use hugepages
  --no-packages  install nothing
  --build DIR    use this build folder as it is, build nothing

Changes to the machine, each announced with the command that undoes it:
packages, reserved hugepages. Exit status: that of benchkv.
EOF
}

bad_usage() {
	echo "demo.sh: $*; --help lists the options" >&2
	exit 2
}

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
ranks=2
out=$root/results
soft=auto
huge=1
packages=1
build=
while [ $# -gt 0 ]; do
	case $1 in
	--ranks | --out | --build)
		[ $# -ge 2 ] || bad_usage "$1 needs a value"
		case $1 in
		--ranks) ranks=$2 ;;
		--out) out=$2 ;;
		--build) build=$2 ;;
		esac
		shift ;;
	--soft) soft=1 ;;
	--no-huge) huge=0 ;;
	--no-packages) packages=0 ;;
	-h | --help) usage; exit 0 ;;
	--version) echo "demo.sh $(cat "$root/VERSION")"; exit 0 ;;
	--) shift; break ;;
	*) bad_usage "unknown argument '$1' (options of benchkv stand after --)" ;;
	esac
	shift
done
case $ranks in
'' | *[!0-9]* | 0 | ?????*) bad_usage "--ranks takes a number from 1 to 9999, not '$ranks'" ;;
esac

step() {
	echo "demo: $*"
}

fail() {
	echo "demo.sh: $*" >&2
	exit 1
}

# MiB of hugepages that one rank takes.
rank_mib=128

# Reserves hugepages for all ranks. Sets eal_memory, and says what it changed or why it did not.
setup_memory() {
	local sys=/sys/kernel/mm/hugepages/hugepages-2048kB need=$((ranks * rank_mib / 2)) old free
	eal_memory=(--no-huge -m 64)
	if [ $huge = 0 ]; then
		step "memory: without hugepages, as asked"
		return
	fi
	if [ ! -r $sys/nr_hugepages ]; then
		step "memory: this kernel shows no 2 MiB hugepages; running with --no-huge"
		return
	fi
	old=$(cat $sys/nr_hugepages)
	free=$(cat $sys/free_hugepages)
	if [ "$free" -lt $need ]; then
		if ! { echo $((old + need - free)) >$sys/nr_hugepages; } 2>/dev/null; then
			step "memory: may not reserve hugepages (not root, or a container);" \
				"running with --no-huge"
			return
		fi
		free=$(cat $sys/free_hugepages)
		if [ "$free" -lt $need ]; then
			echo "$old" >$sys/nr_hugepages
			step "memory: only $free of $need hugepages could be reserved;" \
				"running with --no-huge"
			return
		fi
		step "memory: reserved $need hugepages of 2 MiB;" \
			"to undo, as root: echo $old > $sys/nr_hugepages"
	else
		step "memory: $free hugepages of 2 MiB are free"
	fi
	# The pages are anonymous: no mount is needed, and nothing is left behind.
	eal_memory=(--in-memory -m "$rank_mib")
}

# Sets nic to what a rank is started through.
choose_nic() {
	local port driver
	nic=()
	if [ $soft = auto ]; then
		for port in /sys/class/infiniband/*/ports/*; do
			driver=$(basename "$(readlink -f "$port/../../device/driver")")
			if [ "$driver" = mlx5_core ] && grep -q ACTIVE "$port/state" &&
				ls /dev/infiniband/uverbs* >/dev/null 2>&1; then
				step "NIC: $(basename "$(dirname "$(dirname "$port")")")"
				return
			fi
		done
		step "NIC: no active mlx5 device here; using the software ConnectX"
	else
		step "NIC: the software ConnectX, as asked"
	fi
	# Always the same net: what a killed run left of it is taken over by the next.
	nic=("$root/usertools/soft-mlx5" --build "$build" --net demo)
}

if [ $packages = 1 ]; then
	"$root/devtools/packages.sh" build run || exit 1
fi
installed=$SECONDS
built=$SECONDS
if [ -z "$build" ]; then
	build=$root/build
	step "building in $build"
	# What runs here, and no tests: devtools/test.sh builds the rest in the same folder.
	"$root/devtools/build.sh" --target apps/benchkv/benchkv \
		--target drivers/soft_mlx5/libsoft_mlx5.so || fail "the build failed (see above)"
	built=$SECONDS
fi
[ -d "$build" ] || fail "there is no build folder $build"
build=$(cd "$build" && pwd)
benchkv=$build/apps/benchkv/benchkv
[ -x "$benchkv" ] || fail "$benchkv is not there"
command -v mpirun >/dev/null || fail "mpirun is not installed; run devtools/packages.sh run"

mkdir -p "$out" || exit 1
rm -f "$out"/demo.jsonl "$out"/demo.svg "$out"/demo*.hgrm
setup_memory
choose_nic

launcher=(mpirun -np "$ranks")
[ "$(id -u)" != 0 ] || launcher+=(--allow-run-as-root)
cores=$(nproc)
if [ "$cores" -ge "$ranks" ]; then
	launcher+=(--map-by core --bind-to core)
else
	step "only $cores core for $ranks ranks: they share it, expect a fraction of the speed"
	launcher+=(--oversubscribe --bind-to none)
fi

command=("${launcher[@]}" "${nic[@]}" "$benchkv" "${eal_memory[@]}" -- --preset seed001 --verify
	--seconds 10 --json "$out/demo.jsonl" --hgrm "$out/demo.hgrm" "$@")
step "running: ${command[*]}"
# An interrupt ends the ranks cleanly; what they wrote until then is still shown.
trap : INT
"${command[@]}"
status=$?

distributions=()
for part in local remote; do
	[ ! -s "$out/demo.$part.hgrm" ] || distributions+=("$out/demo.$part.hgrm=$part")
done
if [ ${#distributions[@]} = 0 ]; then
	[ $status != 0 ] || step "no latency distribution was written"
elif command -v gnuplot >/dev/null; then
	"$root/usertools/crpc-plot" -o "$out/demo.svg" --title "benchkv, $ranks ranks: latency" \
		"${distributions[@]}"
else
	step "no picture: gnuplot is not installed"
fi
for file in "$out/demo.jsonl" "$out/demo.svg"; do
	[ ! -s "$file" ] || step "wrote $file"
done
step "took $SECONDS s: packages $installed s, build $((built - installed)) s, run $((SECONDS - built)) s"
[ $status = 0 ] || step "benchkv ended with status $status"
exit $status
