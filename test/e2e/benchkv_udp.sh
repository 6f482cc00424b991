#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two ranks over copyrpc whose adapters speak RoCEv2 over UDP (on the loopback interface, since a launcher
# keeps its ranks in one network namespace): every answer verified, also when packets get lost.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun
export SOFT_MLX5_WIRE=udp SOFT_MLX5_NETDEV=lo
trap 'cleanup; rm -rf "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET.127.0.0.1"' EXIT

run() { # NAME
	two 90 --verify --quiet --json "$TMP/$1.jsonl" --preset seed001 --seconds 2 --warmup 0.3 \
		>"$TMP/$1.out" 2>"$TMP/$1.err" || fail "$1: mpirun ended with $?"
	[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] || fail "$1: ranks ended with $(rank_rc 0) $(rank_rc 1)"
	check_json "$TMP/$1.jsonl" 'len(k) == 2' 'all(x["verify_errors"] == 0 for x in r)' \
		't["sent"] == t["answered"] > 10' 't["failed"] == 0' 't["lost_peers"] == 0' \
		'all(x["remote_ops_per_s"] > 0 for x in r)'
	nothing_left "$1"
	ok "$1"
}

run good
export SOFT_MLX5_FAULTS=seed=11,drop=0.01,corrupt=0.002,dup=0.01,reorder=0.01
run bad
finish
