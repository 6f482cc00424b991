#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# benchkv_rounds.sh [--rounds N] [--seed S] [--kinds "KIND..."]: kill -9 at random times, under random
# loads and numbers of daemons, the kinds below in turn. Whoever survives has no verification error, an answer
# to every call, and says what died within 2 s; the next run starts clean and leaves nothing behind.
#
#     ranks    a rank
#     backends a rank, of a run with another backend than copyrpc
#     history  a rank; what all clients saw, the dead one's too, is linearizable
#     clients  a client process of a kvd with two daemons, while another one works
#     hung     a rank that is stopped: it lives, so it is lost only when it does not answer for long
#     served   a kvd that serves client processes; those of the other go on, its own get an error
#     start    a rank at any time from its start on, without recovery: the launcher ends the other
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun

ROUNDS=${ROUNDS:-6}
SEED=${SEED:-$$}
KINDS=(ranks history clients served start backends) # and hung, which takes its time
while [ $# -gt 1 ]; do
	case $1 in
	--rounds) ROUNDS=$2 ;;
	--seed) SEED=$2 ;;
	--kinds) read -ra KINDS <<<"$2" ;;
	*) fail "unknown option $1" ;;
	esac
	shift 2
done
RANDOM=$((SEED % 32768))
trap 'echo "seed $SEED, round $round of kind $kind: ${ARGS[*]}"; cleanup' EXIT
worst=0

# Adds "OPTION WORD" with one of the words to ARGS. Not by $(...), whose RANDOM would not go on here.
ARGS=()
pick() { # OPTION WORD...
	local option=$1
	shift
	shift $((RANDOM % $#))
	ARGS+=("$option" "$1")
}

nap() { # LEAST_MS SPAN_MS: a random time
	local ms=$(($1 + RANDOM % $2))
	sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
}

# Starts two ranks with the options and ARGS, in the background: MPI.
start_two() { # OPTION...
	MPIRUN_ARGS=--enable-recovery
	two 90 "${ARGS[@]}" "$@" >"$TMP/round.out" 2>"$TMP/round.err" &
	MPI=$!
	MPIRUN_ARGS=
	BACKGROUND="$BACKGROUND $MPI"
}

# Kills a rank of them; its peer reports it in time, and once.
kill_one() { # VICTIM
	local t0
	t0=$(date +%s%N)
	kill -9 "$(running ranks_pids "$1")" || fail "rank $1 does not run"
	wait_for 6 "$TMP/round.err" "lost rank $1"
	TOOK=$((($(date +%s%N) - t0) / 1000000))
	told_in_time $TOOK
	[ "$TOOK" -le "$worst" ] || worst=$TOOK
	[ "$(grep -c 'lost rank' "$TMP/round.err")" = 1 ] || fail "the loss was reported more than once"
}

survivor_ended() { # SURVIVOR [STATUS]
	wait "$MPI"
	[ "$(rank_rc "$1")" = "${2:-1}" ] || fail "the survivor ended with $(rank_rc "$1"), not ${2:-1}"
}

# The next run: it takes the names of the dead over, and leaves nothing.
next_run() {
	local i args=(--clients 2)
	for i in "${!ARGS[@]}"; do
		[ "${ARGS[i]}" != --daemons ] || args+=(--daemons "${ARGS[i + 1]}")
	done
	two 60 "${args[@]}" --verify --seconds 0.2 --warmup 0 --quiet >"$TMP/round.next" 2>&1 ||
		fail "the next run ended with $?: $(cat "$TMP/round.next")"
	nothing_left "the next run"
}

round_ranks() {
	local victim=$((RANDOM % 2))
	pick --clients 4 8 16
	pick --depth 1 4
	pick --daemons 1 2 3
	pick --delegate none flux
	pick --route daemon client
	pick --value-size 8 100 1000
	pick --delete-ratio 0 0.2
	start_two --verify --warmup 0.1 --seconds 2.5 --json "$TMP/round.jsonl"
	wait_for 30 "$TMP/round.out" 'clients x QD'
	nap 0 1000
	kill_one $victim
	survivor_ended $((1 - victim))
	check_json "$TMP/round.jsonl" 'len(k) == 1' 'k[0]["lost_peers"] == 1' 'k[0]["verify_errors"] == 0' \
		'k[0]["sent"] == k[0]["answered"]'
	next_run
}

round_history() {
	local victim=$((RANDOM % 2))
	pick --daemons 1 2 3
	pick --clients 4 8
	pick --delegate none flux
	pick --route daemon client
	pick --delete-ratio 0 0.1
	[ $((RANDOM % 2)) = 0 ] || ARGS+=(--cas)
	start_two --keys 5 --read-ratio 0.4 --rate 10000 --warmup 0.1 --seconds 2.5 --verify --seed $RANDOM \
		--history "$TMP/round.h" --history-ops 300k --json "$TMP/round.jsonl"
	wait_for 30 "$TMP/round.out" 'clients x QD'
	nap 0 1000
	kill_one $victim
	survivor_ended $((1 - victim))
	check_json "$TMP/round.jsonl" 'len(k) == 1' 'k[0]["verify_errors"] == 0' 'k[0]["sent"] == k[0]["answered"]'
	"$LINCHECK" "$TMP"/round.h.* >"$TMP/round.lincheck" 2>&1 ||
		fail "not linearizable: $(cat "$TMP/round.lincheck")"
	next_run
}

round_clients() {
	local witness victim
	pick --value-size 8 1000
	serve round --daemons 2 --clients 4 --keys 1024 "${ARGS[@]}"
	timeout -k 2 30 "$BENCHKV_CLIENT" --attach "$SEGMENT.0.0" --clients 2 --depth 4 --verify --warmup 0.1 \
		--delete-ratio 0.2 --seconds 1.5 --json "$TMP/round.jsonl" >"$TMP/witness.out" 2>&1 &
	witness=$!
	E2E_ID=victim.$$ timeout -k 2 30 "$BENCHKV_CLIENT" --attach "$SEGMENT.0.$((RANDOM % 2))" --clients 2 \
		--depth $((1 + RANDOM % 8)) --warmup 0 --seconds 20 >"$TMP/victim.out" 2>&1 &
	victim=$!
	nap 200 400
	kill -9 "$(pgrep -P $victim)" || fail "the victim does not run"
	wait $victim 2>/dev/null
	wait $witness || fail "the clients that live ended with $?"
	check_json "$TMP/round.jsonl" 'k[0]["verify_errors"] == 0' 'k[0]["failed"] == 0' \
		'k[0]["sent"] == k[0]["answered"] > 10'
	# Its places are free again.
	timeout -k 2 30 "$BENCHKV_CLIENT" --attach "$SEGMENT.0.0" --clients 4 --verify --warmup 0 --seconds 0.2 \
		>"$TMP/after.out" 2>&1 || fail "four places are not free: $?"
	stop round
}

attach() { # RANK FILE SECONDS ARG...: in the background; CLIENT
	local name=$SEGMENT.$1 file=$2 seconds=$3
	shift 3
	[ "$DAEMONS" = 1 ] || name=$name.$((RANDOM % DAEMONS))
	timeout -k 2 40 "$BENCHKV_CLIENT" --attach "$name" --clients 2 --verify --warmup 0.1 --seconds "$seconds" \
		"$@" >"$TMP/$file.out" 2>"$TMP/$file.err" &
	CLIENT=$!
	BACKGROUND="$BACKGROUND $CLIENT"
}

round_served() {
	local victim=$((RANDOM % 2)) survivor theirs ours RANKS=kvd
	survivor=$((1 - victim))
	pick --daemons 1 2
	DAEMONS=${ARGS[-1]}
	pick --value-size 8 1000
	BENCHKV=$KVD start_two --clients 4 --keys 1024
	wait_for 30 "$TMP/round.err" 'rank 0 of 2 serves .* 2 ranks up'
	wait_for 30 "$TMP/round.err" 'rank 1 of 2 serves .* 2 ranks up'
	attach $victim theirs 20 --depth $((1 + RANDOM % 8))
	theirs=$CLIENT
	attach $survivor ours 3.5 --depth $((1 + RANDOM % 8)) --delete-ratio 0.1 --json "$TMP/round.jsonl"
	ours=$CLIENT
	nap 300 700
	kill_one $victim
	# On a busy machine it may not have been connected yet; then it was refused, for that reason.
	wait $theirs
	case $? in
	1) grep -q 'has ended' "$TMP/theirs.err" || fail "the dead rank's client got no error" ;;
	2) grep -q 'the server died' "$TMP/theirs.err" || fail "the dead rank's client was refused" ;;
	*) fail "the dead rank's client ended with another status than 1 and 2" ;;
	esac
	wait $ours && fail "operations failed, and their clients ended with 0"
	check_json "$TMP/round.jsonl" 'k[0]["verify_errors"] == 0' 'k[0]["failed"] > 0' \
		'k[0]["sent"] == k[0]["answered"] > 10'
	kill "$(running ranks_pids $survivor)"
	survivor_ended $survivor 0
	RANKS=benchkv
	next_run
}

round_backends() {
	local victim=$((RANDOM % 2))
	pick --backend delegation direct erpc
	pick --clients 4 8 16
	pick --depth 1 4
	pick --daemons 1 2
	pick --value-size 8 1000
	pick --delete-ratio 0 0.2
	start_two --verify --warmup 0.1 --seconds 2.5 --json "$TMP/round.jsonl"
	wait_for 30 "$TMP/round.out" 'clients x QD'
	nap 0 1000
	kill_one $victim
	survivor_ended $((1 - victim))
	check_json "$TMP/round.jsonl" 'len(k) == 1' 'k[0]["lost_peers"] == 1' 'k[0]["verify_errors"] == 0' \
		'k[0]["sent"] == k[0]["answered"]'
	next_run
}

round_hung() {
	local victim=$((RANDOM % 2)) survivor
	survivor=$((1 - victim))
	# erpc counts how often it repeated a packet, which is no time on a busy machine.
	pick --backend copyrpc delegation direct
	pick --clients 4 8
	start_two --verify --warmup 0.1 --seconds 8 --json "$TMP/round.jsonl"
	wait_for 30 "$TMP/round.out" 'clients x QD'
	nap 0 1000
	kill -STOP "$(running ranks_pids $victim)" || fail "rank $victim does not run"
	sleep 2
	! grep -q 'lost rank' "$TMP/round.err" || fail "a rank that lives was called lost"
	wait_for 6 "$TMP/round.err" "rank $survivor: lost rank $victim"
	kill -9 "$(running ranks_pids $victim)"
	survivor_ended $survivor
	check_json "$TMP/round.jsonl" 'len(k) == 1' 'k[0]["verify_errors"] == 0' 'k[0]["sent"] == k[0]["answered"]'
	next_run
}

round_start() {
	local victim=$((RANDOM % 2)) mpi pid t0
	pick --daemons 1 2 3
	two 60 --quiet "${ARGS[@]}" --clients 4 --verify --warmup 0.1 --seconds 20 >"$TMP/round.out" \
		2>"$TMP/round.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	pid=$(running ranks_pids $victim)
	nap 0 800
	t0=$(date +%s%N)
	kill -9 "$pid" || fail "rank $victim does not run"
	wait $mpi && fail "mpirun ended with 0"
	TOOK=$((($(date +%s%N) - t0) / 1000000))
	[ $TOOK -le 10000 ] || fail "the launcher ended after $TOOK ms"
	grep -q "lost rank $victim\|137\|signal 9" "$TMP/round.err" "$TMP/round.out" ||
		fail "it was not reported what died"
	next_run
}

for round in $(seq "$ROUNDS"); do
	rm -f "$TMP"/round.*
	ARGS=()
	TOOK=
	kind=${KINDS[round % ${#KINDS[@]}]}
	"round_$kind"
	ok "round $round, $kind${TOOK:+, $TOOK ms}: ${ARGS[*]}"
done
echo "the longest time until a lost rank was reported: $worst ms"
finish
