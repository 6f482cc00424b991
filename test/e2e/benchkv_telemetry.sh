#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# /crpc/benchkv/stats while it runs: what the telemetry socket shows grows, adds up over the daemons, agrees
# with the results at the end, and bad parameters are refused.
. "$(dirname "$0")/benchkv_lib.sh"

# ask SOCKET COMMAND...: one line of JSON for each, null where it was refused.
ask() {
	timeout 20 python3 - "$@" <<'EOF'
import json, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(5)
s.connect(sys.argv[1])
size = json.loads(s.recv(1024).decode())["max_output_len"]
for command in sys.argv[2:]:
    s.send(command.encode())
    print(json.dumps(json.loads(s.recv(size).decode())[command.split(",")[0]]))
EOF
}

# holds PYTHON_EXPRESSION...: each must be true of the answers a (list) in the file answers.jsonl.
holds() {
	python3 - "$TMP/answers.jsonl" "$@" <<'EOF' || fail "telemetry: $*"
import json, sys
a = [json.loads(line) for line in open(sys.argv[1])]
for e in sys.argv[2:]:
    if not eval(e):
        print("not true:", e)
        for x in a:
            print(json.dumps(x))
        sys.exit(1)
EOF
}

# The telemetry socket of a process: each first sends who it is.
find_socket() { # PID
	timeout 20 python3 - "$1" "$RUNTIME_DIRECTORY" <<'EOF'
import glob, json, socket, sys, time
for _ in range(100):
    for path in glob.glob(sys.argv[2] + "/dpdk/*/dpdk_telemetry.v2*"):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(5)
                s.connect(path)
                if json.loads(s.recv(1024))["pid"] == int(sys.argv[1]):
                    print(path)
                    sys.exit()
        except OSError:
            pass
    time.sleep(0.1)
EOF
}

STATS=/crpc/benchkv/stats
WORDS='["ops", "local", "forwarded", "remote", "of_daemons", "of_ranks", "failed", "bad", "turns",
	"empty_turns", "clients", "active_clients", "open", "waiting", "waited", "timed_turns", "keys",
	"net_batches", "net_again_window", "net_again_large", "net_resets", "net_round_trips", "net_queue_ns",
	"net_wire_ns", "net_peer_ns"]'

one 60 --daemons 2 --clients 6 --depth 2 --verify --seconds 50 --warmup 0.1 --json "$TMP/one.jsonl" \
	>"$TMP/one.out" 2>"$TMP/one.err" &
run=$!
BACKGROUND="$BACKGROUND $run"
wait_for 30 "$TMP/one.err" 's left'
pid=$(running ranks_pids)
socket=$(find_socket "$pid")
[ -n "$socket" ] || fail "there is no telemetry socket"
ask "$socket" $STATS $STATS,0 $STATS,1 >"$TMP/answers.jsonl" || fail "it does not answer"
sleep 1
ask "$socket" $STATS $STATS,2 $STATS,x $STATS,-1 $STATS,1,2 / >>"$TMP/answers.jsonl" || fail "it does not answer"
holds "all(type(x[w]) is int for x in a[:4] for w in $WORDS)" \
	'all(x["rank"] == 0 and x["daemons"] == 2 for x in a[:4])' \
	'a[0]["clients"] == 6 and a[1]["clients"] == 3 and a[2]["clients"] == 3' \
	'0 < a[3]["active_clients"] <= 6' 'a[0]["keys"] == 1024 == a[1]["keys"] + a[2]["keys"]' \
	'a[1]["ops"] + a[2]["ops"] >= a[0]["ops"] > 1000' \
	'a[0]["ops"] == a[0]["local"] + a[0]["forwarded"] + a[0]["remote"]' \
	'a[3]["ops"] > a[0]["ops"]' 'a[3]["turns"] > a[0]["turns"]' \
	'a[3]["of_daemons"] > 0 and a[3]["remote"] == 0 and a[3]["bad"] == 0' \
	'a[3]["timed_turns"] > 0' 'sum(a[3]["phase_mean_ns"].values()) > 0' \
	'0 < sum(a[3]["taken_per_turn"]) <= a[3]["turns"]' \
	'a[4:8] == [None] * 4' '"/crpc/benchkv/stats" in a[8]'
ok "one rank of two daemons: counters grow and add up, bad parameters are refused"
OPS=$(python3 -c 'import json, sys
print(json.loads(open(sys.argv[1]).readlines()[3])["ops"])' "$TMP/answers.jsonl")
TOP=$(dirname "$SOFT_MLX5")/crpc-top
"$TOP" --once --json --show kv --by-daemon --interval 0.5 >"$TMP/answers.jsonl" 2>"$TMP/top.err" ||
	fail "crpc-top ended with $?"
holds '[(x["rank"], x["daemon"]) for x in a] == [(0, 0), (0, 1)]' 'sum(x["ops"] for x in a) > 100' \
	'all(x["clients"] == 3 and x["clients_ns"] > 0 and 0 <= x["empty_pct"] <= 100 for x in a)' \
	'all(abs(x["ops"] - x["local"] - x["forwarded"]) <= 0.001 * x["ops"] + 1 for x in a)' \
	'all(x["wire_us"] == 0 for x in a)'
"$TOP" --once --json --show kv --interval 1 >"$TMP/answers.jsonl" 2>"$TMP/top.err" || fail "crpc-top ended with $?"
holds 'len(a) == 1 and a[0]["ops"] > 100'
# On a terminal: it draws, and q ends it.
timeout 20 python3 - "$TOP" >"$TMP/top.out" 2>&1 <<'EOF' || fail "crpc-top on a terminal ended with $?"
import os, pty, sys
os.environ["TERM"] = "xterm"
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "--interval", "0.2"])
seen = b""
while b"M ops/s" not in seen or b"RANK" not in seen:
    seen += os.read(fd, 65536)
os.write(fd, b"q")
try:
    while os.read(fd, 65536):
        pass
except OSError:
    pass  # it closed the terminal
sys.exit(os.waitpid(pid, 0)[1] != 0)
EOF
"$TOP" --once --dir "$TMP" --show kv no_program >"$TMP/top.out" 2>"$TMP/top.err" &&
	fail "crpc-top found ranks where none are"
grep -q 'no program of copyrpc no_program runs here' "$TMP/top.err" || fail "crpc-top did not say so"
# Without a terminal: a look each interval, and Ctrl-C ends it well.
python3 - "$TOP" "$pid" >"$TMP/top.out" 2>&1 <<'EOF' || fail "crpc-top without a terminal ended with $?"
import json, signal, subprocess, sys
p = subprocess.Popen([sys.argv[1], "--json", "--interval", "0.2", sys.argv[2]], stdout=subprocess.PIPE, text=True,
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
rows = [json.loads(p.stdout.readline()) for _ in range(20)]
p.send_signal(signal.SIGINT)
p.stdout.read()
kinds = {r["kind"] for r in rows}
assert p.wait(20) == 0 and {"kv", "lcore"} <= kinds and {r["pid"] for r in rows} == {int(sys.argv[2])}, rows
assert all(0 < r["cpu_pct"] + r["wait_pct"] for r in rows if r["kind"] == "lcore"), rows
EOF
ok "crpc-top"
# No more than the clients sent: these are requests, not polls.
kill -INT "$pid"
wait $run || fail "it ended with $?"
SENT=$(python3 -c 'import json, sys
print(json.loads(open(sys.argv[1]).readlines()[-1])["sent"])' "$TMP/one.jsonl")
[ "$OPS" -le "$SENT" ] || fail "$OPS requests, $SENT sent"
nothing_left "one rank"
ok "they agree with the results"

command -v mpirun >/dev/null || finish
two 60 --preset seed001 --verify --seconds 50 --warmup 0.5 --json "$TMP/two.jsonl" >"$TMP/two.out" \
	2>"$TMP/two.err" &
run=$!
BACKGROUND="$BACKGROUND $run"
wait_for 30 "$TMP/two.out" 'clients x QD'
socket=$(find_socket "$(ranks_pids 1)")
sleep 0.2
ask "$socket" $STATS >"$TMP/answers.jsonl" || fail "rank 1 does not answer"
sleep 1.5
ask "$socket" $STATS >>"$TMP/answers.jsonl" || fail "rank 1 does not answer"
holds 'all(x["rank"] == 1 and x["daemons"] == 1 for x in a)' \
	'a[1]["remote"] > a[0]["remote"] > 0' 'a[1]["of_ranks"] > 0' \
	'a[1]["net_batches"] > a[0]["net_batches"] > 0' 'a[1]["net_calls"] >= a[0]["net_calls"]' \
	'sum(a[1]["net_batch_size"]) > sum(a[0]["net_batch_size"]) > 0' \
	'abs(sum(a[1]["net_batch_size"]) - a[1]["net_batches"]) <= 0.01 * a[1]["net_batches"] + 2' \
	'a[1]["phase_mean_ns"]["net_poll"] > 0' \
	'a[1]["net_round_trips"] > a[0]["net_round_trips"] > 0' \
	'a[1]["net_calls"] - a[1]["net_round_trips"] < 0.5 * a[1]["net_calls"]' \
	'all(a[1][w] > a[0][w] > 0 for w in ["net_queue_ns", "net_wire_ns", "net_peer_ns"])'
"$TOP" --once --json --interval 1 >"$TMP/answers.jsonl" 2>"$TMP/top.err" || fail "crpc-top ended with $?"
holds 'sorted(x["rank"] for x in a if x["kind"] == "kv") == [0, 1]' \
	'all(x["queue_us"] >= 0 and x["wire_us"] > 0 and x["peer_us"] > 0 for x in a if x["kind"] == "kv")' \
	'len([x for x in a if x["kind"] == "context" and x["layer"] == "copyrpc" and x["calls"] > 0]) == 2' \
	'len([x for x in a if x["kind"] == "endpoint" and x["status"] == "ok" and x["bytes_in"] > 0]) == 2' \
	'len([x for x in a if x["kind"] == "device" and x["doorbells"] > 0 and x["errors"] == 0]) == 2' \
	'len([x for x in a if x["kind"] == "nic" and x["tx_bytes"] > 0 and x["driver"] == "polls"]) == 2' \
	'len([x for x in a if x["kind"] == "lcore" and x["cpu_pct"] > 0]) >= 2'
"$TOP" --once --interval 0.3 >"$TMP/top.out" 2>"$TMP/top.err" || fail "crpc-top ended with $?"
awk 'length > 80 {exit 1}' "$TMP/top.out" || fail "crpc-top prints lines of more than 80 columns"
grep -q 'QUEUE *WIRE *PEER' "$TMP/top.out" || fail "crpc-top does not show the split"
ok "rank 1 of two: the network's counters go on over the start of the measured window"
kill -INT "$(running ranks_pids 0)"
wait $run
nothing_left "two ranks"
finish
