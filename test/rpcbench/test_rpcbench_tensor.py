#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rpcbench tensor from outside: every way that is built passes arrays whose elements are all compared; each result
line has the keys that readers count on, and the stages add up; a killed second process ends it in time; nothing is
left behind."""
import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

KEYS = ['layer', 'transport', 'size', 'latency', 'time_read', 'ratio_tensor', 'ratio_line']
STAGES = ['serialize', 'send', 'receive', 'deserialize']
OURS = ['tensor_f32', 'tensor_f32_copied', 'tensor_bf16']
PEERS = [f'{form}_zmq_{way}' for form in ('raw', 'msgpack_bin', 'msgpack_elements') for way in ('ipc', 'tcp')]
problems = []


def problem(text):
    problems.append(text)
    print('PROBLEM:', text)


def command(program, args):
    return [program, '--no-huge', '--', 'tensor', *args]


def run(program, args):
    return subprocess.run(command(program, args), capture_output=True, text=True, timeout=200)


def left_behind():
    return glob.glob('/dev/shm/*rpcbench*.t[0-9]*')


def wait_until(what):
    """False if it did not come true in time. A segment that is there says that the passes have begun."""
    for _ in range(600):
        if what():
            return True
        time.sleep(0.1)
    return False


def built(program):
    """The ways of this build; those that it lacks are refused with their packages."""
    text = run(program, ['--help']).stdout
    if 'usage: rpcbench' not in text:
        problem(f'--help: {text!r}')
    missing = [line.split()[0] for line in text.splitlines() if ' is not in this build' in line]
    for name in missing:
        r = run(program, ['--transport', name])
        if r.returncode != 2 or 'install lib' not in r.stderr:
            problem(f'{name}: code {r.returncode}, stderr {r.stderr!r}')
    return [way for way in OURS + PEERS if way not in missing]


def measure(program, ways, size, args=()):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, 'out.jsonl')
        r = run(program, ['--size', str(size), '--slice-ms', '1', '--repeat', '2', '--json', out, *args])
        if r.returncode != 0:
            problem(f'{size} {args}: code {r.returncode}, {r.stdout[-2000:]} {r.stderr[-2000:]}')
            return []
        rows = [json.loads(line) for line in open(out)]
    results = {row['transport']: row for row in rows}
    if set(results) != set(ways):
        problem(f'{size} {args}: results of {sorted(results)}')
        return []
    for way in ways:
        row = results[way]
        lacking = [k for k in KEYS if k not in row and ('compute' not in row or k != 'time_read')]
        if lacking or row['size'] != size or row['latency']['unit'] != 'us':
            problem(f'{size}: incomplete, {lacking} {row}')
        # Of the fastest slices: each stage's is part of some pass, so none is longer than the longest total.
        longest = row['latency']['max']
        lossy = way == 'tensor_bf16'
        # One element alone may be near one that bf16 has.
        least = (0.9, 0.0005) if size > 1000 else (0, 0)
        if lossy and not (row['changed'] >= least[0] and least[1] <= row['error_rms'] <= row['error_max'] <= 1 / 256) \
                or not lossy and row['changed'] + row['error_max'] != 0:
            problem(f'{size}: {way} changed {row["changed"]} by {row["error_rms"]} to {row["error_max"]}')
        if not longest > 0 or any(row[f'time_{s}']['min'] > longest for s in STAGES):
            problem(f'{size}: a stage of {way} takes longer than the whole')
    return list(results.values())


def computed(program, ways):
    """The result of a computation is right by every way; without OpenBLAS it is refused."""
    for args in (['--size', '4004'],) if blas() else (['--size', '4004'], []):
        r = run(program, ['--compute', 'fused', *args])
        if r.returncode != 2 or ('multiple of 4000' if args else 'install libopenblas0') not in r.stderr or \
                r.stderr.count('\n') != 1:
            problem(f'--compute {args}: code {r.returncode}, {r.stderr!r}')
    for how in ('separate', 'fused') if blas() else ():
        for row in measure(program, ways, 400000, ['--compute', how]):
            low, high = (1e-4, 1 / 256) if row['transport'] == 'tensor_bf16' else (1e-9, 1e-5)
            if row['compute'] != how or not low < row['error_result'] < high or \
                    not 0 < row['share_transport'] < 1 or row['time_compute']['median'] <= 0:
                problem(f'--compute {how}: {row}')


def blas():
    try:
        ctypes.CDLL('libopenblas.so.0')
        return True
    except OSError:
        return False


def killed(program):
    for victim in ('second', 'first'):
        p = subprocess.Popen(command(program, ['--transport', 'tensor_bf16', '--repeat', '1000', '--size', '4000']),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(left_behind)
        child = subprocess.run(['pgrep', '-P', str(p.pid)], capture_output=True, text=True).stdout.split()
        if len(child) != 1:
            problem(f'{victim}: expected one second process, found {child}')
            p.kill()
            continue
        os.kill(int(child[0]) if victim == 'second' else p.pid, signal.SIGKILL)
        out, err = p.communicate(timeout=90)
        if victim == 'second' and (p.returncode != 1 or 'signal 9' not in err):
            problem(f'second process killed: code {p.returncode}, {err!r}')
        if not wait_until(lambda: not left_behind() and not os.path.exists(f'/proc/{child[0]}')):
            problem(f'{victim} killed: left behind: {left_behind()}')


def killed_far_end(program):
    """ZeroMQ would wait for a dead process for ever; rpcbench ends long before its own limit of 20 s."""
    p = subprocess.Popen(command(program, ['--transport', 'raw_zmq_tcp', '--repeat', '1000', '--size', '4000000']),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3)  # most of the time is in passes; a busy machine may be at the start still
    child = subprocess.run(['pgrep', '-P', str(p.pid)], capture_output=True, text=True).stdout.split()
    for pid in child:
        os.kill(int(pid), signal.SIGKILL)
    begin = time.monotonic()
    out, err = p.communicate(timeout=90)
    took = time.monotonic() - begin
    if not child or p.returncode == 0 or 'signal 9' not in err or took > 15:
        problem(f'raw_zmq_tcp, second process killed: code {p.returncode} after {took:.1f} s, {err!r}')


def main():
    program = sys.argv[1]
    if len(os.sched_getaffinity(0)) < 2:
        print('two cores are needed')
        return 77
    if shutil.which('pgrep') is None:
        print('skip: pgrep is not installed')
        return 77
    for path in left_behind():
        os.unlink(path)
    ways = built(program)
    measure(program, ways, 400000)
    measure(program, OURS, 4, ['--transport', ','.join(OURS)])
    measure(program, OURS[:1], 10000000, ['--transport', OURS[0]])
    computed(program, ways)
    killed(program)
    if 'raw_zmq_tcp' in ways:
        killed_far_end(program)
    if left_behind():
        problem(f'left behind: {left_behind()}')
    print(f'{len(problems)} problems; ways {ways}')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
