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
	TRANSPORT=XRC ran "$@"
	record refused "$text is not supported"
	ok "$*: $text"
}

refused 'uverbs command OPEN_XRCD' ibv_xsrq_pingpong -p "$(free_port)"
"$SOFT_MLX5" no-such-program-here >"$TMP/cmd.out" 2>&1
[ $? -eq 127 ] || fail "a missing program is not 127"
ok "a missing program"

# A full /dev/shm is reported as that, once, and as nothing else.
if unshare --mount true 2>/dev/null; then
	unshare --mount bash -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"' bash \
		"$SOFT_MLX5" ibv_devinfo >"$TMP/full.out" 2>&1 && fail "a device opens in a full /dev/shm"
	[ "$(grep -c '^soft_mlx5: ' "$TMP/full.out")" = 1 ] &&
		grep -q '^soft_mlx5: .*/dev/shm is full' "$TMP/full.out" ||
		fail "a full /dev/shm is not reported"
	ok "a full /dev/shm"
fi

# The library in a folder whose name has a space.
mkdir "$TMP/a folder" && cp "$SOFT_MLX5_LIB" "$TMP/a folder/copy.so" || fail "no folder"
on 10 --lib "$TMP/a folder/copy.so" -- ibv_devices >"$TMP/space.out" 2>&1 &&
	grep -q mlx5_soft0 "$TMP/space.out" && ! grep -q 'cannot be preloaded' "$TMP/space.out" ||
	fail "a folder with a space in its name"
(eval "$("$SOFT_MLX5" --lib "$TMP/a folder/copy.so" --print-env)" && export LD_PRELOAD LD_LIBRARY_PATH &&
	exec ibv_devices) >"$TMP/env.out" 2>&1 && grep -q mlx5_soft0 "$TMP/env.out" ||
	fail "--print-env of a folder with a space in its name"
ok "a folder with a space in its name"

for mode in rt fast; do
	on 10 --progress $mode -- true >"$TMP/mode.out" 2>&1 && fail "--progress $mode is taken"
	grep -q "'$mode' is unknown" "$TMP/mode.out" || fail "what is said of --progress $mode"
done
ok "a way to drive the adapter that there is not"
finish
