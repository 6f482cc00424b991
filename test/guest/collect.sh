#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Inside the guest: brings about each case and keeps in $OUT what the programs printed and what the kernel
# reports of benchkv's pages. test_guest.py judges it.
set -u
RUNTIME_DIRECTORY=$(mktemp -d)
export RUNTIME_DIRECTORY
SECONDS=0

hugepages() { # NODE COUNT
	echo "$2" >"/sys/devices/system/node/node$1/hugepages/hugepages-2048kB/nr_hugepages"
}

observe() { # CASE EAL_ARGS...
	local case=$1 check=hugepages dir=$OUT/$1 run pid
	shift
	mkdir -p "$dir"
	[ "$case" != without_l ] || check=cores
	timeout 60 "$DOCTOR" --json "$check" >"$dir/doctor" 2>&1
	timeout -k 5 100 "$BENCHKV" "$@" -- --daemons 2 --clients 4 --keys 65536 --value-size 64 --verify \
		--idle yield --seconds 90 --warmup 0.1 --quiet --name guest >"$dir/out" 2>"$dir/err" &
	run=$!
	for _ in $(seq 300); do
		grep -q 'runs clients .* to 3' "$dir/out" && break
		kill -0 $run 2>/dev/null || break
		sleep 0.2
	done
	pid=$(pgrep -x benchkv) && cat "/proc/$pid/numa_maps" >"$dir/numa_maps" && kill -INT "$pid"
	wait $run
	echo "collect: $case after $SECONDS s"
}

observe both -l 1,2
observe without_l
hugepages 1 0
observe one -l 1,2
hugepages 0 0
observe none --no-huge -m 256 -l 1,2
hugepages 0 64
. "$(dirname "$0")/rxe.sh"
