#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Boot a guest of two nodes, run collect.sh there, and judge what it brought: where each part of a daemon's
memory lies, what benchkv and doctor report, and what the kernel's software RoCE exchanged.

usage: test_guest.py SOURCE BUILD [--write] [--keep DIR]

--write   put the table of what was seen into doc/guides/deploying.md
--keep    keep what the guest wrote; where it is there already, judge it without a boot
"""
import json
import os
import re
import subprocess
import sys
import tempfile

BEGIN = '<!-- placement: written by test/guest/test_guest.py --write -->\n'
END = '<!-- placement ends -->\n'
CASES = [('both', 'hugepages on both nodes'), ('one', 'on node 0 only'), ('none', 'none, `--no-huge`')]
PARTS = [
    ('keys, values, tables of a daemon', r'file=/memfd:(seg_|nohuge)'),
    ('segment of a daemon\'s clients', r'file=/(dev/shm/|memfd:)crpc\.guest\.'),
    ('heap', r' heap '),
]


class Case:
    """What collect.sh kept of one run."""

    def __init__(self, folder, name):
        self.name = name
        read = lambda file: open(os.path.join(folder, name, file)).read()
        self.out, self.err = read('out'), read('err')
        self.doctor = {}
        for line in read('doctor').splitlines():
            check = json.loads(line)
            self.doctor[check['check']] = check
        self.pages = [mapping for mapping in map(parse, read('numa_maps').splitlines()) if mapping]

    def of(self, pattern):
        return [m for m in self.pages if re.search(pattern, m['line'])]

    def warnings(self):
        return re.findall(r'warning: rank 0: (.*?);', self.out + self.err)


def parse(line):
    size = re.search(r'kernelpagesize_kB=(\d+)', line)
    nodes = {int(n): int(k) for n, k in re.findall(r' N(\d)=(\d+)', line)}
    return {'line': line, 'kib': int(size[1]), 'nodes': nodes} if size and nodes else None


def kinds(mappings):
    """{page size in KiB: nodes}"""
    found = {}
    for mapping in mappings:
        found.setdefault(mapping['kib'], set()).update(mapping['nodes'])
    return found


CHECKS = 0


def check(true, what, case=None):
    global CHECKS
    CHECKS += 1
    if true:
        print('ok:', what)
        return
    print('FAIL:', what)
    if case:
        print(case.name, 'printed:', case.out, case.err, case.doctor)
        print('\n'.join(m['line'] for m in case.pages if 'file=/usr' not in m['line']))
    sys.exit(1)


def judge_run(case):
    sent = re.search(r'sent (\d+), answered (\d+),.*verify_errors\s+0,', case.out, re.S)
    check(sent and sent[1] == sent[2] != '0', f'{case.name}: every answer is right', case)


def judge_segments(case):
    for daemon in (0, 1):
        nodes = kinds(case.of(rf'{PARTS[1][1]}0\.{daemon}\b'))
        check(list(nodes.values()) == [{daemon}],
              f'{case.name}: the segment of daemon {daemon} is on its lcore\'s node', case)


def judge_says(case, doctor, state, warnings):
    said = case.doctor['hugepages']
    check(said['state'] == state and re.search(doctor, said['found'] + '; ' + said['todo']),
          f'{case.name}: doctor {state} hugepages: {said["found"]}; {said["todo"]}', case)
    for text in warnings:
        check(any(re.search(text, w) for w in case.warnings()), f'{case.name}: benchkv warns: {text}', case)


def judge_cases(case):
    for c in case.values():
        judge_run(c)
    tables = PARTS[0][1]
    check(kinds(case['both'].of(tables)).get(2048) == {0, 1}, 'both: hugepages of both nodes are used', case['both'])
    check(not [w for w in case['both'].warnings() if 'store' in w],
          'both: each store is on its lcore\'s node', case['both'])
    segments = PARTS[1][1]
    check(kinds(case['both'].of(segments)) == {2048: {0, 1}}, 'both: segments are on hugepages', case['both'])
    check(kinds(case['one'].of(segments)) == {2048: {0}, 4: {1}},
          'one: the segment of the node with hugepages is on them', case['one'])
    judge_says(case['both'], '256 of 256 free', 'ok', [])
    check(kinds(case['one'].of(tables)).get(2048) == {0}, 'one: hugepages of node 0 alone are used', case['one'])
    judge_says(case['one'], 'but none on node1; as root: echo', 'warn', [])
    check(not [w for w in case['one'].warnings() if 'store' in w],
          'one: a store has pages of its lcore\'s node rather than hugepages of the other', case['one'])
    check(2048 not in kinds(case['none'].pages), 'none: no hugepage is used', case['none'])
    judge_says(case['none'], 'none reserved; use --no-huge', 'warn', [])
    for name in ('both', 'one', 'none'):
        judge_segments(case[name])
    judge_without_l(case['without_l'])


def judge_without_l(case):
    lcores = re.findall(r'rank 0 +lcore \d+ \(core (\d+), node (\d+)\)', case.out)
    check(lcores == [('0', '0')], 'without -l: the isolated cores are left alone', case)
    said = case.doctor['isolation']
    check(said['state'] == 'warn' and '-l 1-3' in said['todo'],
          f'without -l: doctor: {said["found"]}; {said["todo"]}', case)


def judge_rxe(folder):
    read = lambda name: open(os.path.join(folder, name)).read()
    for name in ('plain', 'netem'):
        text = read(f'rxe_{name}.client') + read(f'rxe_{name}.server')
        ok = read(f'rxe_{name}.rc').strip() == '0' and text.count('50 iters') == 2
        check(ok, f'rxe: ibv_rc_pingpong, {name}' + ('' if ok else ': ' + text + read('wires')))
    for name in ('plain', 'netem'):
        text = read(f'rxe_service_{name}')
        sent = re.search(r'total of 2 ranks.*\n +remote.*sent (\d+), answered (\d+),.*verify_errors\s+0,', text, re.S)
        ok = sent and sent[1] == sent[2] and 'on rxe0' in text and 'on rxe1' in text
        check(ok, f'rxe: benchkv by plain verbs, {name}: every answer is right' + ('' if ok else ': ' + text))
    sent = int(re.search(r'TX:.*\n\s+\d+\s+(\d+)', read('v0'))[1])
    check(sent >= 200, f'rxe: {sent} packets went by the wire')
    dropped = int(re.search(r'dropped (\d+)', read('netem'))[1])
    check(dropped > 0, f'rxe: the network dropped {dropped} packets')


def describe(kib, nodes):
    """Small pages lie where the thread ran that first wrote them, so their nodes are not in the table."""
    if kib < 1024:
        return f'{kib} KiB pages'
    return f'{kib >> 10} MiB pages, node' + ('s ' if len(nodes) > 1 else ' ') + ', '.join(map(str, sorted(nodes)))


def table(case):
    rows = [['part'] + [title for _, title in CASES], ['---'] * (1 + len(CASES))]
    for title, pattern in PARTS:
        row = [title]
        for name, _ in CASES:
            found = kinds(case[name].of(pattern))
            row.append(' and '.join(describe(*kind) for kind in sorted(found.items())))
        rows.append(row)
    return ''.join('| ' + ' | '.join(row) + ' |\n' for row in rows)


def judge_table(source, text, write):
    path = os.path.join(source, 'doc/guides/deploying.md')
    guide = open(path).read()
    head, rest = guide.split(BEGIN)
    old, tail = rest.split(END)
    if write:
        open(path, 'w').write(head + BEGIN + text + END + tail)
        return
    check(old == text, f'the table in {path} is what was seen (else: --write):\n{text}')


def main():
    args = sys.argv[1:]
    write = '--write' in args
    folder = args[args.index('--keep') + 1] if '--keep' in args else None
    source, build = (os.path.abspath(arg) for arg in args[:2])
    with tempfile.TemporaryDirectory(dir='/var/tmp') as made:
        folder = folder or made
        if not os.path.exists(os.path.join(folder, 'both')):
            env = [f'BENCHKV={build}/apps/benchkv/benchkv', f'DOCTOR={source}/usertools/doctor']
            rc = subprocess.run(
                [f'{source}/devtools/guest.sh', '--isolate', '1-3', '--hugepages', '128,128',
                 '--timeout', '800', '--out', folder, '--', 'env', *env,
                 f'{source}/test/guest/collect.sh'], cwd=source, check=False).returncode
            if rc == 77:
                print('skip: no guest can run here (its reason is above)')
            if rc:
                sys.exit(rc)
        case = {name: Case(folder, name) for name in ('both', 'without_l', 'one', 'none')}
        judge_cases(case)
        judge_rxe(folder)
        judge_table(source, table(case), write)
    print(CHECKS, 'checks passed')


main()
