#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rpcbench ipc from outside: every transport that is built moves verified calls in both modes, with one client and
with many; each result line has the keys that readers count on; a lost server ends it in time; nothing is left
behind."""
import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

KEYS = ['layer', 'transport', 'clients', 'active', 'depth', 'burst', 'size', 'mode', 'ratio_line', 'ratio_ipc',
        'line_ns']
SHORT = ['--slice-ms', '4', '--repeat', '2']
problems = []
started = []


def problem(text):
    problems.append(text)
    print('PROBLEM:', text)


def command(program, args, eal=('--no-huge',)):
    return [program, *eal, '--', *args]


def start(program, args, **kw):
    p = subprocess.Popen(command(program, args, **kw), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started.append(p.pid)
    return p


def run(program, args, **kw):
    p = start(program, args, **kw)
    out, err = p.communicate(timeout=120)
    return subprocess.CompletedProcess(p.args, p.returncode, out, err)


def left_behind():
    return [path for pid in started for path in glob.glob(f'/dev/shm/*rpcbench.{pid}.*')]


def missing_peers(program):
    """Transports that this build lacks are refused with the name of their package."""
    text = run(program, ['ipc', '--help']).stdout
    missing = [line.split()[0] for line in text.splitlines() if ' is not in this build' in line]
    for name in missing:
        r = run(program, ['ipc', '--transport', name])
        if r.returncode != 2 or 'install lib' not in r.stderr:
            problem(f'{name}: code {r.returncode}, stderr {r.stderr!r}')
    return {'ipc', 'unix_socket', 'pipe', 'ucx_posix', 'zmq_ipc', 'zmq_tcp'} - set(missing)


def measure(program, folder, args, expected):
    out = os.path.join(folder, 'out.jsonl')
    if os.path.exists(out):
        os.unlink(out)
    r = run(program, ['ipc', '--verify', '--json', out] + SHORT + args)
    if r.returncode != 0 or 'runtime error' in r.stderr or 'Sanitizer' in r.stderr:
        problem(f'{args}: code {r.returncode}, {r.stdout[-2000:]} {r.stderr[-2000:]}')
        return []
    if 'machine: line ping-pong' not in r.stdout:
        problem(f'{args}: the machine\'s limits are not told')
    rows = [json.loads(line) for line in open(out)]
    seen = {(row['transport'], row['mode'], row['clients'], row['size']) for row in rows}
    for want in expected:
        if want not in seen:
            problem(f'{args}: no result for {want}')
    for row in rows:
        lacking = [k for k in KEYS if k not in row]
        figure = row.get('latency' if row['mode'] == 'sync' else 'rate')
        if lacking or not figure or not 0 < figure['min'] <= figure['median'] <= figure['max'] or \
                figure['unit'] != ('ns' if row['mode'] == 'sync' else 'Mops/s'):
            problem(f'{args}: incomplete, {lacking} {row}')
    return rows


def limits(program):
    """Too few open files or too little memory is a line and an exit code, wherever it runs out: DPDK, UCX and
    ZeroMQ would abort."""
    text = open(program, 'rb').read()
    if b'__asan_init' in text or b'__tsan_init' in text:
        return  # sanitizers map more than any limit
    mib = 1 << 20
    for what, limit in [(resource.RLIMIT_NOFILE, n) for n in (12, 18, 26, 36, 48)] + \
            [(resource.RLIMIT_AS, n * mib) for n in (140, 190, 240, 300, 400)]:
        def lower():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(what, (limit, limit))
        for layer in (['ipc', '--mode', 'sync', '--size', '32', '--clients', '2'], ['tensor', '--size', '4096']):
            p = subprocess.Popen(command(program, [*layer, *SHORT]), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, preexec_fn=lower)
            started.append(p.pid)
            try:
                _, err = p.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                p.kill()
                _, err = p.communicate()
            lines = err.splitlines()
            if p.returncode not in (0, 1, 2) or (p.returncode != 0) != bool(lines) or \
                    not all(line.startswith('rpcbench: ') for line in lines):
                problem(f'{layer[0]}, limit {limit} of {what}: code {p.returncode}, {err[:500]!r}')


def measuring(p):
    """Wait until it is in its slices."""
    for _ in range(2):
        p.stdout.readline()
    time.sleep(0.5)


def seconds(p):
    """Its second process."""
    out = subprocess.run(['pgrep', '-P', str(p.pid)], capture_output=True, text=True).stdout
    return [int(pid) for pid in out.split()]


def killed(program):
    """A server that is killed ends the run with an error; a first process that is killed takes the
    second with it, and its segment; what both left when they were killed goes with the next start."""
    for victim in ('second', 'first', 'both'):
        p = start(program, ['ipc', '--transport', 'ipc', '--mode', 'sync', '--repeat', '1000', '--slice-ms', '20'])
        measuring(p)
        child = seconds(p)
        if len(child) != 1:
            problem(f'{victim}: expected one second process, found {child}')
        if not left_behind():
            problem(f'{victim}: no segment, which it could leave behind')
        if victim == 'both':
            os.kill(p.pid, signal.SIGSTOP)
        if victim != 'first':
            os.kill(child[0], signal.SIGKILL)
        if victim != 'second':
            os.kill(p.pid, signal.SIGKILL)
        out, err = p.communicate(timeout=60)
        if victim == 'second' and (p.returncode != 1 or 'signal 9' not in err):
            problem(f'second process killed: code {p.returncode}, {err!r}')
        if victim == 'first':
            for _ in range(100):
                if not os.path.exists(f'/proc/{child[0]}'):
                    break
                time.sleep(0.1)
            else:
                problem('the second process outlives the first')
            if left_behind():
                problem(f'left behind: {left_behind()}')
        if victim == 'both':
            run(program, ['ipc', '--transport', 'ipc', '--mode', 'sync'] + SHORT)
            if left_behind():
                problem(f'left behind at the next start: {left_behind()}')


def main():
    program, plot = sys.argv[1:]
    if len(os.sched_getaffinity(0)) < 2:
        print('two cores are needed')
        return 77
    if shutil.which('pgrep') is None:
        print('skip: pgrep is not installed')
        return 77
    built = missing_peers(program)
    with tempfile.TemporaryDirectory() as tmp:
        rows = measure(program, tmp, ['--clients', '1,5', '--size', '32,1000', '--depth', '7', '--burst', '5'],
                       [(t, m, c, s) for t in built for m in ('sync', 'async') for c in (1, 5) for s in (32, 1000)])
        if shutil.which('gnuplot') and rows:
            subprocess.run([plot, os.path.join(tmp, 'out.jsonl')], check=True, stdout=subprocess.DEVNULL)
            pictures = glob.glob(os.path.join(tmp, '*.svg'))
            if not pictures or any(os.path.getsize(p) < 1000 for p in pictures):
                problem(f'pictures: {pictures}')
        rows = measure(program, tmp, ['--size', '8,16384', '--depth', '3', '--percentiles'],
                       [(t, m, 1, s) for t in built for m in ('sync', 'async') for s in (8, 16384)])
        rows = [row['lat_ns'] for row in rows if row['mode'] == 'sync' and 'lat_ns' in row]
        lat = [[row[q] for q in ('p50', 'p90', 'p99', 'p999', 'max')] for row in rows]
        if not lat or any(v != sorted(v) or v[0] <= 0 for v in lat):
            problem(f'percentiles: {lat}')
        r = run(program, ['ipc'] + SHORT + ['--mode', 'sync', '--transport', 'ipc', '--counters'])
        if r.returncode != 0 or not ('instructions' in r.stdout or 'this machine has none' in r.stderr):
            problem(f'counters: code {r.returncode}, {r.stdout!r} {r.stderr!r}')
        rows = measure(program, tmp, ['--mode', 'async', '--transport', 'ipc,unix_socket', '--connected', '100',
                                      '--active', '3', '--depth', '2'],
                       [(t, 'async', c, 32) for t in ('ipc', 'unix_socket') for c in (3, 100)])
        if not any('time_server_call' in row for row in rows):
            problem('the server\'s cost per call is not told')
        measure(program, tmp, ['--mode', 'oneway', '--clients', '3', '--depth', '10'],
                [(t, 'oneway', 3, 32) for t in {'ipc', 'unix_socket', 'pipe', 'ucx_posix'} & built])
        measure(program, tmp, ['--mode', 'async', '--transport', 'ipc', '--clients', '1024', '--depth', '1'],
                [('ipc', 'async', 1024, 32)])
    limits(program)
    killed(program)
    if left_behind():
        problem(f'left behind: {left_behind()}')
    print(f'{len(problems)} problems; transports {sorted(built)}')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
