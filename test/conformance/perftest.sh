#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# perftest between two processes: WRITE, READ and SEND, latency and bandwidth. The tools do not look
# at data, but they count completions, and ib_write_lat watches memory instead of polling, so that only
# the helper thread moves it.
. "$(dirname "$0")/lib.sh"
need "$1"
tool=$1

run() {
	pair 40 "$tool" -p '{PORT}' -F "$@"
	# The line behind the heading, which must have numbers above zero.
	grep -A1 '#bytes' "$TMP/client.out" | tail -n 1 | tr -s ' \t' ' ' >"$TMP/line"
	awk '{ exit !(NF >= 4 && $1 > 0 && $2 > 0 && $4 > 0) }' "$TMP/line" ||
		fail "$tool $*: no sane result"
	ok "$tool $*:$(cat "$TMP/line")"
}

case $tool in
*_lat)
	run -n 500
	run -n 300 -s 4096
	run -n 100 -s 65536
	;;
*_bw)
	run -n 3000
	run -n 3000 -s 32 -Q 1
	run -n 500 -s 65536 -b
	run -n 300 -s 1048576
	run -n 2000 -s 64 -q 8
	;;
esac
[ "$tool" != ib_send_bw ] || {
	# Of the latency tests none with -e: they post once more whenever an event finds nothing, and
	# arming before polling, as they do, makes such events with any adapter.
	run -n 500 -s 4096 -e
	run -n 1000 --use-srq -q 4
	run -n 2000 -r 4 -t 128 -s 64 # receives run out all the time: RNR
}
finish
