#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Rounds of kill -9 at random times: a rank, or a client process of one, under random loads and numbers of
# daemons. Whoever survives has no verification error, an answer to every call, and says what died within 2 s;
# the next round starts clean. ROUNDS=200 SEED=n for more of them.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun

ROUNDS=${ROUNDS:-5}
SEED=${SEED:-$$}
RANDOM=$((SEED % 32768))
trap 'echo "seed $SEED, round $round"; cleanup' EXIT

# Adds "OPTION WORD" with one of the words to ARGS. Not by $(...), whose RANDOM would not go on here.
ARGS=()
pick() { # OPTION WORD...
	local option=$1
	shift
	shift $((RANDOM % $#))
	ARGS+=("$option" "$1")
}

round_of_ranks() {
	local victim=$((RANDOM % 2)) survivor mpi t0 took
	survivor=$((1 - victim))
	MPIRUN_ARGS=--enable-recovery
	pick --clients 4 8 16
	pick --qd 1 4
	pick --daemons 1 2 3
	pick --delegate none flux
	pick --route daemon client
	pick --value-size 8 100 1000
	pick --delete-ratio 0 0.2
	two 60 "${ARGS[@]}" --verify --warmup 0.1 --seconds 2.5 --json "$TMP/round.jsonl" >"$TMP/round.out" \
		2>"$TMP/round.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	wait_for 30 "$TMP/round.out" 'clients x QD'
	sleep "$(printf '0.%03d' $((RANDOM % 1000)))"
	t0=$(date +%s%N)
	kill -9 "$(ranks_pids $victim)" || fail "rank $victim does not run"
	wait_for 4 "$TMP/round.err" "rank $survivor: lost rank $victim"
	took=$((($(date +%s%N) - t0) / 1000000))
	[ $took -le 2000 ] || fail "the loss was told after $took ms"
	wait $mpi
	[ "$(rank_rc $survivor)" = 1 ] || fail "the survivor ended with $(rank_rc $survivor), not 1"
	[ "$(grep -c 'lost rank' "$TMP/round.err")" = 1 ] || fail "the loss was told more than once"
	check_json "$TMP/round.jsonl" 'len(k) == 1' 'k[0]["lost_peers"] == 1' 'k[0]["verify_errors"] == 0' \
		'k[0]["sent"] == k[0]["answered"]'
	MPIRUN_ARGS=
}

round_of_clients() {
	local daemon witness victim
	pick --value-size 8 1000
	timeout -k 2 60 "$BENCHKV" --no-huge -- --name "$SEGMENT" --daemons 2 --clients 0 --serve 4 --seconds 50 \
		--quiet "${ARGS[@]}" >"$TMP/round.out" 2>"$TMP/round.err" &
	daemon=$!
	BACKGROUND="$BACKGROUND $daemon"
	wait_for 30 "$TMP/round.out" "benchkv-client --attach $SEGMENT.0.1"
	timeout -k 2 30 "$BENCHKV_CLIENT" --attach "$SEGMENT.0.0" --clients 2 --qd 4 --verify --warmup 0.1 \
		--delete-ratio 0.2 --seconds 1.5 --json "$TMP/round.jsonl" >"$TMP/witness.out" 2>&1 &
	witness=$!
	E2E_ID=victim timeout -k 2 30 "$BENCHKV_CLIENT" --attach "$SEGMENT.0.$((RANDOM % 2))" --clients 2 \
		--qd $((1 + RANDOM % 8)) --warmup 0 --seconds 20 >"$TMP/victim.out" 2>&1 &
	victim=$!
	sleep "0.3$((RANDOM % 100))"
	kill -9 "$(pgrep -P $victim)" || fail "the victim does not run"
	wait $victim 2>/dev/null
	wait $witness || fail "the clients that live ended with $?"
	check_json "$TMP/round.jsonl" 'k[0]["verify_errors"] == 0' 'k[0]["failed"] == 0' \
		'k[0]["sent"] == k[0]["answered"] > 100'
	# Its places are free again.
	timeout -k 2 30 "$BENCHKV_CLIENT" --attach "$SEGMENT.0.0" --clients 4 --verify --warmup 0 --seconds 0.2 \
		>"$TMP/after.out" 2>&1 || fail "four places are not free: $?"
	kill -INT "$(ranks_pids)"
	wait $daemon || fail "the daemons ended with $?"
	# Those of a killed rank stay until a run with as many daemons takes their names.
	ls "/dev/shm/crpc.$SEGMENT".0.[01] >"$TMP/round.left" 2>/dev/null && fail "segments are left"
}

for round in $(seq "$ROUNDS"); do
	rm -f "$TMP"/round.*
	ARGS=()
	if [ $((RANDOM % 3)) = 0 ]; then
		round_of_clients
	else
		round_of_ranks
	fi
	ok "round $round: ${ARGS[*]}"
done
two 60 --clients 4 --daemons 3 --verify --seconds 0.5 --warmup 0.1 --quiet >"$TMP/last.out" 2>"$TMP/last.err" ||
	fail "the run after the rounds ended with $?"
ok "a run after the rounds"
finish
