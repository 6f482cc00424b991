#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that the command by which doc/guides/debugging.md replays a seed runs and prints the steps.
# Arguments: source root, build root.
set -u

command=$(grep -m 1 '^usertools/soft-mlx5 .*/step_scenario ' "$1/doc/guides/debugging.md") ||
	{ echo "FAIL: the guide has no such command"; exit 1; }
read -ra words <<<"$command"
[[ ${words[0]} = usertools/* ]] || exit 1
words[0]=$1/${words[0]}
words=("${words[0]}" --build "$2" --net "replay.$$" "${words[@]:1}")
out=$(timeout 60 "${words[@]/#build\//$2/}") || { echo "FAIL: status $?: $command"; exit 1; }
[ "$(wc -l <<<"$out")" -gt 5 ] || { echo "FAIL: no steps are printed: $out"; exit 1; }
