#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rpcbench net and raw from outside, on the software ConnectX: every transport, mode and operation moves verified
messages, with both ends on one lcore, on two, and in two ranks; each result line has the keys that readers count on;
what a call asks of the NIC is no more than test/golden/rpcbench_ledger.json says.

  test_rpcbench_net.py RPCBENCH SOFT_MLX5 LIBRARY PLOT [--ledger] [--update]

With --ledger only what a call asks of the NIC is looked at. Counts are taken with both ends on one lcore,
in turn: then they do not depend on what else the machine does. --update writes them; the limits in the
file, which are what has to be reached, stay.
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

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden', 'rpcbench_ledger.json')
TOLERANCE = 0.25
NET = f'test.rpcbench_net.{os.getpid()}'
KEYS = ['layer', 'transport', 'endpoints', 'active', 'depth', 'size', 'mode']
COUNTS = ['doorbells', 'wqebb', 'cqes', 'pcie_bytes', 'packets']
RATES = {'write_imm', 'send', 'send_blueflame', 'ud_send'}
LATENCIES = {'write_imm_lat', 'send_lat', 'ud_lat', 'poll'}
BULK = {'write', 'read'}
SHORT = ['--slice-ms', '4', '--repeat', '2']
problems = []


def problem(text):
    problems.append(text)
    print('PROBLEM:', text)


class Bench:
    def __init__(self, program, soft, lib):
        self.program, self.soft, self.lib = program, soft, lib
        cores = sorted(os.sched_getaffinity(0))
        self.one, self.two = str(cores[0]), ','.join(map(str, cores[:2]))

    def command(self, args, lcores=None):
        eal = ['-l', lcores] if lcores else []
        return [self.soft, '--net', NET, '--progress', 'inline', '--lib', self.lib, '--', self.program, '--no-huge',
                *eal, '--', *args]

    def run(self, args, lcores=None):
        return subprocess.run(self.command(args, lcores), capture_output=True, text=True, timeout=120)

    def ranks(self, args):
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
        return subprocess.run(['mpirun', '-np', '2', '--oversubscribe', *self.command(args)], capture_output=True,
                              text=True, timeout=120, env=env)


def measure(bench, folder, args, lcores=None, ranks=False, short=True):
    """The result lines, each of them complete."""
    out = os.path.join(folder, 'out.jsonl')
    if os.path.exists(out):
        os.unlink(out)
    args = args + ['--json', out] + (SHORT if short else [])
    r = bench.ranks(args) if ranks else bench.run(args, lcores)
    if r.returncode != 0 or 'runtime error' in r.stderr or 'Sanitizer' in r.stderr:
        problem(f'{args}: code {r.returncode}, {r.stdout[-2000:]} {r.stderr[-2000:]}')
        return []
    rows = [json.loads(line) for line in open(out)]
    for row in rows:
        figure = row.get('latency') or row.get('rate') or row.get('bandwidth')
        lacking = [k for k in KEYS if k not in row] + \
            [f'{side} {k}' for side in ('ledger', 'ledger_client', 'ledger_server') for k in COUNTS
             if not isinstance(row[side].get(k), float)]
        if lacking or not figure or not 0 < figure['min'] <= figure['median'] <= figure['max']:
            problem(f'{args}: incomplete, {lacking} {row}')
    return rows


def seen(rows, what, expected, keys):
    got = {tuple(row.get(k) for k in keys) for row in rows}
    for want in expected:
        if want not in got:
            problem(f'{what}: no result for {want}')


def modes(bench, folder):
    """Every flush, flow and arrival of copyrpc; sizes and endpoints; one way under the smallest ring."""
    rows = measure(bench, folder, ['net', '--verify', '--transport', 'copyrpc_rc', '--endpoints', '3', '--depth', '5',
                                   '--flush', 'all'], bench.one)
    seen(rows, 'flush', [(f,) for f in ('clocked', 'immediate', 'deferred', 'hold')], ['flush'])
    rows = measure(bench, folder, ['net', '--verify', '--transport', 'copyrpc_rc', '--endpoints', '2', '--depth', '9',
                                   '--flow', 'all', '--arrival', 'all'], bench.one)
    seen(rows, 'flow', [(f, a) for f in ('window', 'read', 'notify') for a in ('imm', 'memory')], ['flow', 'arrival'])
    rows = measure(bench, folder, ['net', '--verify', '--endpoints', '1,40', '--depth', '4', '--size', '8,2000'],
                   bench.two)
    seen(rows, 'sizes', [('copyrpc_rc', e, s) for e in (1, 40) for s in (8, 2000)], ['transport', 'endpoints', 'size'])
    rows = measure(bench, folder, ['net', '--transport', 'copyrpc_rc', '--endpoints', '2', '--depth', '64', '--ring',
                                   '4096', '--oneway', '--flow', 'window,read'], bench.one)
    reads = {row['flow']: row['ledger']['reads'] for row in rows}
    if len(reads) != 2 or reads['window'] != 0 or reads['read'] == 0:
        problem(f'READs one way under a ring of 4 KiB: {reads}')
    rows = measure(bench, folder, ['net', '--oneway', '--endpoints', '2', '--depth', '8'], bench.two)
    seen(rows, 'one way', [(t, 'oneway') for t in ('copyrpc_rc', 'udrpc')], ['transport', 'mode'])
    return rows


def raw(bench, folder):
    rows = measure(bench, folder, ['raw'], bench.two)
    seen(rows, 'raw', [(t,) for t in RATES | LATENCIES | BULK], ['transport'])
    for row in rows:
        t = row['transport']
        if ('rate' if t in RATES else 'latency' if t in LATENCIES else 'bandwidth') not in row:
            problem(f'{t}: no figure in {row}')
    sizes = measure(bench, folder, ['raw', '--transport', 'write_imm,poll', '--size', '256,264'], bench.two)
    seen(sizes, 'raw sizes', [(t, size) for t in ('write_imm', 'poll') for size in (256, 264)], ['transport', 'size'])
    blocks = {row['size']: row['ledger_client']['wqebb'] for row in sizes if 'rate' in row}
    if not (blocks.get(256, 0) >= 5 and blocks.get(264, 9) < 1.01):
        problem(f'inline up to 256 bytes, so 5 blocks and 1: {blocks}')
    many = range(8, 64, 8)  # More lanes than are measured together.
    rows_of_many = measure(bench, folder, ['raw', '--transport', ','.join(RATES), '--size', ','.join(map(str, many))],
                           bench.two)
    seen(rows_of_many, 'many sizes', [(t, size) for t in RATES for size in many], ['transport', 'size'])
    bf = [row for row in rows if row['transport'] == 'send_blueflame']
    if not bf or abs(bf[0]['ledger_client']['doorbells'] - 1) > 0.01:
        problem(f'BlueFlame: not a doorbell each, {bf}')


def ledger(bench, folder, update):
    """No more of the NIC than was kept, and than has to be reached."""
    golden = json.load(open(GOLDEN)) if os.path.exists(GOLDEN) else {'most': {}}
    rows = measure(bench, folder, ['net', '--transport', 'copyrpc_rc', '--slice-ms', '30', '--repeat', '3'], bench.one,
                   short=False)
    now = {f'{row["endpoints"]}x{row["depth"]}':
           {k: round(row['ledger'][k], 4) for k in COUNTS} |
           {'pcie_bytes_per_side': round(max(row[s]['pcie_bytes'] for s in ('ledger_client', 'ledger_server')), 1)}
           for row in rows}
    if update:
        golden['per_call'] = now
        with open(GOLDEN, 'w') as f:
            json.dump(golden, f, indent=2)
            f.write('\n')
    for case, limits in golden['most'].items():
        for what, most in limits.items():
            value = now.get(case, {}).get(what)
            if value is None or value > most:
                problem(f'{case}: {what} {value} per call, at most {most} allowed')
    for case, kept in golden.get('per_call', {}).items():
        for what, was in kept.items():
            value = now.get(case, {}).get(what)
            print(f'{case:6} {what:20} {value} kept {was}')
            if value is None or value > was * (1 + TOLERANCE):
                problem(f'{case}: {what} {value} per call, {was} were kept')


def ranks(bench, folder):
    if shutil.which('mpirun') is None:
        print('no mpirun here: two ranks are not tested')
        return
    rows = measure(bench, folder, ['net', '--verify', '--endpoints', '2', '--depth', '8'], ranks=True)
    seen(rows, 'ranks', [('copyrpc_rc', 2)], ['transport', 'endpoints'])
    rows = measure(bench, folder, ['raw', '--transport', 'write_imm,ud_send,read'], ranks=True)
    seen(rows, 'ranks', [('write_imm',), ('ud_send',), ('read',)], ['transport'])


def rank_pids(bench, rank):
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            env = open(f'/proc/{pid}/environ', 'rb').read().split(b'\0')
            if os.path.samefile(f'/proc/{pid}/exe', bench.program) and f'PMIX_RANK={rank}'.encode() in env and \
                    f'SOFT_MLX5_NET={NET}'.encode() in env:
                yield int(pid)
        except OSError:
            continue


def killed_rank(bench, folder):
    """When either rank is killed, the other one reports it and ends with an error within seconds."""
    if shutil.which('mpirun') is None:
        return
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    args = bench.command(['net', '--endpoints', '1', '--depth', '8', '--repeat', '1000', '--slice-ms', '20'])
    at = args.index(bench.program)
    code = os.path.join(folder, 'code')
    args[at:at] = ['sh', '-c', f'"$@"; echo $? >{code}.$PMIX_RANK', 'sh']
    for victim in (0, 1):
        p = subprocess.Popen(['mpirun', '-np', '2', '--oversubscribe', '--enable-recovery', *args], env=env, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 60
        while len(list(rank_pids(bench, 0)) + list(rank_pids(bench, 1))) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(4)
        for pid in rank_pids(bench, victim):
            os.kill(pid, signal.SIGKILL)
        try:
            _, err = p.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            for pid in rank_pids(bench, 1 - victim):
                os.kill(pid, signal.SIGKILL)
            _, err = p.communicate()
        path = f'{code}.{1 - victim}'
        rc = open(path).read().strip() if os.path.exists(path) else None
        if rc not in ('1', '2') or 'lost' not in err:
            problem(f'rank {victim} killed: the other one ended with {rc}, {err[-1000:]!r}')


def pictures(bench, folder, plot):
    """The three cases of the original, drawn: curves, and what they ask of the NIC."""
    rows = measure(bench, folder, ['net', '--preset', 'original'], bench.two)
    seen(rows, 'original', [(t, e, d) for t in ('copyrpc_rc', 'udrpc') for e, d in ((1, 1), (1, 32), (8, 256))],
         ['transport', 'endpoints', 'depth'])
    if shutil.which('gnuplot') and rows:
        subprocess.run([plot, os.path.join(folder, 'out.jsonl')], check=True, stdout=subprocess.DEVNULL)
        drawn = glob.glob(os.path.join(folder, '*.svg'))
        if not any('ledger' in p for p in drawn) or any(os.path.getsize(p) < 1000 for p in drawn):
            problem(f'pictures: {drawn}')


def main():
    bench, plot = Bench(*sys.argv[1:4]), sys.argv[4]
    if len(os.sched_getaffinity(0)) < 2:
        print('two cores are needed')
        return 77
    with tempfile.TemporaryDirectory() as tmp:
        if '--ledger' in sys.argv:
            ledger(bench, tmp, '--update' in sys.argv)
        else:
            modes(bench, tmp)
            raw(bench, tmp)
            ranks(bench, tmp)
            killed_rank(bench, tmp)
            pictures(bench, tmp, plot)
    for path in glob.glob(f'/dev/shm/soft_mlx5.*.{NET}'):
        shutil.rmtree(path, ignore_errors=True)
    print(f'{len(problems)} problems')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
