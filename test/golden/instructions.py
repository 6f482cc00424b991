#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions per message or call of a program's cases, against the numbers kept beside this file.

A count does not depend on the machine or on what else it does, so a slower path shows here without a clock.
It does depend on the compiler and on how it optimises: another one than the file names skips the
comparison (status 77), as does a machine without valgrind.

  instructions.py COUNT_PROGRAM COMPILER OPTIMIZATION [--update] [--file NAME]
                  [--toggle FUNCTION,...] [--cases CASE,...]

NAME is the file beside this one that keeps the numbers; instructions.json if it is not given.
Without arguments the program names its cases (--cases: these instead); with one it runs it and prints how
many messages that was.
Collection is turned on, or off within another one, at entry of the --toggle functions (default: counted_*).
The file may hold limits that no --update moves: at most so many per message, and at most so many times the
count of another case.

A change for the better or worse that is meant: run with --update and commit the file.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOLERANCE = 0.05
HERE = os.path.dirname(os.path.abspath(__file__))


def count(program, case, toggle):
    with tempfile.TemporaryDirectory() as tmp:
        run = subprocess.run(['valgrind', '--tool=callgrind'] +
                             ['--toggle-collect=' + f for f in toggle] +
                             ['--callgrind-out-file=' + os.path.join(tmp, 'out'), program, case],
                             capture_output=True, text=True)
    found = re.search(r'Collected : (\d+)', run.stderr)
    if run.returncode != 0 or not found:
        sys.exit(f'{case}: {program} failed under valgrind\n{run.stderr[-2000:]}')
    return int(found.group(1)) / int(run.stdout.split()[1])


def limits_broken(golden, now):
    bad = 0
    for case, most in golden.get('most', {}).items():
        if now[case] > most:
            print(f'{case}: {now[case]:.2f} per message, at most {most} are allowed')
            bad += 1
    for case, (base, most) in golden.get('most_times', {}).items():
        if now[case] > most * now[base]:
            print(f'{case}: {now[case] / now[base]:.3f} times {base}, at most {most} are allowed')
            bad += 1
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('compiler')
    parser.add_argument('optimization')
    parser.add_argument('--update', action='store_true')
    parser.add_argument('--file', default='instructions.json')
    parser.add_argument('--toggle', default='counted_*')
    parser.add_argument('--cases', default='')
    args = parser.parse_args()
    if shutil.which('valgrind') is None:
        print('skip: valgrind is not installed')
        return 77
    build = f'{args.compiler} -O{args.optimization}'
    path = os.path.join(HERE, args.file)
    golden = json.load(open(path)) if os.path.exists(path) else {}
    if not args.update and golden.get('build') != build:
        print(f'counted for {golden.get("build")}, this is {build}: not compared')
        return 77
    cases = args.cases.split(',') if args.cases else subprocess.run(
        [args.program], capture_output=True, text=True, check=True).stdout.split()
    now = {case: round(count(args.program, case, args.toggle.split(',')), 2) for case in cases}
    if args.update:
        golden['build'] = build
        golden['per_message'] = now
        with open(path, 'w') as f:
            json.dump(golden, f, indent=2)
            f.write('\n')
    bad = limits_broken(golden, now)
    for case, n in now.items():
        was = golden.get('per_message', {}).get(case)
        off = was is None or abs(n - was) > TOLERANCE * was
        bad += off
        print(f'{case:28} {n:8.2f} kept {was} {"CHANGED" if off else ""}')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
