#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# SIGINT and SIGTERM, to one rank or to the launcher: a clean stop of all ranks with the results so far.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun

alone() { # SIGNAL
	local pid rc
	one 60 --clients 4 --verify --seconds 50 --warmup 0.2 --json "$TMP/alone$1.jsonl" \
		>"$TMP/alone.out" 2>"$TMP/alone.err" &
	BACKGROUND="$BACKGROUND $!"
	wait_for 30 "$TMP/alone.err" 's left'
	pid=$(running ranks_pids)
	kill "-$1" "$pid" || fail "it does not run"
	wait $!
	rc=$?
	[ $rc = 0 ] || fail "SIG$1 ended it with $rc"
	check_json "$TMP/alone$1.jsonl" 't["interrupted"]' 't["sent"] == t["answered"] > 0' \
		't["verify_errors"] == 0' '0 < t["seconds"] < 45'
	grep -q 'interrupted: results so far' "$TMP/alone.out" || fail "it did not say so"
	nothing_left "SIG$1 alone"
	ok "SIG$1 to a rank alone"
}

# To one rank: it stops its peer too.
pair() { # SIGNAL RANK
	local mpi
	two 60 --preset seed001 --verify --seconds 50 --warmup 0.2 --json "$TMP/pair$1$2.jsonl" \
		>"$TMP/pair.out" 2>"$TMP/pair.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	wait_for 30 "$TMP/pair.err" 's left'
	kill "-$1" "$(running ranks_pids "$2")" || fail "rank $2 does not run"
	wait $mpi
	[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] ||
		fail "SIG$1 to rank $2 ended them with $(rank_rc 0) $(rank_rc 1)"
	check_json "$TMP/pair$1$2.jsonl" 'len(k) == 2' 't["interrupted"]' \
		't["sent"] == t["answered"] > 0' 't["verify_errors"] == 0' 't["lost_peers"] == 0'
	nothing_left "SIG$1 to rank $2"
	ok "SIG$1 to rank $2 stops both"
}

# The launcher passes it on and kills soon after: the results must be out by then.
launcher() {
	local mpi
	two 60 --preset seed001 --verify --seconds 50 --warmup 0.2 --json "$TMP/launcher.jsonl" \
		>"$TMP/launcher.out" 2>"$TMP/launcher.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	wait_for 30 "$TMP/launcher.err" 's left'
	kill -INT "$(running pids_of mpirun)" || fail "mpirun does not run"
	wait $mpi
	check_json "$TMP/launcher.jsonl" 't is not None' 't["interrupted"]' 't["verify_errors"] == 0' \
		't["sent"] == t["answered"] > 0'
	# Ranks that it killed leave the sockets of their telemetry, which the next ones take over.
	two 60 --preset seed001 --quiet --seconds 0.1 --warmup 0 >"$TMP/next.out" 2>"$TMP/next.err" ||
		fail "the next run ended with $?"
	nothing_left "SIGINT to mpirun"
	ok "SIGINT to the launcher"
}

alone INT
alone TERM
pair INT 0
pair TERM 1
launcher
finish
