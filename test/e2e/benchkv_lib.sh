# SPDX-License-Identifier: BSD-3-Clause
#
# For the end-to-end tests of benchkv. Sourced. Needs BENCHKV, BENCHKV_CLIENT, KVD, SOFT_MLX5 and
# SOFT_MLX5_LIB in the environment.
set -u

NAME=$(basename "$0" .sh)
TMP=$(mktemp -d "${TMPDIR:-/tmp}/$NAME.XXXXXX")
CHECKS=0
# Marks the processes of this test, to find the rank to kill.
export E2E_ID=$$
SOFT_MLX5_NET=test.$NAME.$(cksum <<<"$SOFT_MLX5_LIB" | cut -d' ' -f1)
export SOFT_MLX5_NET
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
BACKGROUND=
# Segments and runtime folders of this test only: others may run on this machine.
SEGMENT=e2e.$$
export RUNTIME_DIRECTORY=$TMP/run
mkdir "$RUNTIME_DIRECTORY"

cleanup() {
	for pid in $BACKGROUND $(ranks_pids) $(pids_of benchkv-client) $(pids_of kvd); do
		kill -9 "$pid" 2>/dev/null
	done
	rm -rf "$TMP" "/dev/shm/crpc.$SEGMENT"*
	rm -rf "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET"
}
trap cleanup EXIT

fail() {
	echo "FAIL: $*"
	for f in "$TMP"/*.out "$TMP"/*.err; do
		[ -s "$f" ] && { echo "--- $(basename "$f")"; tail -n 40 "$f"; }
	done
	exit 1
}

ok() {
	CHECKS=$((CHECKS + 1))
	echo "ok: $*"
}

finish() {
	[ "$CHECKS" -gt 0 ] || fail "nothing was checked"
	echo "$CHECKS checks passed"
	exit 0
}

need() {
	for prog in "$@"; do
		command -v "$prog" >/dev/null || { echo "skip: $prog is not installed"; exit 77; }
	done
}

# Files that processes of this test left: segments, the wires of software adapters, DPDK's telemetry sockets.
leftovers() {
	ls "/dev/shm/crpc.$SEGMENT"* 2>/dev/null
	ls -d "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET"* 2>/dev/null
	ls "$RUNTIME_DIRECTORY"/dpdk/*/* 2>/dev/null
}

# Waits until no rank of this test runs, then looks for what it left.
nothing_left() { # WHAT
	local left
	for _ in $(seq 50); do
		[ -z "$(ranks_pids)" ] && break
		sleep 0.1
	done
	[ -z "$(ranks_pids)" ] || fail "$1: processes are left: $(ranks_pids)"
	left=$(comm -13 <(echo "$BEFORE" | sort -u) <(leftovers | sort -u))
	[ -z "$left" ] || fail "$1: left behind: $left"
}

env_of() { # PID NAME
	tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" | sed -n "s/^$2=//p"
}

# Pids of the processes of this test with a name.
pids_of() { # NAME
	local pid
	for pid in $(pgrep -x "$1"); do
		[ "$(env_of "$pid" E2E_ID)" = "$E2E_ID" ] && echo "$pid"
	done
}

# Pids of the benchkv processes of this test, or of the program RANKS; with a rank, of that one.
RANKS=benchkv
ranks_pids() { # [RANK]
	local pid
	for pid in $(pids_of "$RANKS"); do
		[ $# = 0 ] || [ "$(env_of "$pid" PMIX_RANK)" = "$1" ] || continue
		echo "$pid"
	done
}

# running COMMAND...: the pids it prints, as soon as there is one; a look at /proc may miss a process
# while others come and go.
running() {
	local pids
	for _ in $(seq 100); do
		pids=$("$@")
		[ -z "$pids" ] || break
		sleep 0.1
	done
	echo "$pids"
}

one() { # SECONDS ARG...: one rank alone
	local limit=$1
	shift
	timeout -k 2 "$limit" "$BENCHKV" --no-huge -- --name "$SEGMENT" "$@"
}

# A service in the background, ready for clients of other processes; SERVICE waits for its end.
serve() { # NAME ARG...: its output and the file with its pid have that name
	local ready=$TMP/$1.ready
	timeout -k 2 120 "$KVD" --no-huge -m 64 -- --name "$SEGMENT" --ready-file "$ready" "${@:2}" \
		>"$TMP/$1.out" 2>"$TMP/$1.err" &
	SERVICE=$!
	BACKGROUND="$BACKGROUND $SERVICE"
	wait_for 30 "$ready" '[0-9]'
}

stop() { # NAME: of such a service, which leaves nothing
	kill "$(cat "$TMP/$1.ready")" || fail "$1: the service did not survive it"
	wait "$SERVICE" || fail "$1: the service ended with $?"
	nothing_left "$1"
}

# Each rank keeps its exit code: what mpirun makes of them is its own affair.
cat >"$TMP/rank.sh" <<'EOF'
#!/bin/bash
trap : INT TERM # the signal is for the rank; this waits for it
"$@"
echo $? >"$E2E_TMP/rc.$PMIX_RANK"
exit "$(cat "$E2E_TMP/rc.$PMIX_RANK")"
EOF
chmod +x "$TMP/rank.sh"
export E2E_TMP=$TMP

# MPIRUN_ARGS may hold more arguments for mpirun.
MPIRUN_ARGS=
two() { # SECONDS ARG...: two ranks, a core each if there are two
	local limit=$1 bind=(--oversubscribe --bind-to none)
	shift
	[ "$(nproc)" -lt 2 ] || bind=(--map-by core --bind-to core)
	rm -f "$TMP"/rc.*
	# shellcheck disable=SC2086 # a list
	timeout -k 2 "$limit" mpirun -np 2 "${bind[@]}" $MPIRUN_ARGS "$TMP/rank.sh" "$SOFT_MLX5" \
		"$BENCHKV" --no-huge -- --name "$SEGMENT" "$@"
}

rank_rc() { # RANK
	cat "$TMP/rc.$1" 2>/dev/null || echo none
}

# check_json FILE PYTHON_EXPRESSION...: each must be true; r is the list of results, t the total, k the
# ranks, d the daemons (where a rank has more than one).
check_json() {
	local file=$1
	shift
	python3 - "$file" "$@" <<'EOF' || fail "results in $file: $*"
import json, sys
r = [json.loads(line) for line in open(sys.argv[1])]
t = [x for x in r if x["record"] == "total"][-1] if any(x["record"] == "total" for x in r) else None
k = [x for x in r if x["record"] == "rank"]
d = [x for x in r if x["record"] == "daemon"]
for e in sys.argv[2:]:
    if not eval(e):
        print("not true:", e)
        for x in r:
            print(json.dumps(x))
        sys.exit(1)
EOF
}

wait_for() { # SECONDS FILE TEXT: until the text is in the file
	for _ in $(seq $(($1 * 20))); do
		grep -q -- "$3" "$2" 2>/dev/null && return
		sleep 0.05
	done
	fail "'$3' did not appear in $2 within $1 s"
}

# The loss of a rank is reported within 2 s; a machine that has more to do than cores lets both sides wait.
told_in_time() { # MS
	local limit=2000 load
	read -r load _ </proc/loadavg
	[ "${load%.*}" -le $((2 * $(nproc))) ] || limit=4000
	[ "$1" -le $limit ] || fail "the loss was reported after $1 ms"
}

need python3 pgrep
BEFORE=$(leftovers)
