#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# perftest between two processes: each of its programs, each transport that it has for them, all
# sizes, several queue pairs, events. The tools do not look at data, but they count completions, and
# ib_write_lat watches memory instead of polling, so that only the helper thread moves it.
. "$(dirname "$0")/lib.sh"
tool=$1
[ "$tool" = all_sizes ] || need "$tool"
need ib_send_bw

# Lines of results behind the last heading; each must have numbers above zero: a few small messages
# on a busy machine make 0.00 MB/s, but some messages per second.
results() {
	awk '/#bytes/ { n = 0; next } n >= 0 && /^ *[0-9]+ +[0-9]/ { line[n++] = $0 }
	     END { for (i = 0; i < n; i++) print line[i] }' "$TMP/client.out" | tr -s ' \t' ' '
}

run() { # [lines=N] ARGS...
	local lines=1
	case $1 in lines=*) lines=${1#lines=}; shift ;; esac
	pair 40 "$tool" -p '{PORT}' -F "$@"
	results >"$TMP/lines"
	[ "$(wc -l <"$TMP/lines")" -ge "$lines" ] || fail "$tool $*: not $lines results"
	awk '!(NF >= 4 && $1 > 0 && $2 > 0 && ($4 > 0 || $NF > 0)) { bad = 1 } END { exit bad }' "$TMP/lines" ||
		fail "$tool $*: no sane result"
	ok "$tool $*:$(tail -n 1 "$TMP/lines")"
}

case $tool in
ib_write_lat)
	run -n 300
	run -n 30 -c UC
	;;
ib_read_lat)
	run -n 300
	run -n 100 -c DC
	;;
ib_send_lat)
	run -n 500
	run -n 300 -c UC
	run -n 300 -c UD -s 2048
	run -n 300 -c DC
	;;
ib_atomic_lat)
	run -n 200
	run -n 100 -c DC
	;;
ib_write_bw)
	run -n 3000 -s 32 -Q 1
	run -n 100 -s 1048576 -b
	run -n 2000 -s 64 -q 8
	run -n 500 -c UC
	run -n 500 -c DC -q 2
	;;
ib_read_bw)
	run -n 1000 -q 2
	run -n 300 -e
	run -n 500 -c DC
	;;
ib_send_bw)
	run -n 100 -s 1048576 -b
	run -n 500 -s 4096 -e
	run -n 1000 --use-srq -q 4
	run -n 1000 -r 4 -t 128 -s 64 # receives run out all the time: RNR
	# UC and UD lose what finds no receive: no more under way than are posted.
	run -n 500 -c UC -r 512 -t 16
	run -n 500 -c UD -r 512 -t 16
	run -n 500 -c DC
	;;
ib_atomic_bw)
	run -n 2000 -q 2
	run -n 500 -A CMP_AND_SWAP -e
	run -n 300 -c DC
	;;
all_sizes) # It measures the processor's frequency for each size: seconds of its own.
	tool=ib_send_bw
	run lines=20 -n 10 -a
	;;
esac
finish
