#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run foreign programs on the software ConnectX and write which of them run.

usage: devtools/conformance.py [--build DIR] [--only TEST]
       devtools/conformance.py --check

Runs the tests of test/conformance one after another, as meson does, and has each append a line of JSON per run
of a program to a file (CONFORMANCE_RECORD). Of these it makes doc/results/soft_mlx5_programs.jsonl, one line per
program and transport, and of that doc/results/soft_mlx5_programs.md.

  --build DIR  the build folder (default build); its tests must be built
  --only TEST  print the lines of one test, such as rc_pingpong, and write nothing
  --check      run nothing: fail unless the page is what the lines give, and each program that a test
               needs, and each test, is among them
"""
import argparse
import contextlib
import datetime
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
TESTS = os.path.join(ROOT, 'test/conformance')
PAGE = os.path.join(ROOT, 'doc/results/soft_mlx5_programs.md')
LINES = PAGE.replace('.md', '.jsonl')
RESULTS = ('passed', 'failed', 'refused', 'skipped')
OURS = 'copyrpc'  # Programs of test/conformance itself.
HEAD = """# Which programs run

Programs that know nothing of [soft_mlx5](../guides/soft_mlx5.md), unmodified, as packages bring them.
`devtools/conformance.py` runs them by the tests of [test/conformance](../../test/conformance/lib.sh) and writes this
page. A transport is that of the queue pairs; for UCX and Open MPI it is the value of `UCX_TLS`. *Refused* is what the
software card does not claim: the program gets an errno, and one line on stderr says why. The
last table has the programs of test/conformance itself.

Run on {date}: soft_mlx5 {version}, rdma-core {rdma_core}, {system}. {total}.
"""


def output(*command):
    if shutil.which(command[0]) is None:
        return ''
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def package(program):
    """The Debian package that a program is of, and its version."""
    if program.startswith('test_') and not os.path.exists(f'{TESTS}/{program}.c'):
        name = 'python3-pyverbs'
    elif os.path.exists(f'{TESTS}/{program}.c'):
        return OURS, version()
    else:
        path = os.path.realpath(shutil.which(program) or '')
        # A package may have it in /bin, which is a link to /usr/bin.
        name = (output('dpkg', '-S', path) or output('dpkg', '-S', path.removeprefix('/usr'))).partition(':')[0]
    return name, output('dpkg-query', '-W', '-f=${Version}', name) if name else ''


def version():
    with open(os.path.join(ROOT, 'VERSION'), encoding='utf-8') as f:
        return f.read().strip()


def run_test(build, name):
    """The lines of one test; a test that wrote none is a line of its own."""
    with tempfile.TemporaryDirectory() as tmp:
        record = os.path.join(tmp, 'record')
        log = os.path.join(build, 'meson-logs/conformance.json')
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log)  # That of the test before.
        subprocess.run(['meson', 'test', '-C', build, '--no-rebuild', '--logbase', 'conformance', name],
                       env=dict(os.environ, CONFORMANCE_RECORD=record), stdout=subprocess.DEVNULL, check=False)
        with open(log, encoding='utf-8') as f:
            test = json.loads(f.readline())
        rows = []
        if os.path.exists(record):
            with open(record, encoding='utf-8') as f:
                rows = [json.loads(line) for line in f]
    result = {'OK': 'passed', 'SKIP': 'skipped'}.get(test['result'], 'failed')
    said = (test.get('stdout') or '').strip().splitlines() or ['']
    reason = '' if result == 'passed' else said[-1].removeprefix('skip: ')
    if not rows or result == 'failed' and not any(row['result'] == 'failed' for row in rows):
        program = name.replace('conformance_', 'test_' if not rows and result == 'passed' else '')
        rows.append({'program': program, 'transport': '-', 'what': '', 'result': result, 'reason': reason})
    print(f'{name}: {result}' + f' ({reason})' * (reason != ''), flush=True)
    return [{'test': name.removeprefix('conformance_'), **row} for row in rows]


def merge(rows):
    """One line per program and transport."""
    merged = {}
    for row in rows:
        key = row['program'], row['transport']
        if key not in merged:
            of, number = package(row['program'])
            merged[key] = {'program': row['program'], 'package': of, 'version': number, 'transport': row['transport'],
                           'runs': {}, **{result: 0 for result in RESULTS}, 'reasons': []}
        line = merged[key]
        done = line['runs'].setdefault(row['test'], [])
        if row['what'] not in done + ['']:
            done.append(row['what'])
        line[row['result']] += 1
        if row['reason'] and row['reason'] not in line['reasons']:
            line['reasons'].append(row['reason'])
    return sorted(merged.values(), key=lambda line: (line['package'] == OURS, line['package'], line['program'],
                                                     line['transport']))


def counts(line):
    return ', '.join(f'{line[result]} {result}' for result in RESULTS if line[result])


def page(head, lines):
    """The text: a table for each package."""
    total = {result: sum(line[result] for line in lines) for result in RESULTS}
    text = HEAD.format(**head, total=f'Of {sum(total.values())} runs: {counts(total)}')
    for of in dict.fromkeys((line['package'], line['version']) for line in lines):
        text += f'\n## {" ".join(of).strip() or "Not installed"}\n\n'
        text += '| program | transport | what was done, by test | result |\n| --- | --- | --- | --- |\n'
        for line in lines:
            if (line['package'], line['version']) != of:
                continue
            done = '; '.join(f'{test}: ' + ', '.join(f'`{what}`' for what in whats) if whats else test
                             for test, whats in line['runs'].items())
            result = counts(line) + (': ' + '; '.join(line['reasons']) if line['reasons'] else '')
            text += f'| {line["program"]} | {line["transport"]} | {done} | {result} |\n'.replace('||', '|')
    return text


def needed():
    """Names of RDMA programs in the tests, and the tests' own names."""
    programs, tests = set(), set()
    for path in glob.glob(os.path.join(TESTS, '*.sh')):
        with open(path, encoding='utf-8') as f:
            text = f.read()
        words = ' '.join(re.findall(r'^need (.*)', text, re.M)) + ' ' + ' '.join(re.findall(r'^(ib_\w+)\)', text, re.M))
        programs |= {word for word in words.split() if re.fullmatch(r'\w+', word)}
        name = os.path.basename(path)[:-3]
        tests |= {name} - {'lib', 'perftest', 'ucx'}
    return programs - {'ip', 'python3', 'setsid', 'tshark'}, tests


def check():
    with open(LINES, encoding='utf-8') as f:
        head, *lines = map(json.loads, f)
    with open(PAGE, encoding='utf-8') as f:
        bad = [] if f.read() == page(head, lines) else [f'{PAGE} is not what {os.path.basename(LINES)} gives']
    programs, tests = needed()
    bad += [f'{name} is in test/conformance and not on the page' for name in
            sorted(programs - {line['program'] for line in lines}) +
            sorted(tests - {test for line in lines for test in line['runs']})]
    for line in bad:
        print(f'conformance.py: {line}; run devtools/conformance.py', file=sys.stderr)
    return len(bad) != 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument('--build', default=os.path.join(ROOT, 'build'))
    parser.add_argument('--only')
    parser.add_argument('--check', action='store_true')
    parser.add_argument('-h', '--help', action='store_true')
    args = parser.parse_args()
    if args.help:
        print(__doc__)
        return 0
    if args.check:
        return check()
    listed = re.findall(r'\b(conformance_\w+)$', output('meson', 'test', '-C', args.build, '--list'), re.M)
    names = sorted({name for name in listed if args.only in (None, name.removeprefix('conformance_'))})
    if not names:
        sys.exit(f'conformance.py: {args.build} has no such tests; build them with devtools/build.sh')
    lines = merge([row for name in names for row in run_test(args.build, name)])
    if args.only:
        for line in lines:
            print(json.dumps(line))
        return 0
    with open('/etc/os-release', encoding='utf-8') as f:
        system = re.search(r'^PRETTY_NAME="(.*?)"', f.read(), re.M)[1]
    head = {'date': datetime.date.today().isoformat(), 'version': version(),
            'rdma_core': output('dpkg-query', '-W', '-f=${Version}', 'libibverbs1'),
            'system': f'{system}, Linux {".".join(platform.release().split(".")[:2])}, {platform.machine()}'}
    os.makedirs(os.path.dirname(PAGE), exist_ok=True)
    with open(LINES, 'w', encoding='utf-8') as f:
        f.writelines(json.dumps(row) + '\n' for row in [head, *lines])
    with open(PAGE, 'w', encoding='utf-8') as f:
        f.write(page(head, lines))
    return check() or any(line['failed'] for line in lines)


if __name__ == '__main__':
    sys.exit(main())
