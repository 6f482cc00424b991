#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# crpc-shm as a user runs it: shows what is there, removes what is unowned, and never what somebody
# does. Needs CRPC_SHM, SHM_OWNER and TOOLS in the environment.
set -u

dir=$(mktemp -d /dev/shm/e2e_crpc_shm.XXXXXX) || exit 99
log=$(mktemp -d) || exit 99
owners=()
checks=0

cleanup() {
	[ ${#owners[@]} = 0 ] || kill -9 "${owners[@]}" 2>/dev/null
	rm -rf "$dir" "$log"
}
trap cleanup EXIT

fail() {
	echo "FAIL: $*"
	tail -n 40 "$log"/*
	exit 1
}

ok() {
	checks=$((checks + 1))
	echo "ok: $*"
}

own() { # NAME MEDIUM [USERS]
	"$SHM_OWNER" "$dir" "$@" >"$log/owner.$1" 2>&1 &
	owners+=($!)
	for _ in $(seq 200); do
		grep -q ready "$log/owner.$1" && return
		sleep 0.05
	done
	fail "the owner of $1 does not start"
}

# The last owner started; it is dead, and waited for, afterwards.
kill_last() {
	kill -9 "${owners[-1]}"
	wait "${owners[-1]}" 2>/dev/null
	unset 'owners[-1]'
}

shm() { # STATUS ARG...
	local want=$1 rc
	shift
	"$CRPC_SHM" "$@" >"$log/out" 2>"$log/err"
	rc=$?
	[ $rc = "$want" ] || fail "crpc-shm $* ended with $rc instead of $want"
}

json() { # PYTHON_EXPRESSION...: s is the list of segments, n those by name
	python3 - "$log/out" "$@" <<'END' || fail "not true of list --json: $*"
import json, sys
s = [json.loads(line) for line in open(sys.argv[1])]
n = {x["name"]: x for x in s}
for e in sys.argv[2:]:
    if not eval(e):
        print("not true:", e)
        sys.exit(1)
END
}

shm 0 list --dir "$dir" --json
json 's == []'
ok "an empty directory"

own file1 file 3
own mem1 memfd 2
own file2 file
shm 0 list --dir "$dir" --json
json 'len(s) == 3' 'all(x["life"] == "living" and x["state"] == "ready" for x in s)' \
	'n["file1"]["users"] == 3 and n["file2"]["users"] == 0 and n["mem1"]["users"] == 2' \
	'n["file1"]["medium"] == "file" and n["mem1"]["medium"] == "memfd"' \
	'all(x["kind"] == "TEST" and x["kind_version"] == 2 and x["size"] == 8192 for x in s)' \
	"n['file1']['pid'] == ${owners[0]} and n['mem1']['pid'] == ${owners[1]}"
shm 0 list --dir "$dir"
[ "$(wc -l <"$log/out")" = 4 ] || fail "list does not print a head and three lines"
grep -q "^mem1 .*living" "$log/out" || fail "list does not show mem1"
ok "three living segments"

kill -STOP "${owners[2]}"
echo 'not a segment' >"$dir/crpc.notes"
: >"$dir/other"
shm 0 clean --dir "$dir"
[ ! -s "$log/out" ] || fail "clean removed something: $(cat "$log/out")"
for f in file1 file2 mem1 mem1.sock notes; do
	[ -e "$dir/crpc.$f" ] || fail "clean removed crpc.$f"
done
ok "clean leaves the living, the stopped and what is no segment"

kill_last
kill -CONT "${owners[1]}" # the memfd's
kill_last
shm 0 list --dir "$dir" --json
json 'n["mem1"]["life"] == "dead" and n["file2"]["life"] == "dead"' \
	'n["file1"]["life"] == "living"' 'n["notes"]["state"] == "broken"'
shm 0 clean --dir "$dir" --dry-run
[ "$(grep -c '^would remove' "$log/out")" = 2 ] || fail "--dry-run: $(cat "$log/out")"
[ -e "$dir/crpc.mem1" ] && [ -e "$dir/crpc.mem1.sock" ] && [ -e "$dir/crpc.file2" ] ||
	fail "--dry-run removed something"
shm 0 clean --dir "$dir"
[ "$(grep -c '^removed' "$log/out")" = 2 ] || fail "clean: $(cat "$log/out")"
[ "$(ls "$dir")" = $'crpc.file1\ncrpc.notes\nother' ] || fail "left: $(ls "$dir")"
ok "clean removes the dead, with their socket, and nothing else"

own file2 file # the names are free again
own mem1 memfd
ok "their names can be taken again"

if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	chmod 755 "$dir" "$log"
	as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	if "${as_nobody[@]}" "$CRPC_SHM" list --dir "$dir" --json >"$log/out" 2>"$log/err"; then
		json 'all(n[x]["life"] == "unknown" for x in ("file1", "file2", "mem1"))' \
			'n["mem1"]["medium"] == "memfd" and n["file1"]["state"] == "?"'
		kill_last
		"${as_nobody[@]}" "$CRPC_SHM" clean --dir "$dir" >"$log/out" 2>"$log/err" ||
			fail "clean of another user's segments ended with $?"
		[ -e "$dir/crpc.mem1" ] && [ -e "$dir/crpc.file1" ] || fail "another user removed it"
		ok "another user sees and removes nothing"
	fi
fi

shm 2 list --dir "$dir/none"
grep -q "$dir/none" "$log/err" || fail "the missing directory is not named"
[ "$(wc -l <"$log/err")" = 1 ] || fail "more than one line of error"
shm 0 list
CRPC_SHM=$TOOLS/crpc-shm
shm 0 list --dir "$dir"
ok "bad usage"
echo "$checks checks passed"
