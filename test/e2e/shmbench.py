#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves that shmbench refuses what it cannot do in one line with the value and the range, that each
benchmark writes the results it documents and verifies what it claims to, that it stops cleanly when
interrupted, that nothing of it is left, and that its results become pictures.

Arguments: the program, the root of the source tree, the name of the sanitizer or 'none'.
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SHARED = ['app', 'version', 'commit', 'cpu', 'lcores', 'state', 'steal_pct', 'noisy', 'repeats', 'bench',
          'method', 'size', 'segments']
SHORT = ['--repeat', '3']
BAD = [([], 'no benchmark'), (['frobnicate'], "'frobnicate' is no benchmark"),
       (['lookup', '--num-iterations', '5'], '--num-iterations'),
       (['allocation', '--num-segments', '5'], '--num-segments'),
       (['allocation', '--num-iterations', '0'], '1 to 10000000'),
       (['allocation', '--min-size-kb', '8', '--max-size-kb', '4'], '--min-size-kb 8 is above --max-size-kb 4'),
       (['lookup', '--num-segments', '4097'], '1 to 4096'), (['lookup', '--num-lookups', 'many'], "'many'"),
       (['lookup', '--segment-size-mb', '1025'], '1 to 1024'),
       (['transfer', '--num-transfers', '-1'], "'-1'"), (['transfer', '--repeat', '1001'], '1 to 1000'),
       (['transfer', '--transfer-size-kb', '2048', '--max-transfer-size-mb', '1'], 'above'),
       (['transfer', '--json', '/nowhere/x'], '/nowhere/x')]

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
    bad = [row for row in rows if any(k not in row for k in SHARED) or row['app'] != 'shmbench' or
           row['repeats'] != 3]
    check('  its results have the shared keys', rows and not bad, bad[:1])
    for row in rows:
        figure = row.get('time') or row.get('rate')
        if not figure or not 0 < figure['min'] <= figure['median'] <= figure['max']:
            check('  a figure', False, row)
    return rows


def bad_options():
    for args, said in BAD:
        r = run(args)
        check(f'{args} is refused', r.returncode == 2 and said in r.stderr and r.stderr.count('\n') == 1,
              f'code {r.returncode}: {r.stderr!r}')


def allocation(out):
    rows = results(out, ['allocation', '--num-iterations', '30', '--max-size-kb', '16', '--cleanup'])
    methods = {row['method'] for row in rows}
    want = {'shm_open', 'ftruncate', 'mmap', 'touch', 'cleanup', 'three_calls', 'arena_alloc', 'arena_free',
            'malloc'}
    check('  every step is timed', methods == want, methods ^ want)
    check('  sizes double', sorted({row['size'] for row in rows}) == [4096, 8192, 16384])
    check('  the arena is compared', all('ratio_three_calls' in row for row in rows if row['method'] == 'arena_alloc'))
    rows = results(out, ['allocation', '--num-iterations', '30', '--max-size-kb', '4', '--measure-mmap-only'])
    methods = {row['method'] for row in rows}
    check('  mmap alone', methods == {'mmap', 'arena_alloc', 'arena_free', 'malloc'}, methods)


def lookup(out):
    rows = results(out, ['lookup', '--num-segments', '120', '--num-lookups', '3000'])
    check('  points', sorted({row['segments'] for row in rows}) == [1, 10, 100, 120])
    want = {'linear', 'tree', 'arithmetic', 'arithmetic_chained', 'chain_alone', 'to_pointer'}
    check('  every look-up', {row['method'] for row in rows} == want)


def transfer(out):
    args = ['transfer', '--max-transfer-size-mb', '1', '--num-transfers', '3', '--verify-data']
    rows = results(out, args)
    check('  sizes go by four', sorted({row['size'] for row in rows}) == [4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                                                          1 << 20])
    check('  every place', {row['place'] for row in rows} == {'segment', 'private', 'private_thp'})
    check('  segments are compared', all('ratio_private' in row for row in rows if row['place'] == 'segment'))
    rows = results(out, args + ['--use-memcpy', '--transfer-size-kb', '1024'])
    check('  memcpy alone', {row['method'] for row in rows} == {'memcpy'})


def with_eal(out):
    r = run(['--no-huge', '-m', '64', '--', 'allocation', '--num-iterations', '20', '--max-size-kb', '4',
             '--json', out] + SHORT)
    rows = [json.loads(line) for line in open(out)] if r.returncode == 0 else []
    check('with EAL arguments DPDK is measured too', 'rte_malloc' in {row['method'] for row in rows},
          r.stdout[-1000:] + r.stderr)


def interrupted(out):
    for sig in (signal.SIGINT, signal.SIGTERM):
        for wait_s in (1, 4, 16):  # a busy machine may not have finished a round
            if os.path.exists(out):
                os.remove(out)
            p = subprocess.Popen([program, 'transfer', '--repeat', '1000', '--json', out],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            stdout = p.stdout.readline()
            time.sleep(wait_s)
            p.send_signal(sig)
            more, stderr = p.communicate(timeout=60)
            stdout += more
            rows = [json.loads(line) for line in open(out)] if os.path.exists(out) else []
            if rows:
                break
        check(f'{sig.name} stops it with the results so far',
              p.returncode == 0 and 'interrupted' in stderr and 'GB/s' in stdout and rows,
              f'code {p.returncode}: {stdout[-500:]} {stderr}')


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
    r = run(['lookup', '--num-segments', '1', '--num-lookups', '10', '--repeat', '1'])
    check('the next one removes it', r.returncode == 0 and not glob.glob(mine + '*'), glob.glob(mine + '*'))
    # A block of the kernel's, which has a name between two calls only.
    blocks = [f'/dev/shm/shmbench.{pid}' for pid in (p.pid, os.getpid())]
    for block in blocks:
        open(block, 'w').close()
    r = run(['lookup', '--num-segments', '1', '--num-lookups', '10', '--repeat', '1'])
    check('and the block of a process that has ended, no other', r.returncode == 0 and
          [os.path.exists(block) for block in blocks] == [False, True], glob.glob('/dev/shm/shmbench.*'))
    os.unlink(blocks[1])


def pictures(out, source, tmp):
    plot = os.path.join(source, 'usertools', 'crpc-plot')
    bad = os.path.join(tmp, 'bad')
    open(bad, 'w').write('{}\n')
    for args in ([], [bad], [os.path.join(tmp, 'none')], ['--frobnicate']):
        r = subprocess.run([plot] + args, capture_output=True, text=True)
        check(f'crpc-plot refuses {len(args)} bad arguments', r.returncode == 2 and r.stderr.count('\n') == 1,
              r.stderr)
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
        bad_options()
        r = run(['--help'])
        check('--help', r.returncode == 0 and '--measure-mmap-only' in r.stdout)
        with open(all_out, 'w') as everything:
            for bench in (allocation, lookup, transfer):
                bench(out)
                everything.write(open(out).read())
        if sys.argv[3] == 'none':
            with_eal(out)
        os.remove(out)
        interrupted(out)
        killed()
        pictures(all_out, sys.argv[2], tmp)
    left = leftovers() - before
    check('nothing is left', not left, left)
    print(f'{failures} failures')
    return 1 if failures else 0


program = sys.argv[1]
sys.exit(main())
