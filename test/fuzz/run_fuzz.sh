#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Run a libFuzzer program for FUZZ_SECONDS (3 by default). What it finds stays in the build folder and
# is where the next run starts; --merge moves what is new there into the corpus of the source tree.
#
# run_fuzz.sh [--merge] PROGRAM CORPUS FOUND
set -u

merge=0
[ "$1" != --merge ] || { merge=1; shift; }
program=$1
corpus=$2
found=$3
seconds=${FUZZ_SECONDS:-3}
mkdir -p "$found" || exit 99
if [ $merge = 1 ]; then
	exec "$program" -merge=1 "$corpus" "$found"
fi
log=$(mktemp) || exit 99
trap 'rm -f "$log"' EXIT
# The inputs that end it are written beside the corpus that it found, and shown in the log.
"$program" -max_total_time="$seconds" -timeout=20 -max_len=65536 -rss_limit_mb=2048 -verbosity=0 \
	-print_final_stats=1 -artifact_prefix="$found.crash-" "$found" "$corpus" >"$log" 2>&1
rc=$?
tail -n 120 "$log"
[ $rc = 0 ] || exit 1
# A program that ran nothing proves nothing.
grep -q 'number_of_executed_units: [1-9]' "$log" || { echo "it executed no input"; exit 1; }
