#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# benchkv_faults.sh [--seeds N] [--from SEED] [--seconds T]: two ranks under random faults of their cards,
# the kinds below in turn. What all clients saw is linearizable and no answer is wrong, whatever happens; as
# long as no queue pair broke, every call is answered and no rank is lost.
#
#     udp    a network that loses, doubles, delays and corrupts, RoCEv2 over UDP
#     shm    the same on the wire of shared memory
#     turns  the network of one rank or of both is bad and good in turn while they run
#     cards  requests are refused and WQEs fail: queue pairs break, and the ranks lose each other
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun

SEEDS=4
FROM=1
SECONDS_EACH=1
KINDS=(udp shm turns cards)
seed=0 kind=none FAULTS='' ARGS=()
while [ $# -gt 1 ]; do
	case $1 in
	--seeds) SEEDS=$2 ;;
	--from) FROM=$2 ;;
	--seconds) SECONDS_EACH=$2 ;;
	*) fail "unknown option $1" ;;
	esac
	shift 2
done
export SOFT_MLX5_NETDEV=lo
trap 'echo "seed $seed ($kind), faults $FAULTS: ${ARGS[*]}"; cleanup
	rm -rf "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET.127.0.0.1"' EXIT

# Adds "OPTION WORD" with one of the words to ARGS. Not by $(...), whose RANDOM would not go on here.
pick() { # OPTION WORD...
	local option=$1
	shift
	shift $((RANDOM % $#))
	ARGS+=("$option" "$1")
}

# FAULTS gets each of the kinds with a probability of up to MOST / 10000, and a seed.
faults_pick() { # MOST KIND...
	local most=$1 name
	shift
	FAULTS=seed=$seed
	for name in "$@"; do
		[ $((RANDOM % 3)) = 0 ] || FAULTS+=$(printf ',%s=0.%04d' "$name" $((1 + RANDOM % most)))
	done
}

args_pick() {
	ARGS=(--warmup 0.1 --depth 1 --seconds "$SECONDS_EACH" --seed "$seed" --verify --cas --quiet)
	# What is asked of one key at the same time is what its proof takes long for.
	pick --clients 2 4 8
	pick --keys 5 10 40
	pick --read-ratio 0.3 0.5 0.8
	pick --delete-ratio 0 0.1 0.2
	pick --rate 5000 20000 40000
	pick --value-size 8 64 1000
}

# Until the run in the background ends: bad, then good, for a quarter of a second each.
turns() {
	local context
	while kill -0 "$1" 2>/dev/null; do
		context=()
		[ $((RANDOM % 2)) = 0 ] || context=(--context $((RANDOM % 2)))
		faults_pick 300 drop dup delay reorder corrupt rnr
		"$SOFT_MLX5" faults --net "$SOFT_MLX5_NET" "${context[@]}" "$FAULTS" >/dev/null 2>&1
		sleep 0.25
		"$SOFT_MLX5" faults --net "$SOFT_MLX5_NET" off >/dev/null 2>&1
		sleep 0.25
	done
}

# The run of this seed; its exit status in RC.
run() {
	local mpi
	rm -f "$TMP"/h.* "$TMP/run.jsonl"
	MPIRUN_ARGS=--enable-recovery
	two 90 "${ARGS[@]}" --history "$TMP/h" --json "$TMP/run.jsonl" >"$TMP/run.out" \
		2>"$TMP/run.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	[ "$kind" != turns ] || turns $mpi
	wait $mpi
	RC=$?
	MPIRUN_ARGS=
}

# A rank that gets no core for a second is taken for lost, where a machine has more to do than cores.
lost_by_load() {
	local load
	read -r load _ </proc/loadavg
	[ "${load%.*}" -gt $((2 * $(nproc))) ] && grep -q 'it did not answer for' "$TMP/run.err"
}

for seed in $(seq "$FROM" $((FROM + SEEDS - 1))); do
	kind=${KINDS[$(((seed - 1) % ${#KINDS[@]}))]}
	RANDOM=$((seed % 32768))
	FAULTS=
	unset SOFT_MLX5_FAULTS SOFT_MLX5_WIRE
	args_pick
	case $kind in
	udp) export SOFT_MLX5_WIRE=udp && faults_pick 200 drop dup delay reorder corrupt rnr ;;
	shm) faults_pick 300 drop dup delay reorder corrupt rnr ;;
	cards) faults_pick 8 inval access op prot badresp ;;
	esac
	[ -z "$FAULTS" ] || export SOFT_MLX5_FAULTS=$FAULTS
	run
	unset SOFT_MLX5_FAULTS
	if [ "$kind" != cards ] && ! lost_by_load; then
		[ "$RC $(rank_rc 0) $(rank_rc 1)" = "0 0 0" ] ||
			fail "mpirun ended with $RC, ranks with $(rank_rc 0) $(rank_rc 1)"
		check_json "$TMP/run.jsonl" 'len(k) == 2' 't["sent"] == t["answered"] > 10' \
			't["failed"] == 0' 't["lost_peers"] == 0'
	fi
	grep -q 'verify_errors [1-9]' "$TMP/run.out" && fail "answers were wrong"
	[ "$(ls "$TMP"/h.* | wc -l)" = 2 ] || fail "a history is missing"
	"$LINCHECK" "$TMP"/h.* >"$TMP/lincheck.out" 2>"$TMP/lincheck.err" ||
		fail "not linearizable: $(cat "$TMP/lincheck.out" "$TMP/lincheck.err")"
	nothing_left "seed $seed"
	ok "seed $seed, $kind, ranks ended with $(rank_rc 0) $(rank_rc 1): $(cat "$TMP/lincheck.out")"
done
trap 'cleanup; rm -rf "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET.127.0.0.1"' EXIT
finish
