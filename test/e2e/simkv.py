#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves that simkv repeats a run bit for bit, loses and doubles no call, keeps to Little's law, has no host that is
left out among 64, answers rightly with every backend, flush policy, transport and flow, compares with what was
published, lets hosts fail as --fault says, and finds 300 seeds of --chaos sound.

Arguments: simkv, source root.
"""
import json
import os
import subprocess
import sys
import tempfile

simkv, source = sys.argv[1:]
sys.path.append(os.path.join(source, 'usertools'))
import crpc_tool  # noqa: E402

failures = 0


def check(what, ok, detail=''):
    global failures
    failures += not ok
    print(('ok: ' if ok else 'FAIL: ') + what, '' if ok else detail, flush=True)


def run(*args):
    """A run's rows, and their bytes."""
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, 'rows')
        r = subprocess.run([simkv, *args, '--json', path], capture_output=True, text=True, timeout=120)
        check(' '.join(args), r.returncode == 0 and r.stderr == '', f'status {r.returncode}: {r.stderr}')
        check('its table', all(len(line) <= 80 for line in r.stdout.splitlines()), r.stdout)
        with open(path, 'rb') as f:
            raw = f.read()
    rows = [json.loads(line) for line in raw.splitlines()]
    for row in rows:
        check('a row', crpc_tool.wrong(row) is None and row['virtual'] is True, (crpc_tool.wrong(row), row))
        calls = row['hosts'] * row['clients'] * row['depth']
        check('every call ends once', row['sent'] == row['answered'] >= calls and row['open'] == row['failed'] == 0 and
              row['verify_errors'] == row['not_found'] == 0, row)
        check("Little's law", abs(row['little_ratio'] - 1) < 0.03, row['little_ratio'])
    return rows, raw


def raw_rows(*args, status=0):
    """The bytes of a run whose operations may fail."""
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, 'rows')
        r = subprocess.run([simkv, *args, '--json', path], capture_output=True, text=True, timeout=300)
        check(' '.join(args), r.returncode == status and (r.stderr == '') == (status == 0), r)
        with open(path, 'rb') as f:
            return f.read()


def backends(base):
    """Each answers rightly, twice the same, and takes of the card what its way of connecting says."""
    rate = {}
    for backend, pairs in (('copyrpc', 2), ('delegation', 2), ('direct', 3 * 4 * 2), ('erpc', 4 + 1)):
        rows, raw = run(*base, '--hosts', '3', '--backend', backend)
        check(f'{backend}: one seed gives the same bytes', raw == run(*base, '--hosts', '3', '--backend', backend)[1])
        row = rows[0]
        check(f'{backend}: queue pairs of a host', row['queue_pairs'] == pairs and row['registered_mib'] > 0, row)
        check(f'{backend}: in the row', row['backend'] == backend and
              row['transport'] == ('ud' if backend == 'erpc' else 'rc'), row)
        rate[backend] = row['rate']['median']
    slow = run(*base, '--hosts', '3', '--backend', 'delegation', '--set', 'line_ns=2000')[0][0]
    check('a line that is had for 2 us lets through half a million each us and host',
          0.9 < slow['rate']['median'] / 1.5 <= 1.001 and slow['rate']['median'] < rate['delegation'], slow)
    one = run(*base, '--hosts', '3', '--backend', 'copyrpc', '--set', 'line_ns=2000,ring_in_ns=500')[0][0]
    check('it is of delegation only', one['rate']['median'] == rate['copyrpc'], (one, rate))
    small = run(*base, '--hosts', '3', '--backend', 'direct', '--set', 'cache_entries=4,cache_miss_ns=300')[0][0]
    check('state that does not fit the card is fetched', small['cache_misses'] > small['sent'] and
          small['rate']['median'] < rate['direct'], (small, rate))
    for backend in 'direct', 'erpc':
        deep = run(*base, '--backend', backend, '--depth', '8', '--flush', 'deferred', '--hosts', '2')[0][0]
        check(f'deeper clients of {backend}', deep['sent'] > 0, deep)
    check('a call of erpc is a message, a datagram and a completion each way',
          0.99 < deep['batch_mean'] <= 1 and abs(deep['per_op']['messages'] / 2 - 1) < 0.05 and
          abs(deep['per_op']['cqes'] / 2 - 1) < 0.05, deep)
    rows, _ = run('--preset', 'paper', '--sweep', 'backend=delegation,direct', '--virtual-ms', '0.1',
                  '--warmup-ms', '0.1')
    check('both have a published rate, of their own', [row['published_mops'] for row in rows] == [14.86, 2.83], rows)


def faults(base):
    quiet = json.loads(raw_rows(*base, '--hosts', '4', '--fault', 'slow:0@1+1'))
    check('without a fault in the measured part none fails', quiet['failed'] == 0, quiet)
    for fault, fails in (('crash:2@300+200', True), ('pause:1@300+100', False), ('break:0.1@300', True)):
        row = json.loads(raw_rows(*base, '--hosts', '4', '--fault', fault))
        check(f'{fault}: operations fail: {fails}', (row['failed'] > 0) == fails and row['open'] == 0 and
              row['verify_errors'] == 0 and row['sent'] == row['answered'], row)
        check('the others go on', row['sent'] > quiet['sent'] / 2, (row['sent'], quiet['sent']))


def chaos():
    both = [raw_rows('--chaos', '1', '--draws', '20') for _ in range(2)]
    check('chaos is the same twice', both[0] == both[1])
    row = json.loads(raw_rows('--chaos', '1', '--draws', '20', '--backend', 'delegation'))
    check('20 seeds of delegation are sound', row['seeds'] == 20 and not row['found'], row)
    row = json.loads(raw_rows('--chaos', '1000', '--draws', '300'))
    check('300 seeds are sound', row['seeds'] == 300 and not row['found'] and row['crash'] > 50 and
          row['lost_ranks'] > 200 and row['undecided_keys'] < 10, row)


def main():
    base = ('--clients', '4', '--virtual-ms', '0.5', '--warmup-ms', '0.1', '--verify')
    first, raw = run(*base, '--hosts', '3', '--seed', '5')
    again, same = run(*base, '--hosts', '3', '--seed', '5')
    other, differs = run(*base, '--hosts', '3', '--seed', '6')
    check('one seed gives the same bytes', raw == same, (first, again))
    check('another seed gives others', first[0]['sent'] != other[0]['sent'] or first[0]['lat_us'] != other[0]['lat_us'])
    for option, values in (('--flush', ('immediate', 'deferred', 'hold')), ('--flow', ('read', 'notify')),
                           ('--transport', ('dc',)), ('--depth', ('8',))):
        for value in values:
            run(*base, option, value)
    slow, _ = run(*base, '--set', 'propagation_ns=5500')
    fast, _ = run(*base)
    more = slow[0]['lat_us']['remote']['p50'] - fast[0]['lat_us']['remote']['p50']
    check('5 us more each way are 10 us more', 9.5 < more < 10.5, more)
    shared, _ = run(*base, '--colocate')
    check('on one core there is no hop, and a daemon has less time for others', all(
        sign * (shared[0]['lat_us'][path]['p50'] - fast[0]['lat_us'][path]['p50']) > 0.2
        for path, sign in (('local', -1), ('rtt', 1))), (shared, fast))
    rows, _ = run('--preset', 'seed001', '--sweep', 'clients=1,16', '--virtual-ms', '1')
    check('a sweep', [row['clients'] for row in rows] == [1, 16], rows)
    for row in rows:
        for of in ('mops', 'rtt_us'):
            error = row[f'predicted_{of}'] / row[f'published_{of}'] - 1
            check('an error', abs(error - row[f'error_{of}']) < 1e-6, row)
    many, _ = run('--hosts', '64', '--clients', '2', '--ring', '4096', '--virtual-ms', '0.2', '--warmup-ms', '0.1')
    check('64 hosts', many[0]['sent'] > 64 * 2 * 20, many)
    used, _ = run('--hosts', '80', '--clients', '1', '--connect', 'use', '--virtual-ms', '0.02', '--warmup-ms', '0.001')
    check('some of the pairs are connected', 80 < used[0]['connections'] < 80 * 79 / 2, used[0]['connections'])
    backends(base)
    faults(base)
    faults((*base, '--colocate', '--nic', 'soft_mlx5', '--cpu', 'soft_core'))
    chaos()
    for args, line in ((('--set', 'recv_ns=-1'), '--set'), (('--set', 'nothing=1'), '--set'),
                       (('--nic', 'none'), '--nic'), (('--cpu', 'cx7'), '--cpu'), (('--ring', '5000'), '--ring'),
                       (('--sweep', 'clients=1,0'), '--clients'), (('--hosts', '1024', '--keys', '1M'), '--keys'),
                       (('--fault', 'crash:2@5+5'), '--fault'), (('--fault', 'break:0@5+5'), '--fault'),
                       (('--fault', 'pause:0@5'), '--fault'), (('--fault', 'fire:0@5+5'), '--fault'),
                       (('--fault', 'slow:0@5+5x'), '--fault'), (('--chaos', '1', '--fault', 'slow:0@5+5'), '--fault'),
                       (('--draws', '2'), '--draws'), (('--transport', 'ud'), '--transport'),
                       *((('--backend', name, *more), '--backend') for name in ('direct', 'erpc') for more in
                         (('--fault', 'slow:0@5+5'), ('--chaos', '1'), ('--connect', 'use'), ('--transport', 'dc'),
                          ('--flow', 'read')))):
        r = subprocess.run([simkv, *args], capture_output=True, text=True, timeout=60)
        check(f'{args} is refused', r.returncode == 2 and r.stdout == '' and r.stderr.count('\n') == 1 and
              line in r.stderr, r)
    print(f'{failures} failures')
    return failures != 0


if __name__ == '__main__':
    sys.exit(main())
