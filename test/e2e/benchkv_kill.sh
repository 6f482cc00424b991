#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank killed (-9) in the middle of a run: the other says so within 2 s, goes on with its own keys to the
# end, writes its results and ends with an error; the next run starts clean. Either rank may be the
# one that dies.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun

kill_rank() { # VICTIM
	local victim=$1 survivor=$((1 - $1)) mpi t0 took pid
	MPIRUN_ARGS=--enable-recovery
	two 60 --preset seed001 --verify --seconds 3 --warmup 0.2 --json "$TMP/kill$victim.jsonl" \
		--hgrm "$TMP/kill$victim.hgrm" >"$TMP/kill$victim.out" 2>"$TMP/kill$victim.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	wait_for 30 "$TMP/kill$victim.out" 'clients x QD'
	sleep 1
	pid=$(running ranks_pids "$victim")
	[ -n "$pid" ] || fail "rank $victim does not run"
	t0=$(date +%s%N)
	kill -9 "$pid"
	wait_for 6 "$TMP/kill$victim.err" "rank $survivor: lost rank $victim"
	took=$((($(date +%s%N) - t0) / 1000000))
	told_in_time $took
	wait $mpi
	[ "$(rank_rc "$survivor")" = 1 ] || fail "the survivor ended with $(rank_rc "$survivor"), not 1"
	[ "$(grep -c 'lost rank' "$TMP/kill$victim.err")" = 1 ] || fail "the loss was reported more than once"
	check_json "$TMP/kill$victim.jsonl" 'len(k) == 1' "k[0][\"rank\"] == $survivor" \
		'k[0]["lost_peers"] == 1' 'k[0]["verify_errors"] == 0' 'k[0]["failed"] > 0' \
		'k[0]["sent"] == k[0]["answered"]' 'k[0]["seconds"] > 2.8' \
		'k[0]["local_ops_per_s"] > (10 if k[0]["noisy"] else 1000)'
	grep -q '^#\[Max ' "$TMP/kill$victim.hgrm" || fail "the survivor wrote no latencies"
	ok "rank $victim killed: reported after $took ms, local work went on, results written"
}

# Killed before it has published its card: its peer cannot watch it, and ends after the limit of
# 30 s. Rank 0 speaks for all, unless it is the one.
kill_early() { # VICTIM
	local victim=$1 t0=$SECONDS soft=$SOFT_MLX5
	cat >"$TMP/early.sh" <<-EOT
		#!/bin/bash
		[ "\$PMIX_RANK" != $victim ] || kill -9 \$\$
		exec "$soft" "\$@"
	EOT
	chmod +x "$TMP/early.sh"
	MPIRUN_ARGS=--enable-recovery
	SOFT_MLX5=$TMP/early.sh
	two 60 --seconds 1 >"$TMP/early.out" 2>"$TMP/early.err"
	SOFT_MLX5=$soft
	[ "$(rank_rc $((1 - victim)))" = 2 ] || fail "the survivor ended with $(rank_rc $((1 - victim))), not 2"
	[ "$(grep -c 'did not all come to the start: Connection timed out' "$TMP/early.err")" = 1 ] ||
		fail "the loss was not reported once"
	[ $((SECONDS - t0)) -lt 45 ] || fail "the loss was reported after $((SECONDS - t0)) s"
	ok "rank $victim killed before the start"
}

next_run() {
	MPIRUN_ARGS=
	two 60 --preset seed001 --verify --quiet --seconds 1 --warmup 0.2 >"$TMP/next.out" \
		2>"$TMP/next.err" || fail "the next run ended with $?"
	# It took the names of the dead over, so they are gone too.
	nothing_left "next run"
	ok "the next run is clean"
}

kill_rank 1
next_run
kill_rank 0
next_run
kill_early 0
kill_early 1
next_run
finish
