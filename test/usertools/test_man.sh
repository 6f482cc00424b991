#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Every manual page renders without a warning, in groff and, where it is installed, in mandoc; every
# installed program has a page. Arguments: the build folder, the pages.
set -u

build=$1
shift
command -v groff >/dev/null || { echo "skip: groff is not installed"; exit 77; }
failures=0
for page in "$@"; do
	warnings=$(groff -man -ww -z -Kutf8 -Tutf8 "$page" 2>&1)
	if command -v mandoc >/dev/null; then
		warnings+=$(mandoc -T lint -W warning "$page")
	fi
	# A page that lost its options or its text would have no warning.
	[ -n "$warnings" ] || [ "$(grep -c . "$page")" -ge 10 ] || warnings="fewer than 10 lines"
	[ -z "$warnings" ] || { echo "FAIL: $page: $warnings"; failures=$((failures + 1)); }
done
programs=$(python3 -c '
import json, os, sys
with open(sys.argv[1] + "/meson-info/intro-installed.json") as f:
    print(*(os.path.basename(to) for to in json.load(f).values() if "/bin/" in to))' "$build")
[ -n "$programs" ] || { echo "FAIL: no program is installed"; exit 1; }
for program in $programs; do
	case " $* " in
	*"/$program.1 "*) ;;
	*) echo "FAIL: $program has no page"; failures=$((failures + 1)) ;;
	esac
done
echo "$# pages, $failures failures"
[ $failures = 0 ]
