#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Every backend serves the same load with every answer verified: one rank, two ranks, several daemons,
# values of several lines, open loop and read-modify-write. A sweep over them makes its runs in the order it
# promises, draws its pictures, and stops cleanly when it is interrupted.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun

check() { # NAME BACKEND
	check_json "$TMP/$1.jsonl" 'len(r) >= 3' 'all(x["verify_errors"] == 0 for x in k)' \
		't["sent"] == t["answered"] > (10 if t["noisy"] else 1000)' 't["failed"] == 0' 't["lost_peers"] == 0' \
		"t['backend'] == '$2'" 'all(x["remote_ops_per_s"] > 0 and x["local_ops_per_s"] > 0 for x in k)'
	nothing_left "$1"
}

run() { # NAME BACKEND ARG...
	local name=$1 backend=$2
	shift 2
	two 90 --backend "$backend" --verify --quiet --seconds 0.5 --warmup 0.1 --json "$TMP/$name.jsonl" "$@" \
		>"$TMP/$name.out" 2>"$TMP/$name.err" || fail "$name: mpirun ended with $?: $(cat "$TMP/$name.err")"
	[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] || fail "$name: ranks ended with $(rank_rc 0) $(rank_rc 1)"
	tr -s ' \n' ' ' <"$TMP/$name.out" | grep -q ", backend $backend" ||
		fail "$name: the head does not name the backend"
	check "$name" "$backend"
}

backends="delegation direct erpc"
if one 30 --backend ucx --ucx-tls posix,self --clients 1 --seconds 0.1 --quiet >"$TMP/u.out" 2>"$TMP/u.err"; then
	backends="$backends ucx"
else
	grep -q 'libucx-dev' "$TMP/u.err" || fail "backend ucx neither runs nor says what it needs: $(cat "$TMP/u.err")"
	ok "ucx is not built in, and says what to install"
fi
for b in $backends; do
	tls=
	[ "$b" != ucx ] || tls="--ucx-tls rc_v,self"
	# shellcheck disable=SC2086
	{
		run "$b.1" "$b" --preset seed001 $tls
		run "$b.2" "$b" --clients 4 --depth 16 --value-size 1000 --key-size 40 $tls
		run "$b.3" "$b" --clients 4 --depth 4 --daemons 2 --rmw --dist zipf $tls
		run "$b.4" "$b" --clients 4 --depth 4 --rate 100000 --delete-ratio 0.1 $tls
	}
	# Clients on a lcore of their own, if there are two: what is made here is used there, and freed here.
	# shellcheck disable=SC2086
	timeout -k 2 60 "$SOFT_MLX5" "$BENCHKV" --no-huge -- --name "$SEGMENT" --backend "$b" --clients 4 \
		--verify --quiet --seconds 0.2 --warmup 0.1 ${tls:+--ucx-tls posix,self} \
		>"$TMP/$b.one.out" 2>"$TMP/$b.one.err" ||
		fail "$b: one rank: it ended with $?"
	check_json "$TMP/$b.1.jsonl" '0.45 < t["remote_ops_per_s"] / t["ops_per_s"] < 0.55'
	ok "backend $b"
done
for hold in 0 10; do
	run "hold.$hold" delegation --preset seed001 --flush hold --hold-us $hold
done
ok "delegation with a hold that adapts itself, and one of 10 us"

SWEEP="clients=1,4/backend=$(echo copyrpc "$backends" | tr ' ' ,)"
two 120 --sweep "$SWEEP" --repeat 2 --seconds 0.2 --warmup 0.05 --verify --json "$TMP/sweep.jsonl" \
	>"$TMP/sweep.out" 2>"$TMP/sweep.err" || fail "sweep: mpirun ended with $?: $(cat "$TMP/sweep.err")"
check_json "$TMP/sweep.jsonl" 'all(x["record"] == "total" and x["verify_errors"] == 0 for x in r)' \
	'[x["sweep"]["at"]["clients"] for x in r[::len(r) // 4]] == ["1", "4", "4", "1"]' \
	'[x["sweep"]["rising"] for x in r[::len(r) // 2]] == [True, False]' \
	'all(x["sweep"]["at"]["backend"] == x["backend"] for x in r)' \
	'all(x["clients"] == 2 * int(x["sweep"]["at"]["clients"]) for x in r)' \
	'all(x["ops_per_s"] > 1000 and sum(n for p in x["lat_hist_us"].values() for us, n in p) > 100 for x in r)'
if command -v gnuplot >/dev/null; then
	"$(dirname "$SOFT_MLX5")/crpc-plot" -o "$TMP/plots" "$TMP/sweep.jsonl" >"$TMP/plot.out" ||
		fail "crpc-plot ended with $?"
	for f in throughput-clients p99-clients latency time-line; do
		[ -s "$TMP/plots/benchkv-$f.svg" ] || fail "no picture $f"
	done
fi
ok "a sweep over clients and backends, rising and falling, with its pictures"

bad() { # NAMES ARG...
	local names=$1 rc
	shift
	one 20 "$@" >"$TMP/bad.out" 2>"$TMP/bad.err"
	rc=$?
	[ $rc = 2 ] || fail "'$*' ended with $rc"
	grep -q -- "$names" "$TMP/bad.err" || fail "'$*' does not name $names: $(cat "$TMP/bad.err")"
}
bad --sweep --sweep clients
bad --clients --sweep clients=1,100000
bad --backend --sweep backend=copyrpc,unknown
ok "what does not fit a sweep is reported before it starts"

one 60 --sweep clients=1,2,3,4,5,6,7,8 --seconds 1 --repeat 10 >"$TMP/int.out" 2>"$TMP/int.err" &
pid=$!
BACKGROUND="$BACKGROUND $pid"
wait_for 30 "$TMP/int.out" ' 1/80'
kill -INT "$(running ranks_pids)"
wait $pid || fail "the interrupted sweep ended with $?"
grep -q '^interrupted after' "$TMP/int.out" || fail "no word of the interrupt: $(cat "$TMP/int.out")"
ok "an interrupted sweep ends with what it has"
finish
