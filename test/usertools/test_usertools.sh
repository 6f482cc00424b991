#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that doctor, crpc-plot, crpc-diff and crpc-c2c do what their --help says, also with bad input.
# Argument: source root.
set -u

tools=$1/usertools
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# expect_status STATUS COMMAND...: its exit status, and one line at least on stdout or stderr.
expect_status() {
	local want=$1 rc
	shift
	"$@" >"$tmp/out" 2>&1
	rc=$?
	[ $rc = "$want" ] || fail "$* ended with status $rc instead of $want: $(cat "$tmp/out")"
	[ -s "$tmp/out" ] || fail "$* said nothing"
}

"$tools/doctor" --json >"$tmp/json"
[ $? -le 1 ] || fail "doctor --json stopped"
python3 - "$tmp/json" <<'EOF' || fail "doctor --json: not what --help says"
import json
import sys

seen = set()
for line in open(sys.argv[1]):
    check = json.loads(line)
    assert set(check) == {"check", "state", "found", "todo"}, check
    assert check["state"] in ("ok", "warn", "fail"), check
    assert check["state"] == "ok" or check["todo"] or check["check"] == "soft-mlx5", check
    seen.add(check["check"])
missing = {"cores", "memory", "shm", "hugepages", "rdma", "launcher", "steal"} - seen
assert not missing, missing
EOF

# The software NIC as doctor finds it: programs of the same names in a folder with a space in its name.
mkdir "$tmp/a folder"
cp "$tools"/{doctor,crpc_tool.py} "$tmp/a folder/"
soft_nic() { # TEXT COMMAND: doctor's line has the text if soft-mlx5 is COMMAND
	printf '#!/bin/bash\n%s\n' "$2" >"$tmp/a folder/soft-mlx5"
	chmod +x "$tmp/a folder/soft-mlx5"
	"$tmp/a folder/doctor" | grep '^[a-z]* *soft-mlx5 ' >"$tmp/nic"
	grep -q "$1" "$tmp/nic" || fail "doctor's soft-mlx5, expected '$1': $(cat "$tmp/nic")"
}
soft_nic '^ok .*programs run' 'exit 0'
soft_nic '^warn .*no answer within 20 s.*again' 'exit 124'
soft_nic '^fail .*build it; run: .*--doctor' 'echo "ok x y"; echo "fail x y; build it"; echo "ok x y"; exit 1'
soft_nic '^fail .*out of order; run: ' 'echo out of order >&2; exit 1'

# Two nodes of which one has hugepages, in a mount namespace of its own.
sys=$tmp/sys
mkdir -p "$sys"/mm/hugepages-2048kB "$sys"/node/node{0,1}/hugepages/hugepages-2048kB
echo 128 | tee "$sys"/mm/hugepages-2048kB/{nr,free}_hugepages \
	"$sys/node/node0/hugepages/hugepages-2048kB/nr_hugepages" >/dev/null
echo 0 >"$sys/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
mkdir "$sys/pages"
# shellcheck disable=SC2016 # for the inner shell
nodes=(unshare --mount bash -c 'mount --bind "$1/mm" /sys/kernel/mm/hugepages &&
	mount --bind "$1/node" /sys/devices/system/node && mount -t hugetlbfs none "$1/pages" &&
	exec "$2"' bash "$sys")
if "${nodes[@]}" true 2>/dev/null; then
	"${nodes[@]}" "$tools/doctor" >"$tmp/out"
	grep -q '^warn *hugepages .*none on node1' "$tmp/out" ||
		fail "doctor on a node without hugepages: $(grep hugepages "$tmp/out")"
	echo 128 >"$sys/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
	"${nodes[@]}" "$tools/doctor" >"$tmp/out"
	grep -q '^ok *hugepages ' "$tmp/out" ||
		fail "doctor on nodes with hugepages: $(grep hugepages "$tmp/out")"
fi

# Two devices of mlx5 and one of another driver. A GID that is nought, or of RoCE v1, is of no use.
port() { # DEVICE DRIVER STATE LAYER
	mkdir -p "$sys/class/drv/$2" "$sys/class/infiniband/$1"/{device,ports/1/{gids,gid_attrs/types}}
	ln -s "/sys/class/drv/$2" "$sys/class/infiniband/$1/device/driver"
	echo "$3" >"$sys/class/infiniband/$1/ports/1/state"
	echo "$4" >"$sys/class/infiniband/$1/ports/1/link_layer"
}
port mlx5_0 mlx5_core '4: ACTIVE' Ethernet
port mlx5_1 mlx5_core '1: DOWN' InfiniBand
port rxe0 rdma_rxe '4: ACTIVE' Ethernet
for gid in '0 IB/RoCE v1 fe80::1' '1 RoCE v2 0000:0000' '2 RoCE v2 fe80::1' '10 RoCE v2 ffff:0a00'; do
	read -r index text <<<"$gid"
	echo "${text% *}" >"$sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/$index"
	echo "${text##* }" >"$sys/class/infiniband/mlx5_0/ports/1/gids/$index"
done
# shellcheck disable=SC2016
if unshare --mount bash -c 'mount --bind "$1" /sys/class' bash "$sys/class" 2>/dev/null; then
	unshare --mount bash -c 'mount --bind "$1" /sys/class && "$2" rdma' bash "$sys/class" "$tools/doctor" \
		>"$tmp/out"
	for line in '^ok *rdma .*mlx5_0 port 1: 4: ACTIVE, Ethernet' '^ok *gid .*RoCE v2 at index 2 10$' \
		'^warn *rdma .*mlx5_1 port 1: 1: DOWN, InfiniBand.*bring' '^warn *rdma .*rxe0: driver rdma_rxe' \
		'^[a-z]* *uverbs '; do
		grep -q "$line" "$tmp/out" || fail "doctor rdma, no '$line': $(cat "$tmp/out")"
	done
fi

cat >"$tmp/a.hgrm" <<'EOF'
       Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.000000000000         10           1.00
       2.000 0.500000000000         50           2.00
       9.000 0.990000000000         99         100.00
      20.000 1.000000000000        100
#[Max     =       20.000, Total count    =          100]
EOF
printf '       Value     Percentile TotalCount 1/(1-Percentile)\n\n' >"$tmp/empty.hgrm"
expect_status 2 "$tools/crpc-plot" "$tmp/empty.hgrm"
if command -v gnuplot >/dev/null; then
	"$tools/crpc-plot" -o "$tmp/a.svg" --title "it's \"quoted\"" "$tmp/a.hgrm=one" \
		"$tmp/empty.hgrm" >"$tmp/out" 2>/dev/null || fail "crpc-plot failed"
	grep -q 'a.hgrm: modes at us: .*(' "$tmp/out" || fail "crpc-plot names no modes: $(cat "$tmp/out")"
	grep -q '</svg>' "$tmp/a.svg" || fail "crpc-plot wrote no picture"
	grep -q '>one<' "$tmp/a.svg" || fail "crpc-plot lost the label"
fi

# Two result files of three runs each: cases that became slower, faster, are the same, vary too much.
rows() { # FACTOR
	local run
	for run in 1 2 3; do
		python3 - "$1" $run <<'END'
import json
import sys
factor, run = float(sys.argv[1]), int(sys.argv[2])
rows = (('a', 'rate', 'Mops/s', 100 * factor + run / 10), ('b', 'latency', 'ns', 50),
        ('c', 'rate', 'Mops/s', 10 * run * factor))
rows += tuple(('d', 'rate', 'Mops/s', 100 * factor ** way, {'sweep': {'at': {'keys': str(way)}}}) for way in (1, -1))
for transport, name, unit, value, *more in rows:
    print(json.dumps({'schema': 1, 'app': 'ringbench', 'version': '1', 'commit': 'c', 'record': 'result', 'cpu': 'c',
                      'lcores': '0', 'state': 'near', 'steal_pct': 0.0, 'away_pct': 0.0, 'noisy': False,
                      'pattern': 'stream', 'transport': transport, 'size': 64,
                      name: {'median': value, 'min': value, 'max': value, 'unit': unit, 'n': 1},
                      **(more[0] if more else {})}))
END
	done
}
rows 1 >"$tmp/before.jsonl"
rows 0.9 >"$tmp/after.jsonl"
expect_status 1 "$tools/crpc-diff" "$tmp/before.jsonl" "$tmp/after.jsonl"
for row in '0.9.. .*3, 3  slower .*stream a' '1.000 .*same .*stream b' 'unclear .*stream c' \
	'1 faster, 1 same, 2 slower, 1 unclear$'; do
	grep -q "$row" "$tmp/out" || fail "crpc-diff: no '$row' in $(cat "$tmp/out")"
done
expect_status 1 "$tools/crpc-diff" --json "$tmp/after.jsonl" "$tmp/before.jsonl"
[ "$(grep -c '"verdict": "faster"' "$tmp/out")" = 2 ] || fail "crpc-diff --json: $(cat "$tmp/out")"
expect_status 0 "$tools/crpc-diff" --margin 20 --state near "$tmp/before.jsonl" "$tmp/after.jsonl"
grep -q '0 slower' "$tmp/out" || fail "crpc-diff --margin 20: $(cat "$tmp/out")"
expect_status 2 "$tools/crpc-diff" --state far "$tmp/before.jsonl" "$tmp/after.jsonl"

# Where perf takes no samples nothing is run; where it does, the status is the program's.
fake_perf() { # COMMANDS, of "perf c2c record -o FILE -- PROGRAM" and "perf c2c report"
	printf '#!/bin/bash\n%s\n' "$1" >"$tmp/perf"
	chmod +x "$tmp/perf"
}
fake_perf 'echo "no such event" >&2; exit 255'
expect_status 77 env PATH="$tmp:$PATH" "$tools/crpc-c2c" touch "$tmp/ran"
grep -q 'no samples here: no such event; ' "$tmp/out" || fail "crpc-c2c: $(cat "$tmp/out")"
[ ! -e "$tmp/ran" ] || fail "crpc-c2c runs the program without samples"
# shellcheck disable=SC2016
fake_perf 'if [ "$2" = report ]; then cat "$4"; else echo 3 lines >"$4"; shift 5; exec "$@"; fi'
expect_status 7 env PATH="$tmp:$PATH" "$tools/crpc-c2c" --data "$tmp/kept" bash -c 'exit 7'
grep -q '^3 lines' "$tmp/out" || fail "crpc-c2c prints no report: $(cat "$tmp/out")"
[ -s "$tmp/kept" ] || fail "crpc-c2c --data keeps nothing"

echo "$failures failures"
[ $failures = 0 ]
