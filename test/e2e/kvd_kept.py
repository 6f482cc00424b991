#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What kvd promises of its files holds against a second kvd, a slow disk, a kill, another user and a log without
a reader; and each program says why it does not start.

Arguments: build root.
"""
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

build = sys.argv[1]
TMP = tempfile.mkdtemp(prefix='kvd_kept.')
NAME = f'e2e.kept.{os.getpid()}'
KVD = os.path.join(build, 'apps/kvd/kvd')
KVCLI = os.path.join(build, 'apps/kvd/kvcli')
CORES = sorted(os.sched_getaffinity(0))
ENV = {**os.environ, 'RUNTIME_DIRECTORY': os.path.join(TMP, 'run')}
os.mkdir(ENV['RUNTIME_DIRECTORY'])
SLOW = {'LD_PRELOAD': os.path.join(build, 'test/e2e/slow_sync.so')}
running = []
failures = 0


def check(what, ok, detail=''):
    global failures
    failures += not ok
    print(('ok: ' if ok else 'FAIL: ') + what, '' if ok else detail, flush=True)


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def command(*args, lcores=None):
    return [KVD, '--no-huge', '-m', '128', '--lcores', lcores or f'0@{CORES[0]},1@{CORES[-1]}', '--', '--keys', '4000',
            *args]


def refusal(*args, env=None):
    """Start one that must not start. @return (status, stderr); status None: it runs."""
    p = subprocess.Popen(command(*args), stderr=subprocess.PIPE, text=True, env={**ENV, **(env or {})})
    running.append(p)
    try:
        return p.wait(timeout=15), p.stderr.read()
    except subprocess.TimeoutExpired:
        p.terminate()
        return None, p.stderr.read()


class Rank:
    number = 0

    def __init__(self, *args, env=None):
        Rank.number += 1
        self.err = os.path.join(TMP, f'{Rank.number}.err')
        self.ready = os.path.join(TMP, f'{Rank.number}.ready')
        with open(self.err, 'w') as err:
            self.process = subprocess.Popen(command('--ready-file', self.ready, *args), stderr=err,
                                            env={**ENV, **(env or {})})
        running.append(self.process)
        if not until(lambda: os.path.exists(self.ready) or self.process.poll() is not None, 200):
            check('it is ready', False, self.said())

    def said(self):
        with open(self.err) as f:
            return f.read()

    def snapshot(self):
        count = self.said().count('snapshot of')
        self.process.send_signal(signal.SIGHUP)
        check('a snapshot is written', until(lambda: self.said().count('snapshot of') > count), self.said())

    def end(self, sig=signal.SIGTERM, seconds=120):
        self.process.send_signal(sig)
        return self.process.wait(timeout=seconds)


def cli(*args, name=NAME, env=None):
    p = subprocess.run([KVCLI, '--name', name, *args], capture_output=True, text=True, timeout=60, env=env)
    return p.returncode, p.stdout.strip(), p.stderr.strip()


def two_with_one_path():
    """Also behind its first snapshot a kvd keeps its files to itself."""
    path = os.path.join(TMP, 'one')
    rank = Rank('--name', NAME, '--snapshot', path)
    rank.snapshot()
    cli('put', 'key', 'acked')
    status, said = refusal('--name', NAME + '.b', '--snapshot', path)
    check('a second kvd with this path is refused', status == 2 and 'has it and is alive' in said, (status, said))
    status = rank.end()
    check('the first writes its last snapshot', status == 0, rank.said())
    rank = Rank('--name', NAME, '--snapshot', path)
    check('what was acknowledged is there', cli('get', 'key')[1] == 'acked', cli('get', 'key'))
    rank.end()


def refused_one_harms_no_other():
    rank = Rank('--name', NAME)
    status, said = refusal('--name', NAME, '--ready-file', rank.ready)
    check('a name that is taken is refused', status == 2, (status, said))
    check('the one that serves stays ready', os.path.exists(rank.ready))
    rank.end()


def killed_and_started_again():
    """The child of a kvd that was killed writes a while: a supervisor's restart waits for it."""
    path = os.path.join(TMP, 'killed')
    Rank('--name', NAME, '--snapshot', path).end()
    rank = Rank('--name', NAME, '--snapshot', path, env={**SLOW, 'SLOW_SYNC_S': '5'})
    cli('put', 'key', 'written')
    rank.process.send_signal(signal.SIGHUP)
    until(lambda: os.path.exists(path + '.0.new') and os.path.getsize(path + '.0.new') > 64)
    time.sleep(0.5)
    rank.end(signal.SIGKILL)
    time.sleep(1)  # As kvd.sbatch and kvd.service do; the first gives up on status 2.
    rank = Rank('--name', NAME, '--snapshot', path)
    check('it starts again', rank.process.poll() is None, (rank.process.poll(), rank.said()))
    if rank.process.poll() is None:
        check('with the snapshot', cli('get', 'key')[1] == 'written')
        rank.end()
    else:
        time.sleep(6)


def slow_disk():
    """A stop during a snapshot that takes long loses nothing."""
    path = os.path.join(TMP, 'slow')
    rank = Rank('--name', NAME, '--snapshot', path, env={**SLOW, 'SLOW_SYNC_S': '10'})
    cli('put', 'key', 'acked')
    rank.process.send_signal(signal.SIGHUP)
    until(lambda: os.path.exists(path + '.0.new') and os.path.getsize(path + '.0.new') > 64)
    time.sleep(0.5)
    status = rank.end(seconds=100)
    check('a stop with a slow disk', status == 0, (status, rank.said()))
    rank = Rank('--name', NAME, '--snapshot', path)
    check('a stop with a slow disk loses nothing', cli('get', 'key')[1] == 'acked', cli('get', 'key'))
    rank.end()


def log_without_a_reader():
    """It fills up: the lines are lost, nothing else is."""
    path, ready = os.path.join(TMP, 'log'), os.path.join(TMP, 'log.ready')
    unread, log = os.pipe()
    fcntl.fcntl(log, 1031, 4096)  # F_SETPIPE_SZ
    p = subprocess.Popen(command('--name', NAME, '--snapshot', path, '--ready-file', ready, lcores=f'0@{CORES[0]}'),
                         stderr=log, env=ENV)
    running.append(p)
    os.close(log)
    until(lambda: os.path.exists(ready))
    cli('put', 'key', 'acked')

    def made():
        return os.stat(path + '.0').st_ino if os.path.exists(path + '.0') else 0

    for _ in range(70):
        before = made()
        p.send_signal(signal.SIGHUP)
        if not until(lambda before=before: made() != before, 5):
            break
    check('it serves', cli('get', 'key')[1] == 'acked', cli('--timeout-ms', '3000', 'get', 'key'))
    p.send_signal(signal.SIGTERM)
    try:
        check('it stops', p.wait(timeout=20) == 0)
    except subprocess.TimeoutExpired:
        check('it stops', False, 'not within 20 s')
        p.kill()
        p.wait()
    os.close(unread)


def another_users_file():
    if os.geteuid() != 0:
        return
    path = os.path.join(TMP, 'theirs')
    rank = Rank('--name', NAME, '--snapshot', path)
    cli('put', 'key', 'theirs')
    rank.end()
    os.chown(path + '.0', 65534, 65534)
    status, said = refusal('--name', NAME, '--snapshot', path)
    check('a snapshot of another user is refused', status == 2 and said.count('\n') == 1, (status, said))


def causes():
    os.mkfifo(os.path.join(TMP, 'fifo.0'))
    status, said = refusal('--name', NAME, '--snapshot', os.path.join(TMP, 'fifo'))
    check('a snapshot that is a pipe is refused with a cause', status == 2 and 'fifo.0' in said, (status, said))
    answer = cli('--frobnicate', env={**os.environ, 'PMIX_RANK': '1'})
    check('kvcli in a task of a launcher says what is wrong', answer[0] == 2 and '--frobnicate' in answer[2], answer)
    hosts = os.path.join(TMP, 'hosts')
    with open(hosts, 'w') as f:
        f.write('127.0.0.1:1\n127.0.0.1:2\n')
    status, said = refusal('--name', NAME, '--hosts', hosts, '--rank', '5', env={'PMIX_RANK': '1'})
    check('so does kvd with a hosts file', status == 2 and '--rank 5' in said, (status, said))


try:
    two_with_one_path()
    refused_one_harms_no_other()
    killed_and_started_again()
    another_users_file()
    causes()
    log_without_a_reader()
    slow_disk()
finally:
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()
    shutil.rmtree(TMP)
    for f in os.listdir('/dev/shm'):
        if NAME in f:
            os.unlink(os.path.join('/dev/shm', f))
sys.exit(1 if failures else 0)
