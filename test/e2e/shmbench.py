#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves that each benchmark of shmbench writes the results it documents and verifies what it claims to, that
nothing of it is left, and that its results become pictures.

Arguments: the program, the root of the source tree, the name of the sanitizer or 'none'.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SHORT = ['--repeat', '3']

failures = 0


def check(what, ok, detail=''):
    global failures
    if not ok:
        failures += 1
    print(('ok: ' if ok else 'FAIL: ') + what, detail if not ok else '')


def leftovers():
    return set(glob.glob('/dev/shm/*shmbench*'))


def run(args):
    return subprocess.run([program] + args, capture_output=True, text=True, timeout=120)


def results(out, args):
    """The rows of a run, by method (and place)."""
    if os.path.exists(out):
        os.remove(out)
    r = run(args + SHORT + ['--json', out])
    check(' '.join(args), r.returncode == 0, r.stdout[-2000:] + r.stderr)
    rows = [json.loads(line) for line in open(out)] if os.path.exists(out) else []
    bad = [row for row in rows if row['app'] != 'shmbench' or not {'bench', 'size', 'segments'} <= set(row) or
           (row.get('time') or row['bandwidth'])['n'] != 3 or not (row.get('time') or row['bandwidth'])['min'] > 0]
    check('  its results', rows and not bad, bad[:1])
    return rows


def allocation(out):
    rows = results(out, ['allocation', '--count', '30', '--size', '4K,8K,16K'])
    methods = {row['method'] for row in rows}
    want = {'shm_open', 'ftruncate', 'mmap', 'touch', 'cleanup', 'three_calls', 'arena_alloc', 'arena_free',
            'malloc'}
    check('  every step is timed', methods == want, methods ^ want)
    check('  every size', sorted({row['size'] for row in rows}) == [4096, 8192, 16384])
    check('  the arena is compared', all('ratio_three_calls' in row for row in rows if row['method'] == 'arena_alloc'))


def lookup(out):
    rows = results(out, ['lookup', '--segments', '120', '--count', '3000'])
    check('  points', sorted({row['segments'] for row in rows}) == [1, 10, 100, 120])
    want = {'linear', 'tree', 'arithmetic', 'arithmetic_chained', 'chain_alone', 'to_pointer'}
    check('  every look-up', {row['method'] for row in rows} == want)


def transfer(out):
    args = ['transfer', '--count', '3', '--verify']
    rows = results(out, args + ['--size', '4K,16K,64K,256K,1M'])
    check('  every size', sorted({row['size'] for row in rows}) == [4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                                                          1 << 20])
    check('  every place', {row['place'] for row in rows} == {'segment', 'private', 'private_thp'})
    check('  segments are compared', all('ratio_private' in row for row in rows if row['place'] == 'segment'))
    rows = results(out, args + ['--use-memcpy', '--size', '1M'])
    check('  memcpy alone', {row['method'] for row in rows} == {'memcpy'})


def with_eal(out):
    r = run(['--no-huge', '-m', '64', '--', 'allocation', '--count', '20', '--size', '4K',
             '--json', out] + SHORT)
    rows = [json.loads(line) for line in open(out)] if r.returncode == 0 else []
    check('with EAL arguments DPDK is measured too', 'rte_malloc' in {row['method'] for row in rows},
          r.stdout[-1000:] + r.stderr)


def killed():
    """What a run that was killed left behind goes with the next start."""
    p = subprocess.Popen([program, 'transfer', '--repeat', '1000'], stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    mine = f'/dev/shm/crpc.shmbench.{p.pid}'
    for _ in range(300):
        if os.path.exists(mine):
            break
        time.sleep(0.1)
    check('there is something that a killed run could leave', os.path.exists(mine))
    p.kill()
    p.communicate(timeout=60)
    r = run(['lookup', '--segments', '1', '--count', '10', '--repeat', '1'])
    check('the next one removes it', r.returncode == 0 and not glob.glob(mine + '*'), glob.glob(mine + '*'))
    # A block of the kernel's, which has a name between two calls only.
    blocks = [f'/dev/shm/shmbench.{pid}' for pid in (p.pid, os.getpid())]
    for block in blocks:
        open(block, 'w').close()
    r = run(['lookup', '--segments', '1', '--count', '10', '--repeat', '1'])
    check('and the block of a process that has ended, no other', r.returncode == 0 and
          [os.path.exists(block) for block in blocks] == [False, True], glob.glob('/dev/shm/shmbench.*'))
    os.unlink(blocks[1])


def pictures(out, source, tmp):
    plot = os.path.join(source, 'usertools', 'crpc-plot')
    if shutil.which('gnuplot') is None:
        print('no gnuplot: no pictures')
        return
    r = subprocess.run([plot, '-o', tmp, out], capture_output=True, text=True)
    check('crpc-plot draws', r.returncode == 0, r.stderr)
    for bench in ('allocation', 'lookup', 'transfer'):
        paths = glob.glob(os.path.join(tmp, f'shmbench-{bench}-*.svg'))
        check(f'  {bench}', paths and all('</svg>' in open(path).read() for path in paths))


def main():
    before = leftovers()
    with tempfile.TemporaryDirectory() as tmp:
        out, all_out = os.path.join(tmp, 'out.jsonl'), os.path.join(tmp, 'all.jsonl')
        with open(all_out, 'w') as everything:
            for bench in (allocation, lookup, transfer):
                bench(out)
                everything.write(open(out).read())
        if sys.argv[3] == 'none':
            with_eal(out)
        killed()
        pictures(all_out, sys.argv[2], tmp)
    left = leftovers() - before
    check('nothing is left', not left, left)
    print(f'{failures} failures')
    return 1 if failures else 0


program = sys.argv[1]
sys.exit(main())
