#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ringbench from outside: every pattern moves verified payloads through every transport, each result line has the
keys that readers count on, and the tables show the figures of the results and the machine's limits."""
import json
import os
import subprocess
import sys
import tempfile

EAL = ['--no-huge']
KEYS = ['transport', 'pattern', 'size', 'burst', 'depth', 'nodes', 'line_rate_mlps', 'cycles']


def run(program, lcores, args):
    return subprocess.run([program, '-l', lcores] + EAL + ['--'] + args,
                          capture_output=True, text=True, timeout=60)


def main():
    program, sanitize = sys.argv[1:]
    if sanitize == 'thread':
        print('queues of others are run here, which order in ways that the thread sanitizer does not '
              'follow; the tests of spsc and flux check ours under it')
        return 77
    if len(os.sched_getaffinity(0)) < 2:
        print('two cores are needed')
        return 77
    lcores = ','.join(str(c) for c in sorted(os.sched_getaffinity(0))[:2])
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, 'out.jsonl')
        r = run(program, lcores, ['--pattern', 'stream,rpc,latency,flux,mesh', '--transport', 'all', '--verify',
                                  '--burst', '7', '--size', '8,64', '--seconds', '0.005', '--repeat', '2',
                                  '--depth', '100', '--nodes', '3', '--counters', '--json', out])
        if r.returncode != 0:
            print(r.stdout[-3000:], r.stderr)
            return 1
        rows = [json.loads(line) for line in open(out)]
        table = r.stdout
    for name in ('lines in flight', 'M lines/s one way', 'M lines/s both ways'):
        line = next((line for line in table.splitlines() if line.strip().startswith(name)), '')
        if len(line[len(name) + 2:].split()) != 5:
            bad += 1
            print(f'no figure for each number of lines: {line!r}')
    seen = {(row['pattern'], row['transport']) for row in rows}
    for pattern in ('stream', 'rpc', 'latency', 'flux', 'mesh'):
        for transport in ('fastforward', 'lamport', 'onesided'):
            if (pattern, transport) not in seen:
                bad += 1
                print(f'no result for {pattern} {transport}')
    for row in rows:
        missing = [k for k in KEYS if k not in row]
        figure = row.get('rate') or row.get('latency')
        if missing or not figure or not figure['median'] > 0:
            bad += 1
            print(f'incomplete: {missing} {row}')
            continue
        if row['transport'] not in table:
            bad += 1
            print(f'not in the table: {row}')
        if row['ratio_line_rate'] and not 0 < row['ratio_line_rate'] * row['line_rate_mlps']:
            bad += 1
            print(f'no share of the line rate: {row}')
    print(f'{len(rows)} results, {bad} bad')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
