#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Install what is missing, build, run every test, and say how many passed.
set -u

usage() {
	cat <<'EOF'
usage: devtools/test.sh [options] [TEST...]

Without options: install missing packages, make the release build and run every test of the suites
fast and e2e. The last lines are the skipped tests with the reason of each, the failed ones with
the end of their output, and "N passed, N failed, N skipped"; the exit status is 0 if none failed. A
test that is skipped because something is not installed counts as failed, unless --no-packages is
given.

  --sanitize address|thread  run the same tests on a build with ASan and UBSan, or with TSan
  --sanitize fuzz            the suite fuzz: each target explores with libFuzzer for FUZZ_SECONDS (3)
  --cc COMPILER              build with this compiler
  --suite NAME               only this suite (fast, e2e, stress, launch, guest, or sanitize: those of e2e
                             that CI runs with ASan); may be given more than once
  --stress                   the suite stress too (minutes)
  --repeat N                 run everything N times
  --fail-fast                stop at the first failure
  --again                    run at most two failed tests once more, alone, and name those that pass then
                             as unsteady; never one with a finding of a sanitizer. For shared machines
  --list                     build, show suite and name of every test and stop
  --no-packages              install nothing
TEST is a name as --list shows it.

Logs: meson-logs/ in the build folder (build/, build-asan/, build-tsan/).
EOF
}

bad_usage() {
	usage >&2
	echo "test.sh: $*" >&2
	exit 2
}

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
build_args=()
sanitize=
suites=()
stress=0
list=0
packages=1
again=0
repeat=1
meson_args=()
tests=()
while [ $# -gt 0 ]; do
	case $1 in
	--sanitize | --cc | --suite | --repeat)
		[ $# -ge 2 ] || bad_usage "$1 needs a value"
		case $1 in
		--sanitize) sanitize=$2; build_args+=(--sanitize "$2") ;;
		--cc) build_args+=(--cc "$2") ;;
		--suite) suites+=("$2") ;;
		--repeat) repeat=$2 ;;
		esac
		shift ;;
	--stress) stress=1 ;;
	--fail-fast) meson_args+=(--maxfail 1) ;;
	--again) again=2 ;;
	--list) list=1 ;;
	--no-packages) packages=0 ;;
	-h | --help) usage; exit 0 ;;
	-*) bad_usage "unknown option '$1'" ;;
	*) tests+=("$1") ;;
	esac
	shift
done
for suite in "${suites[@]}"; do
	case $suite in
	fast | e2e | sanitize | stress | launch | guest) ;;
	*) bad_usage "--suite takes fast, e2e, sanitize, stress, launch or guest, not '$suite'" ;;
	esac
done
case $sanitize in
'' | address | thread) ;;
fuzz) [ ${#suites[@]} != 0 ] || suites=(fuzz) ;;
*) bad_usage "--sanitize takes address, thread or fuzz, not '$sanitize'" ;;
esac

passed=0
failed=0
skipped=0
remarks=()

finish() {
	printf '%s\n' "${remarks[@]}" | grep '^skipped: ' | sort -u
	printf '%s\n' "${remarks[@]}" | grep '^unsteady: \|^failed: '
	[ $((passed + failed + skipped)) != 0 ] || echo "test.sh: there is no such test" >&2
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ] && [ "$passed" != 0 ]
	exit
}

cannot_start() {
	echo "test.sh: $*" >&2
	failed=1
	finish
}

if [ $packages = 1 ]; then
	groups=(build run test peers)
	case " ${suites[*]} " in
	*" launch "*) groups+=(launch) ;;
	esac
	case " ${suites[*]} " in
	*" guest "*) groups+=(guest) ;;
	esac
	"$root/devtools/packages.sh" "${groups[@]}" ||
		cannot_start "packages are missing (see above)"
fi
dir=$("$root/devtools/build.sh" "${build_args[@]}" --print-dir) || exit 2
"$root/devtools/build.sh" "${build_args[@]}" || cannot_start "the build failed (see above)"
if [ $list = 1 ]; then
	meson test -C "$dir" --no-rebuild --list | sed 's,^.*:\(.*\) / \(.*\)$,\1  \2,'
	exit
fi

# Open MPI refuses root without these two; containers often have nothing else.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# One bad access ends a test. The suppression files name foreign code only, with the reason.
supp=$root/devtools/suppressions
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$supp/lsan.txt:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$supp/tsan.txt:second_deadlock_stack=1}
launch=()
case $sanitize in
address) meson_args+=(--timeout-multiplier 4) ;;
fuzz) meson_args+=(--timeout-multiplier $((${FUZZ_SECONDS:-3} / 60 + 1))) ;;
thread)
	meson_args+=(--timeout-multiplier 6 --no-suite one_thread)
	# The shadow of gcc 12's and clang 14's TSan collides with the widest address randomization.
	bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 32)
	if [ "$bits" -gt 28 ] && setarch -R true 2>/dev/null; then
		launch=(setarch -R)
	fi ;;
esac

# Of a log of meson: "skipped: NAME: REASON" of each skipped test, the reason being what it printed
# after "skip: ", else its last line; and "failed: NAME: LINE" of each failed one, for its result and
# the last 12 lines of its output.
remarks_of() { # LOG
	python3 - "$1" <<-'EOF'
		import json
		import sys
		for line in open(sys.argv[1]):
		    test = json.loads(line)
		    name = test['name'].split(' / ')[-1]
		    said = '\n'.join(test.get(k) or '' for k in ('stdout', 'stderr')).strip().splitlines()
		    if test['result'] == 'SKIP':
		        said = [line for line in said if line.startswith('skip: ')] or said
		        print(f"skipped: {name}: {said[-1].removeprefix('skip: ') if said else 'no reason given'}")
		    elif test['result'] not in ('OK', 'EXPECTEDFAIL'):
		        found = any(word in line for line in said for word in ('Sanitizer: ', 'runtime error: '))
		        for line in ['(finding)' if found else '(' + test['result'].lower() + ')'] + said[-12:]:
		            print(f'failed: {name}: {line}')
	EOF
}

# Runs one part of the tests and adds what its log counts. A run that left no log has failed, unless
# there was no such test.
run_part() {
	local name=$1 log=$dir/meson-logs/$1.json rc out
	shift
	rm -f "$log"
	echo "== tests: $name"
	out=$dir/meson-logs/$name.out
	"${launch[@]}" meson test -C "$dir" --no-rebuild --print-errorlogs --logbase "$name" \
		"${meson_args[@]}" "$@" "${tests[@]}" </dev/null 2>&1 | tee "$out"
	rc=${PIPESTATUS[0]}
	if [ ! -s "$log" ]; then
		if [ "$rc" != 0 ] || ! grep -q 'No suitable tests\|No tests defined' "$out"; then
			echo "test.sh: meson test stopped with status $rc and left no $log" >&2
			failed=$((failed + 1))
		fi
		return
	fi
	local total ok skip bad missing these name
	total=$(grep -c '"result": "' "$log")
	ok=$(grep -c '"result": "\(OK\|EXPECTEDFAIL\)"' "$log")
	skip=$(grep -c '"result": "SKIP"' "$log")
	bad=$((total - ok - skip))
	if [ $bad = 0 ] && [ "$rc" != 0 ]; then
		echo "test.sh: meson test stopped with status $rc though no test failed" >&2
		bad=1
	fi
	mapfile -t these < <(remarks_of "$log")
	remarks+=("${these[@]}")
	while read -r name; do
		[ $again -gt 0 ] && [ -n "$name" ] || break
		again=$((again - 1))
		rm -f "$dir/meson-logs/again.json"
		"${launch[@]}" meson test -C "$dir" --no-rebuild --logbase again "${meson_args[@]}" "$name" \
			</dev/null >"$dir/meson-logs/again.out" 2>&1
		if grep -q '"result": "OK"' "$dir/meson-logs/again.json"; then
			remarks+=("unsteady: $name: failed, and passed when it ran again alone")
			bad=$((bad - 1))
			ok=$((ok + 1))
		fi
	done < <(printf '%s\n' "${these[@]}" | sed -n 's/^failed: \(.*\): (\(fail\|timeout\))$/\1/p')
	if [ $packages = 1 ]; then
		missing=$(printf '%s\n' "${these[@]}" | grep -c '^skipped: .* is not installed')
		[ "$missing" = 0 ] || echo "test.sh: $missing skipped tests count as failed: what they" \
			"need is not in devtools/packages.sh" >&2
		skip=$((skip - missing))
		bad=$((bad + missing))
	fi
	passed=$((passed + ok))
	skipped=$((skipped + skip))
	failed=$((failed + bad))
}

wanted() {
	local suite
	if [ ${#suites[@]} = 0 ]; then
		case $1 in
		stress) [ $stress = 1 ] ;;
		fuzz | sanitize | launch | guest) false ;;
		esac
		return
	fi
	for suite in "${suites[@]}" $([ $stress = 0 ] || echo stress); do
		[ "$suite" != "$1" ] || return 0
	done
	return 1
}

start=$SECONDS
for ((round = 0; round < repeat; round++)); do
	# A test outside every suite counts as fast, so that none is forgotten. The end-to-end and
	# stress tests start several polling processes each: one at a time.
	! wanted fast ||
		run_part fast --no-suite fuzz --no-suite e2e --no-suite stress --no-suite launch \
			--no-suite guest
	case " ${meson_args[*]} " in
	*" --maxfail "*) [ "$failed" = 0 ] || break ;;
	esac
	! wanted fuzz || run_part fuzz --suite fuzz
	! wanted e2e || run_part e2e --suite e2e --num-processes 1
	! wanted sanitize || run_part sanitize --suite sanitize --num-processes 1
	! wanted stress || run_part stress --suite stress --num-processes 1
	! wanted launch || run_part launch --suite launch --num-processes 1
	! wanted guest || run_part guest --suite guest --num-processes 1
done
echo "tests took $((SECONDS - start)) s; logs in $dir/meson-logs"
finish
