#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two ranks under Slurm, on two nodes that are this host, or with the argument "hosts" on two hosts with a
# network, a name and a /dev/shm of their own: runs that verify every answer, and a sweep, end without an
# error, each time; when a task is killed the other rank reports it and ends in bounded time; a job that
# is cancelled prints its results and leaves nothing behind. With the default TreeWidth, since Slurm's
# fences differ by it.
. "$(dirname "$0")/../e2e/benchkv_lib.sh"
left_behind() { nothing_left "$1"; } # WHAT
if [ "${1:-}" = hosts ]; then
	. "$(dirname "$0")/../e2e/hosts_lib.sh"
	left_behind() { hosts_clean "$1"; } # WHAT
	hosts_make 2
fi
. "$(dirname "$0")/slurm_lib.sh"

runs_verify() {
	local i
	for i in 1 2 3 4 5 6; do
		on_two_nodes 60 --preset seed001 --verify --quiet --seconds 0.5 --warmup 0.1 \
			>"$TMP/run.out" 2>"$TMP/run.err" || fail "run $i ended with $?"
		grep -q '^total of 2 ranks' "$TMP/run.out" || fail "run $i: a rank gave no results"
		! grep -q 'lost rank' "$TMP/run.err" || fail "run $i: a rank was lost"
	done
	left_behind "verified runs"
	ok "$i runs verify every answer"
}

# Each run of a sweep publishes new values of the same keys.
sweep_runs() {
	on_two_nodes 60 --sweep clients=1,2/flush=clocked,immediate --repeat 1 --seconds 0.2 --warmup 0.1 \
		>"$TMP/sweep.out" 2>"$TMP/sweep.err" || fail "the sweep ended with $?"
	! grep -q 'gave no results\|interrupted' "$TMP/sweep.out" || fail "the sweep is not complete"
	left_behind "sweep"
	ok "a sweep gathers every rank's results of every run"
}

task_killed() { # VICTIM
	local victim=$1 survivor=$((1 - $1)) run pid t0
	on_two_nodes 60 --preset seed001 --verify --seconds 3 --warmup 0.2 >"$TMP/kill$victim.out" \
		2>"$TMP/kill$victim.err" &
	run=$!
	BACKGROUND="$BACKGROUND $run"
	wait_for 30 "$TMP/kill$victim.out" 'clients x QD'
	sleep 1
	pid=$(ranks_pids "$victim")
	[ -n "$pid" ] || fail "rank $victim does not run"
	t0=$(date +%s%N)
	kill -9 "$pid"
	wait_for 6 "$TMP/kill$victim.err" "rank $survivor: lost rank $victim"
	told_in_time $((($(date +%s%N) - t0) / 1000000))
	wait $run && fail "srun ended with 0 though rank $victim was killed"
	[ $((($(date +%s%N) - t0) / 1000000000)) -lt 20 ] || fail "the run did not end in time"
	[ "$(rank_rc "$survivor")" = 1 ] || fail "the survivor ended with $(rank_rc "$survivor"), not 1"
	ok "task $victim killed: rank $survivor reports it and ends"
}

job_cancelled() {
	local run t0=$SECONDS
	on_two_nodes 60 --preset seed001 --verify --seconds 30 --warmup 0.2 >"$TMP/cancel.out" \
		2>"$TMP/cancel.err" &
	run=$!
	BACKGROUND="$BACKGROUND $run"
	wait_for 30 "$TMP/cancel.out" 'clients x QD'
	sleep 1
	on_node 1 timeout 10 scancel "$(on_node 1 squeue -h -t RUNNING -o %i)" || fail "scancel ended with $?"
	wait $run
	[ $((SECONDS - t0)) -lt 25 ] || fail "the job did not end in time"
	grep -q 'interrupted: results so far' "$TMP/cancel.out" || fail "no results of a cancelled job"
	[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] || fail "the ranks ended with $(rank_rc 0) and $(rank_rc 1)"
	left_behind "scancel"
	ok "a cancelled job prints its results and leaves nothing behind"
}

cluster_start
runs_verify
sweep_runs
task_killed 1
task_killed 0
job_cancelled # It took the names of the dead over, so they are gone too.
finish
