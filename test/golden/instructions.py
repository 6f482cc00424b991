#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions per message or call of what is worth counting, against the numbers kept beside this file.

A count does not depend on the machine or on what else it does, so a slower path shows here without a clock.
It does depend on the compiler and on how it optimises: another one than the file names skips the
comparison (status 77), as does a machine without valgrind.

  instructions.py COUNT_PROGRAM COMPILER OPTIMIZATION [--file NAME] [--update]

NAME is the file beside this one that keeps the numbers; instructions.json if it is not given.

A change for the better or worse that is meant: run with --update and commit the file.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOLERANCE = 0.05
HERE = os.path.dirname(os.path.abspath(__file__))


def count(program, case):
    with tempfile.TemporaryDirectory() as tmp:
        run = subprocess.run(['valgrind', '--tool=callgrind', '--toggle-collect=counted_*',
                              '--callgrind-out-file=' + os.path.join(tmp, 'out'), program, case],
                             capture_output=True, text=True)
    found = re.search(r'Collected : (\d+)', run.stderr)
    if run.returncode != 0 or not found:
        sys.exit(f'{case}: {program} failed under valgrind\n{run.stderr[-2000:]}')
    return int(found.group(1)) / int(run.stdout.split()[1])


def main():
    program, compiler, optimization = sys.argv[1:4]
    if shutil.which('valgrind') is None:
        print('no valgrind here: not counted')
        return 77
    build = f'{compiler} -O{optimization}'
    name = sys.argv[sys.argv.index('--file') + 1] if '--file' in sys.argv else 'instructions.json'
    path = os.path.join(HERE, name)
    golden = json.load(open(path)) if os.path.exists(path) else {}
    update = '--update' in sys.argv
    if not update and golden.get('build') != build:
        print(f'counted for {golden.get("build")}, this is {build}: not compared')
        return 77
    cases = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    now = {case: round(count(program, case), 2) for case in cases}
    if update:
        with open(path, 'w') as f:
            json.dump({'build': build, 'per_message': now}, f, indent=2)
            f.write('\n')
    kept = golden.get('per_message', {})
    bad = 0
    for case, n in now.items():
        was = now[case] if update else kept.get(case)
        off = was is None or abs(n - was) > TOLERANCE * was
        bad += off
        print(f'{case:28} {n:8.2f} kept {was} {"CHANGED" if off else ""}')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
