#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves what holds for every benchmark: SIGINT, and SIGTERM to all its processes as timeout(1) sends it, end a
run with the results so far and status 0; the second signal ends it at once with status 128 + signal. Results are
as doc/protocol/results.md says, tables at most 80 columns wide.

Arguments: build root, source root, libsoft_mlx5.so.
"""
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

build, source, library = sys.argv[1:]
sys.path.append(os.path.join(source, 'usertools'))
import crpc_tool  # noqa: E402

LCORES = sorted(os.sched_getaffinity(0))[:2]
EAL = ['--no-huge', '-m', '128', '--no-shconf', '-l', ','.join(map(str, LCORES)), '--']
# Program, whether it wants a device, and options with which a run takes very long.
PROGRAMS = {
    'ringbench': ('ringbench', False, [*EAL, '--transport', 'fastforward', '--burst', '8', '--repeat', '1000']),
    'shmbench': ('shmbench', False, ['transfer', '--size', '1M', '--repeat', '1000']),
    'rpcbench ipc': ('rpcbench', False, [*EAL, 'ipc', '--transport', 'ipc', '--repeat', '1000', '--slice-ms', '20']),
    'rpcbench tensor': ('rpcbench', False, [*EAL, 'tensor', '--transport', 'tensor_f32', '--size', '4000',
                                            '--repeat', '1000', '--slice-ms', '20']),
    'rpcbench net': ('rpcbench', True, [*EAL, 'net', '--transport', 'copyrpc_rc', '--endpoints', '1', '--depth', '8',
                                        '--repeat', '1000', '--slice-ms', '20']),
    'xferbench': ('xferbench', True, [*EAL, '--size', '1Mi', '--transport', 'bulk,memcpy', '--repeat', '1000',
                                      '--slice-ms', '20']),
    'benchkv': ('benchkv', False, [*EAL, '--clients', '1', '--warmup', '0.1', '--seconds', '1000']),
}
failures = 0


def check(what, ok, detail=''):
    global failures
    failures += not ok
    print(('ok: ' if ok else 'FAIL: ') + what, '' if ok else detail, flush=True)


def command(name, more=()):
    program, device, args = PROGRAMS[name]
    soft = [os.path.join(source, 'usertools/soft-mlx5'), '--net', f'programs{os.getpid()}', '--progress', 'inline',
            '--lib', library, '--'] if device else []
    return [*soft, os.path.join(build, 'apps', program, program), *args, *more]


def start(name, more=(), stdout=subprocess.PIPE):
    return subprocess.Popen(command(name, more), stdout=stdout, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


def interrupted(name, sig, out):
    """The first signal, in the middle of the slices; a busy machine may not have finished one."""
    for wait_s in (1, 4, 16):
        p = start(name, ['--json', out])
        first = p.stdout.readline()
        time.sleep(wait_s)
        (p.send_signal if sig == signal.SIGINT else lambda s: os.killpg(p.pid, s))(sig)
        stdout, stderr = p.communicate(timeout=60)
        rows = [json.loads(line) for line in open(out)] if os.path.exists(out) else []
        if rows or p.returncode != 0:
            break
    check(f'{name}: {sig.name} ends it with the results so far', p.returncode == 0 and rows and
          'interrupted' in stdout + stderr, f'{p.returncode}: {first}{stdout[-1000:]} {stderr}')
    check(f'{name}: its results', not any(map(crpc_tool.wrong, rows)), [(crpc_tool.wrong(r), r) for r in rows][:1])
    wide = [line for line in (first + stdout).splitlines() if len(line) > 80]
    check(f'{name}: its tables', not wide, wide)


def ended_at_once(name, sig):
    """It cannot print its results, as nothing reads them: the second signal ends it nevertheless."""
    unread, stdout = os.pipe()
    os.write(stdout, bytes(fcntl.fcntl(stdout, fcntl.F_GETPIPE_SZ) - 128))  # Room for its first line.
    p = start(name, stdout=stdout)
    try:
        time.sleep(3)
        p.send_signal(signal.SIGINT)
        time.sleep(1)
        check(f'{name}: it cannot end without its results', p.poll() is None, p.returncode)
        p.send_signal(sig)
        p.communicate(timeout=20)
        check(f'{name}: a second {sig.name} ends it', p.returncode in (-sig, 128 + sig), p.returncode)
    finally:
        p.kill()
        os.close(stdout)
        os.close(unread)


def main():
    if len(LCORES) < 2:
        print('two cores are needed')
        return 77
    with tempfile.TemporaryDirectory() as tmp:
        for number, name in enumerate(PROGRAMS):
            interrupted(name, (signal.SIGINT, signal.SIGTERM)[number % 2], os.path.join(tmp, f'{number}.jsonl'))
            ended_at_once(name, (signal.SIGTERM, signal.SIGINT)[number % 2])
    print(f'{failures} failures')
    return failures != 0


if __name__ == '__main__':
    sys.exit(main())
