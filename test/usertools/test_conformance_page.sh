#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that the page "Which programs run" is what its lines of JSON give and names every program and test of
# test/conformance, and that devtools/conformance.py --check notices when it is not or does not; and that a
# conformance test records what passed, what failed and why, and which program is missing.
# Argument: source root.
set -u

tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
(cd "$1" && tar -c VERSION devtools/conformance.py test/conformance doc/results) | tar -x -C "$tmp" || exit 99
cd "$tmp" || exit 99
page=doc/results/soft_mlx5_programs.md
failures=0

# check STATUS TEXT WHAT: of --check, with TEXT on stderr.
check() {
	devtools/conformance.py --check >log 2>&1
	if [ $? = "$1" ] && grep -q "$2" <<<"$(cat log)"; then
		echo "ok: $3"
	else
		echo "FAIL: $3: $(cat log)"
		failures=$((failures + 1))
	fi
	rm -rf test/conformance doc/results
	(cd "$source" && tar -c test/conformance doc/results) | tar -x
}

source=$1
check 0 '^' 'the page in the tree'
sed -i '0,/passed/s//failed/' $page
check 1 'is not what' 'an edited page'
printf '. lib.sh\nneed ibv_new\n' >test/conformance/new.sh
check 1 'ibv_new is in test/conformance and not on the page' 'a program that was not run'
printf '. lib.sh\nneed ibv_devices\n' >test/conformance/new.sh
check 1 ': new is in test/conformance' 'a test that was not run'

# A test of one program that passes, one that fails, and one that is not there.
printf '%s\n' '. "$(dirname "$0")/lib.sh"' 'SOFT_MLX5_WIRE=udp ran env A=1 ib_x -p 9 -F -c UC "a \"b\""' 'ok 1' \
	'TRANSPORT=DC ran ib_y' 'need ibv_none' >test/conformance/one.sh
printf '%s\n' '. "$(dirname "$0")/lib.sh"' 'ran ib_y -s "$TMP/f"' 'fail "no result: 7"' >test/conformance/two.sh
for script in one two; do
	SOFT_MLX5_LIB=x CONFORMANCE_RECORD=$tmp/record bash test/conformance/$script.sh >/dev/null
done
diff record - <<'END' || failures=$((failures + 1))
{"program": "ib_x", "transport": "UC over UDP", "what": "-F -c UC a b", "result": "passed", "reason": ""}
{"program": "ibv_none", "transport": "-", "what": "", "result": "skipped", "reason": "ibv_none is not installed"}
{"program": "ib_y", "transport": "RC", "what": "-s f", "result": "failed", "reason": "no result: 7"}
END
echo "$failures failures"
[ $failures = 0 ]
