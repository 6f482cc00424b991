#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that doctor and plot-hgrm do what their --help says, also with bad input.
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

expect_status 0 "$tools/doctor" --help
expect_status 2 "$tools/doctor" --nonsense
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

cat >"$tmp/a.hgrm" <<'EOF'
       Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.000000000000         10           1.00
       2.000 0.500000000000         50           2.00
       9.000 0.990000000000         99         100.00
      20.000 1.000000000000        100
#[Max     =       20.000, Total count    =          100]
EOF
printf '       Value     Percentile TotalCount 1/(1-Percentile)\n\n' >"$tmp/empty.hgrm"
expect_status 0 "$tools/plot-hgrm" --help
expect_status 2 "$tools/plot-hgrm"
expect_status 2 "$tools/plot-hgrm" "$tmp/none.hgrm"
expect_status 2 "$tools/plot-hgrm" "$tmp/empty.hgrm"
expect_status 2 "$tools/plot-hgrm" --nonsense "$tmp/a.hgrm"
if command -v gnuplot >/dev/null; then
	"$tools/plot-hgrm" -o "$tmp/a.svg" --title "it's \"quoted\"" "$tmp/a.hgrm=one" \
		"$tmp/empty.hgrm" 2>/dev/null || fail "plot-hgrm failed"
	grep -q '</svg>' "$tmp/a.svg" || fail "plot-hgrm wrote no picture"
	grep -q '>one<' "$tmp/a.svg" || fail "plot-hgrm lost the label"
fi

expect_status 0 "$tools/demo.sh" --help
expect_status 2 "$tools/demo.sh" --nonsense
expect_status 2 "$tools/demo.sh" --ranks many

echo "$failures failures"
[ $failures = 0 ]
