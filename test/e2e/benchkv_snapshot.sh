#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Snapshots: a launcher that kills its ranks while they write, two runs with one path, what a killed writer
# left, a folder that is missing, a rank without a file, and versions that rise over a kill.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun
BASE=(--clients 2 --keys 2000 --quiet --warmup 0 --cooldown 0)

# Each file takes 3 s to become lasting: longer than the launcher waits before it kills. What comes before
# ASan's runtime here needs nothing of it.
slow() { # COMMAND...
	SLOW_SYNC_S=3 LD_PRELOAD=$SLOW_SYNC \
		ASAN_OPTIONS=verify_asan_link_order=0${ASAN_OPTIONS:+:$ASAN_OPTIONS} "$@"
}

wait_file() { # SECONDS FILE
	for _ in $(seq $(($1 * 20))); do
		[ -s "$2" ] && return
		sleep 0.05
	done
	fail "$2 did not appear within $1 s"
}

wait_gone() { # SECONDS FILE
	for _ in $(seq $(($1 * 20))); do
		[ -e "$2" ] || return
		sleep 0.05
	done
	fail "$2 is still there after $1 s"
}

restores() { # NAME RANKS PATH: and every answer is right
	if [ "$2" = 1 ]; then
		one 60 "${BASE[@]}" --verify --seconds 0.3 --restore "$3" --json "$TMP/$1.jsonl"
	else
		two 60 "${BASE[@]}" --verify --seconds 0.3 --restore "$3" --json "$TMP/$1.jsonl"
	fi >"$TMP/$1.out" 2>"$TMP/$1.err" || fail "$1: the run that restores ended with $?"
	check_json "$TMP/$1.jsonl" 't["verify_errors"] == 0' 't["sent"] == t["answered"] > 4' 't["failed"] == 0'
}

both_written() { # NAME PATH
	wait_file 20 "$2.0"
	wait_file 20 "$2.1"
	wait_gone 20 "$2.0.new"
	wait_gone 20 "$2.1.new"
	restores "$1.restore" 2 "$2"
	check_json "$TMP/$1.restore.jsonl" 't["not_found"] == 0'
}

# The launcher sends SIGTERM, and SIGKILL a second later.
interrupted() { # SIGNAL
	local mpi
	slow two 60 "${BASE[@]}" --seconds 50 --snapshot "$TMP/int$1" --json "$TMP/int$1.jsonl" \
		>"$TMP/int$1.out" 2>"$TMP/int$1.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	wait_for 30 "$TMP/int$1.out" 'clients x QD'
	sleep 0.5
	kill "-$1" "$(running pids_of mpirun)" || fail "mpirun does not run"
	wait $mpi
	both_written "int$1" "$TMP/int$1"
	check_json "$TMP/int$1.jsonl" 't["interrupted"]'
	grep -q 'snapshot is completed' "$TMP/int$1.err" || fail "SIG$1: not a word of the snapshot"
	ok "SIG$1 to the launcher: both ranks' snapshots are written"
}

while_writing() {
	local mpi
	slow two 60 "${BASE[@]}" --seconds 0.3 --snapshot "$TMP/late" >"$TMP/late.out" 2>"$TMP/late.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	wait_file 30 "$TMP/late.0.new"
	wait_file 30 "$TMP/late.1.new"
	kill -TERM "$(running pids_of mpirun)" || fail "mpirun does not run"
	wait $mpi
	both_written late "$TMP/late"
	ok "SIGTERM to the launcher while the snapshots are written"
}

one_path() {
	local first rc t0
	one 60 "${BASE[@]}" --seconds 50 --snapshot "$TMP/path" >"$TMP/first.out" 2>"$TMP/first.err" &
	first=$!
	BACKGROUND="$BACKGROUND $first"
	wait_for 30 "$TMP/first.out" 'clients x QD'
	SEGMENT=$SEGMENT.b one 60 "${BASE[@]}" --seconds 0.2 --snapshot "$TMP/path" >"$TMP/second.out" \
		2>"$TMP/second.err"
	rc=$?
	[ $rc = 2 ] || fail "the second run with one --snapshot path ended with $rc"
	[ "$(grep -c "snapshot $TMP/path.0: another run" "$TMP/second.err")" = 1 ] || fail "it did not say why"
	kill -INT "$(running ranks_pids)"
	wait $first || fail "the first run ended with $?"
	restores path 1 "$TMP/path"
	[ ! -e "$TMP/path.0.new" ] || fail "a lock file is left"
	ok "a second run with the same path is refused at its start"
}

# A kill takes the writer too: the old snapshot is there, and what was begun goes at the next start.
killed() { # WHAT OPTION: the next run's
	cp "$TMP/path.0" "$TMP/$1.0"
	slow one 60 "${BASE[@]}" --seconds 0.2 --snapshot "$TMP/$1" >"$TMP/$1.out" 2>"$TMP/$1.err" &
	BACKGROUND="$BACKGROUND $!"
	wait_file 30 "$TMP/$1.0.new"
	for pid in $(ranks_pids); do
		kill -9 "$pid"
	done
	wait $! 2>/dev/null
	[ -s "$TMP/$1.0.new" ] || fail "$1: nothing was left to clean"
	one 60 "${BASE[@]}" --verify --seconds 0.2 "$2" "$TMP/$1" --restore "$TMP/$1" >"$TMP/$1.out" 2>"$TMP/$1.err" ||
		fail "$1: the next run ended with $?"
	grep -q "$TMP/$1.0.new.* is removed" "$TMP/$1.err" || fail "$1: the next run did not say what it removed"
	[ ! -e "$TMP/$1.0.new" ] || fail "$1: the unfinished file is still there"
	ok "$1: a killed run's unfinished file is removed, the snapshot before it is read"
}

no_folder() {
	local rc
	one 60 "${BASE[@]}" --seconds 20 --snapshot "$TMP/none/at/all" >"$TMP/none.out" 2>"$TMP/none.err"
	rc=$?
	[ $rc = 2 ] || fail "a folder that does not exist: $rc"
	grep -q "snapshot $TMP/none/at/all.0: .*No such file" "$TMP/none.err" || fail "it did not say why"
	grep -q 'clients x QD' "$TMP/none.out" && fail "it ran first"
	ok "a folder that does not exist is refused at the start"
}

# The folder goes while it runs, whose parent ignores SIGCHLD: a process keeps that.
folder_goes() {
	local run rc
	mkdir "$TMP/goes"
	timeout -k 2 60 env --ignore-signal=CHLD "$BENCHKV" --no-huge -- --name "$SEGMENT" "${BASE[@]}" \
		--seconds 50 --snapshot "$TMP/goes/snap" >"$TMP/goes.out" 2>"$TMP/goes.err" &
	run=$!
	BACKGROUND="$BACKGROUND $run"
	wait_for 30 "$TMP/goes.out" 'clients x QD'
	rm -r "$TMP/goes"
	kill -INT "$(running ranks_pids)"
	wait $run
	rc=$?
	[ $rc = 1 ] || fail "a snapshot that could not be written: $rc"
	[ "$(grep -c "snapshot $TMP/goes/snap.0: cannot be written" "$TMP/goes.err")" = 1 ] || fail "it did not say so"
	ok "a snapshot that cannot be written fails the run"
}

one_rank_without() {
	rm "$TMP/late.1"
	restores lacking 2 "$TMP/late"
	check_json "$TMP/lacking.jsonl" 't["not_found"] > 0'
	[ "$(grep -c "$TMP/late.1 .*begins without keys" "$TMP/lacking.err")" = 1 ] ||
		fail "it did not say what is missing"
	rm "$TMP/late.0"
	two 60 "${BASE[@]}" --seconds 0.3 --restore "$TMP/late" >"$TMP/nothing.out" 2>"$TMP/nothing.err" &&
		fail "a run without any snapshot began"
	[ "$(grep -c "restore: .*$TMP/late" "$TMP/nothing.err")" = 1 ] || fail "it did not say what is missing"
	ok "a rank without a snapshot begins without keys; without any the run is refused"
}

version_of_put() { # NAME ARG...: on a service that begins with them, and is killed
	local name=$1
	shift
	one 60 --clients 0 --serve 2 --keys 2000 --quiet --seconds 50 "$@" >"$TMP/$name.out" 2>"$TMP/$name.err" &
	BACKGROUND="$BACKGROUND $!"
	wait_for 30 "$TMP/$name.out" 'benchkv-client --attach'
	VERSION=$("$KV_LARGE" "$SEGMENT" version) || fail "$name: no version"
	kill -9 "$(running ranks_pids)"
	wait $! 2>/dev/null
}

versions_rise() {
	local before
	version_of_put before
	before=$VERSION
	version_of_put after
	[ "$VERSION" -gt "$before" ] || fail "a killed run's version $before, then $VERSION"
	version_of_put restored --restore "$TMP/path"
	[ "$VERSION" -gt "$before" ] || fail "a killed run's version $before, then $VERSION with --restore"
	ok "versions rise over a kill"
}

interrupted INT
interrupted TERM
while_writing
one_path
killed claimed --snapshot
killed restored --json
no_folder
folder_goes
one_rank_without
versions_rise
restores end 1 "$TMP/path" # takes over what the killed left
nothing_left "snapshots"
finish
