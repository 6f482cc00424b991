#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What the adapter lacks is refused with an error and named once on stderr, never silently wrong;
# wrong settings are named too.
. "$(dirname "$0")/lib.sh"
need ibv_devices ibv_xsrq_pingpong

refused() { # TEXT CMD...: fails, and says TEXT once
	local text=$1 rc
	shift
	on 10 "$@" >"$TMP/refused.out" 2>&1
	rc=$?
	[ $rc -ne 0 ] && [ $rc -ne 124 ] || fail "'$*' ended with $rc"
	[ "$(grep -c "^soft_mlx5: $text is not supported (ENOTSUP)\$" "$TMP/refused.out")" -eq 1 ] ||
		fail "'$*' does not name '$text' once"
	ok "$*: $text"
}

refused 'uverbs command OPEN_XRCD' ibv_xsrq_pingpong -p "$(free_port)"
SOFT_MLX5_PROGRESS=fast "$SOFT_MLX5" ibv_devices >"$TMP/mode.out" 2>&1
[ $? -eq 2 ] && grep -q "progress is 'fast'" "$TMP/mode.out" || fail "a wrong progress mode passes"
"$SOFT_MLX5" --net 'a/b' ibv_devices >"$TMP/net.out" 2>&1
[ $? -eq 2 ] && grep -q "the net is 'a/b'" "$TMP/net.out" || fail "a wrong net passes"
"$SOFT_MLX5" --nonsense >"$TMP/opt.out" 2>&1
[ $? -eq 2 ] && grep -q 'unknown option --nonsense' "$TMP/opt.out" || fail "a wrong option passes"
"$SOFT_MLX5" no-such-program-here >"$TMP/cmd.out" 2>&1
[ $? -eq 127 ] || fail "a missing program is not 127"
"$SOFT_MLX5" --help | grep -q SOFT_MLX5_PROGRESS || fail "--help does not tell the variables"
ok "wrong settings"
finish
