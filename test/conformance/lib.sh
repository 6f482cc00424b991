# SPDX-License-Identifier: BSD-3-Clause
#
# For the conformance tests: foreign RDMA programs, unmodified, on the software ConnectX. Sourced.
# Needs SOFT_MLX5 (usertools/soft-mlx5) and SOFT_MLX5_LIB in the environment.
set -u

NAME=$(basename "$0" .sh)
TMP=$(mktemp -d "${TMPDIR:-/tmp}/soft_mlx5-$NAME.XXXXXX")
PIDS=
CHECKS=0
PROGRAM=
# A net of this build alone, the same at each run so that nothing piles up.
SOFT_MLX5_NET=test.$NAME.$(cksum <<<"$SOFT_MLX5_LIB" | cut -d' ' -f1)
export SOFT_MLX5_NET

cleanup() {
	for pid in $PIDS; do
		kill -9 "$pid" 2>/dev/null
	done
	rm -rf "$TMP"
	rm -rf "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET" # the wire of our own net
}
trap cleanup EXIT

# ran [env VAR=VALUE...] PROGRAM ARG...: what the next ok or fail is about. TRANSPORT, if set, is used
# where the arguments name none.
ran() {
	while [[ $1 == env || $1 == *=* ]]; do shift; done
	PROGRAM=$1
	WHAT=$(sed -E 's/ -(l?p|a) [^ ]+//g; s/^ //' <<<" ${*:2}")
	case " $* " in
	*' -c DC '*) OVER=DC ;;
	*' -c UC '* | ' ibv_uc_'*) OVER=UC ;;
	*' -c UD '* | ' ibv_ud_'* | ' udaddy '* | ' mckey '*) OVER=UD ;;
	*) OVER=${TRANSPORT:-RC} ;;
	esac
	[ "${SOFT_MLX5_WIRE:-}" != udp ] || OVER+=' over UDP'
	[ -z "${SOFT_MLX5_FAULTS:-}" ] || WHAT+=', packets are lost'
}

record() { # passed|failed|skipped|refused [REASON]: a line of JSON about what ran
	[ -n "${CONFORMANCE_RECORD:-}" ] && [ -n "$PROGRAM" ] || return 0
	local text=("$PROGRAM" "$OVER" "${WHAT//$TMP\//}" "$@" '')
	text=("${text[@]//[\"\\[:cntrl:]]/}")
	printf '{"program": "%s", "transport": "%s", "what": "%s", "result": "%s", "reason": "%s"}\n' "${text[@]:0:5}" \
		>>"$CONFORMANCE_RECORD"
	PROGRAM=
}

fail() {
	echo "FAIL: $*"
	record failed "$*"
	for f in "$TMP"/*.out; do
		[ -s "$f" ] && { echo "--- $(basename "$f")"; tail -n 40 "$f"; }
	done
	exit 1
}

ok() {
	record passed
	CHECKS=$((CHECKS + 1))
	echo "ok: $*"
}

# await_line PATTERN FILE [SECONDS]: until a program that runs has printed it; status 1: it has not.
await_line() {
	for _ in $(seq $((${3:-5} * 20))); do
		! grep -q "$1" "$2" || return 0
		sleep 0.05
	done
	return 1
}

# Skips the whole script unless all programs are there.
need() {
	for prog in "$@"; do
		command -v "$prog" >/dev/null && continue
		TRANSPORT=- ran "$prog"
		record skipped "$prog is not installed"
		echo "skip: $prog is not installed"
		exit 77
	done
}

finish() {
	[ "$CHECKS" -gt 0 ] || fail "nothing was checked"
	echo "$CHECKS checks passed"
	exit 0
}

is_listening() {
	grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6
}

# A TCP port that is not listened on now, below those that the kernel gives out by itself.
free_port() {
	local port
	for _ in $(seq 100); do
		port=$((15000 + (RANDOM * 32768 + RANDOM) % 15000))
		is_listening $port || { echo $port; return; }
	done
	fail "no free port"
}

on() { # SECONDS CMD...: CMD on the software adapter, bounded
	local limit=$1
	shift
	timeout -k 2 "$limit" "$SOFT_MLX5" "$@"
}

# start_server FILE SECONDS PORT CMD...: in the background, until it listens; SERVER is its pid.
start_server() {
	local out=$1 limit=$2 port=$3
	shift 3
	on "$limit" "$@" >"$out" 2>&1 &
	SERVER=$!
	PIDS="$PIDS $SERVER"
	for _ in $(seq 400); do
		is_listening "$port" && return
		kill -0 "$SERVER" 2>/dev/null || fail "the server ended before it listened: $*"
		sleep 0.05
	done
	fail "the server does not listen: $*"
}

# pair SECONDS CMD...: CMD as server and, with 127.0.0.1 behind it, as client. Both must succeed.
# {PORT} in CMD is replaced. Outputs: $TMP/server.out, $TMP/client.out.
pair() {
	local limit=$1 port cmd=() arg rc
	shift
	ran "$@"
	port=$(free_port)
	for arg in "$@"; do
		cmd+=("${arg//\{PORT\}/$port}")
	done
	start_server "$TMP/server.out" "$limit" "$port" "${cmd[@]}"
	on "$limit" "${cmd[@]}" 127.0.0.1 >"$TMP/client.out" 2>&1
	rc=$?
	[ $rc -eq 0 ] || fail "client of '$*' ended with $rc"
	wait "$SERVER"
	rc=$?
	[ $rc -eq 0 ] || fail "server of '$*' ended with $rc"
	! grep -q '^soft_mlx5:' "$TMP"/*.out || fail "'$*' was refused something"
	! grep -q 'runtime error:' "$TMP"/*.out || fail "'$*' has undefined behaviour"
}

# pingpong TOOL ITERATIONS ARG...: one of rdma-core's between two processes; both report a result.
pingpong() {
	local tool=$1 n=$2
	shift 2
	pair 30 "$tool" -p '{PORT}' -n "$n" "$@"
	for side in server client; do
		grep -Eq "^$n iters in [0-9.]+ seconds" "$TMP/$side.out" ||
			fail "$tool $*: $side reports no result"
		! grep -qi 'invalid data' "$TMP/$side.out" || fail "$tool $*: wrong data"
	done
	ok "$tool -n $n $*: $(grep usec/iter "$TMP/client.out" | sed 's/.* = //')"
}

# ---- two hosts: network namespaces of our own, joined by a veth pair ----

hosts_remove() {
	ip netns del "$A" 2>/dev/null
	ip netns del "$B" 2>/dev/null
	rm -rf "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET".10.77.*
}

# A and B are their names; what runs there has the wire of UDP.
hosts_make() {
	A=crpc-a-$$
	B=crpc-b-$$
	ADDR_A=10.77.0.1
	trap 'hosts_remove; cleanup' EXIT
	if ! ip netns add "$A" 2>"$TMP/netns.err"; then
		echo "skip: no network namespaces here: $(head -1 "$TMP/netns.err")"
		exit 77
	fi
	if ! { ip netns add "$B" && ip link add "va$$" netns "$A" type veth peer name "vb$$" netns "$B"; } \
		2>"$TMP/veth.err"; then
		echo "skip: no veth pairs here: $(head -1 "$TMP/veth.err")"
		exit 77
	fi
	ip -n "$A" addr add $ADDR_A/24 dev "va$$" && ip -n "$B" addr add 10.77.0.2/24 dev "vb$$" &&
		ip -n "$A" link set "va$$" up && ip -n "$B" link set "vb$$" up &&
		ip -n "$A" link set lo up && ip -n "$B" link set lo up || fail "cannot set up the namespaces"
	export SOFT_MLX5_WIRE=udp
}

on_host() { # HOST SECONDS CMD...
	local host=$1 limit=$2
	shift 2
	SOFT_MLX5_PCAP=${CAPTURE:+$TMP/$host.pcap} ip netns exec "$host" timeout -k 2 "$limit" "$SOFT_MLX5" "$@"
}

listens() { # HOST PORT
	ip netns exec "$1" cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
		grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$2") [0-9A-F]*:0000 0A "
}

serve_host() { # PORT SECONDS CMD...: on A in the background, until it listens; SERVER is its pid.
	local port=$1 limit=$2
	shift 2
	ran "$@"
	on_host "$A" "$limit" "$@" >"$TMP/server.out" 2>&1 &
	SERVER=$!
	PIDS="$PIDS $SERVER"
	for _ in $(seq 400); do
		listens "$A" "$port" && return
		kill -0 "$SERVER" 2>/dev/null || fail "the server ended before it listened: $*"
		sleep 0.05
	done
	fail "the server does not listen: $*"
}
