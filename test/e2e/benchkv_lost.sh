#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# benchkv_lost.sh [BACKEND[:TLS]...]: with every backend, a rank that is killed (-9) in the middle of a run
# is reported by its peer within 2 s, and once; calls to it end with an error, none stays open and none has a wrong
# answer, the other's own keys are served to the end, the report says who died, and the exit code is 1. The
# next run starts clean.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun

[ $# -gt 0 ] || set -- copyrpc delegation direct erpc ucx:posix,self ucx:rc_v,self
if ! one 30 --backend ucx --ucx-tls posix,self --clients 1 --seconds 0.1 --warmup 0 --quiet \
	>"$TMP/u.out" 2>"$TMP/u.err"; then
	grep -q 'libucx-dev' "$TMP/u.err" || fail "backend ucx neither runs nor says what it needs: $(cat "$TMP/u.err")"
	mapfile -t rest < <(printf '%s\n' "$@" | grep -v '^ucx')
	set -- "${rest[@]}"
fi

lost() { # VICTIM BACKEND[:TLS]
	local victim=$1 survivor=$((1 - $1)) mpi t0 took name=${2/:/.} args=(--backend "${2%%:*}")
	[ "${2#*:}" = "$2" ] || args+=(--ucx-tls "${2#*:}")
	MPIRUN_ARGS=--enable-recovery
	two 60 "${args[@]}" --clients 8 --depth 4 --verify --seconds 2 --warmup 0.1 --quiet --json "$TMP/$name.jsonl" \
		>"$TMP/$name.out" 2>"$TMP/$name.err" &
	mpi=$!
	MPIRUN_ARGS=
	BACKGROUND="$BACKGROUND $mpi"
	wait_for 30 "$TMP/$name.out" 'clients x QD'
	sleep 0.7
	t0=$(date +%s%N)
	kill -9 "$(running ranks_pids "$victim")" || fail "$2: rank $victim does not run"
	wait_for 6 "$TMP/$name.err" "rank $survivor: lost rank $victim"
	took=$((($(date +%s%N) - t0) / 1000000))
	told_in_time $took
	wait $mpi
	[ "$(rank_rc "$survivor")" = 1 ] || fail "$2: the survivor ended with $(rank_rc "$survivor"), not 1"
	[ "$(grep -c 'lost rank' "$TMP/$name.err")" = 1 ] || fail "$2: the loss was reported more than once"
	grep -q "rank $victim gave no results" "$TMP/$name.out" || fail "$2: the report does not say who died"
	check_json "$TMP/$name.jsonl" 'len(k) == 1' "k[0][\"rank\"] == $survivor" 'k[0]["lost_peers"] == 1' \
		'k[0]["verify_errors"] == 0' 'k[0]["failed"] > 0' 'k[0]["sent"] == k[0]["answered"]' \
		'k[0]["seconds"] > 1.9' 'k[0]["local_ops_per_s"] > (10 if k[0]["noisy"] else 1000)'
	two 60 "${args[@]}" --clients 2 --verify --quiet --seconds 0.2 --warmup 0 >"$TMP/next.out" 2>"$TMP/next.err" ||
		fail "$2: the next run ended with $?"
	nothing_left "$2: next run"
	ok "$2: rank $victim killed, reported after $took ms"
}

victim=1
for backend in "$@"; do
	lost $victim "$backend"
	victim=$((1 - victim))
done
finish
