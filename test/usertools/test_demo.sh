#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that demo.sh runs two ranks, writes results that a program can read and a picture, and
# hands benchkv's exit status on. Arguments: source root, build root.
set -u

source=$1
build=$2
for program in mpirun gnuplot; do
	command -v $program >/dev/null || { echo "skip: $program is not installed"; exit 77; }
done
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT

fail() {
	echo "FAIL: $*"
	cat "$out/log"
	exit 1
}

demo() {
	"$source/usertools/demo.sh" --no-packages --build "$build" --out "$out" --soft --no-huge \
		-- "$@" >"$out/log" 2>&1
}

demo --seconds 1
status=$?
[ $status = 0 ] || fail "demo.sh ended with status $status"
python3 - "$out/demo.jsonl" <<'EOF' || fail "demo.jsonl is not as documented"
import json
import sys

lines = [json.loads(line) for line in open(sys.argv[1])]
assert [x["record"] for x in lines].count("total") == 1, lines
total = [x for x in lines if x["record"] == "total"][0]
assert total["app"] == "benchkv", total
assert total["verify_errors"] == 0, total
EOF
grep -q '</svg>' "$out/demo.svg" || fail "no picture"

demo --no-such-option
status=$?
[ $status = 2 ] || fail "a bad option of benchkv gave status $status instead of 2"
echo ok
