#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kvd as its operator meets it: starts and is ready, keeps its keys over a stop and its promises over a kill, refuses
what does not fit with one line, and, as two ranks that find each other by a hosts file, continues while one of them is
killed and started again. What its clients saw over kills and restarts is what one copy of each key shows that falls
back to the last snapshot.

Arguments: build root, source root, libsoft_mlx5.so.
"""
import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

build, source, library = sys.argv[1:]
TMP = tempfile.mkdtemp(prefix='kvd.')
NAME = f'e2e.kvd.{os.getpid()}'
KVD = os.path.join(build, 'apps/kvd/kvd')
KVCLI = os.path.join(build, 'apps/kvd/kvcli')
CLIENT = os.path.join(build, 'apps/benchkv/benchkv-client')
LINCHECK = os.path.join(build, 'usertools/lincheck/crpc-lincheck')
GROUP = 1 if os.geteuid() == 0 else os.getegid()
CORES = sorted(os.sched_getaffinity(0))
ENV = {**os.environ, 'RUNTIME_DIRECTORY': os.path.join(TMP, 'run')}
os.mkdir(ENV['RUNTIME_DIRECTORY'])
SOFT = [os.path.join(source, 'usertools/soft-mlx5'), '--net', f'kvd{os.getpid()}', '--lib', library, '--']
running = []
failures = 0


def check(what, ok, detail=''):
    global failures
    failures += not ok
    print(('ok: ' if ok else 'FAIL: ') + what, '' if ok else detail, flush=True)


def until(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    check(what, False, f'not within {seconds} s')
    return False


class Rank:
    """A kvd; its stderr is in a file."""
    number = 0

    def __init__(self, *args, name=NAME, soft=False, cores=None, env=None):
        Rank.number += 1
        self.err = os.path.join(TMP, f'{Rank.number}.err')
        self.ready = os.path.join(TMP, f'{Rank.number}.ready')
        lcores = ','.join(f'{i}@{core}' for i, core in enumerate(cores or CORES[:2]))
        command = [*(SOFT if soft else []), KVD, '--no-huge', '-m', '128', '--lcores', lcores, '--', '--name', name,
                   '--keys', '4000', '--ready-file', self.ready, *args]
        with open(self.err, 'w') as err:
            self.process = subprocess.Popen(command, stderr=err, env={**ENV, **(env or {})})
        running.append(self.process)

    def said(self):
        with open(self.err) as f:
            return f.read()

    def is_ready(self):
        until(f'rank is ready: {self.process.args}',
              lambda: os.path.exists(self.ready) or self.process.poll() is not None)
        if not os.path.exists(self.ready):
            check('rank is ready', False, self.said())
            sys.exit(1)
        return self

    def says(self, text, seconds=60):
        return until(f'"{text}" is printed', lambda: re.search(text, self.said()), seconds) or \
            check('it printed', False, self.said())

    def end(self, sig=signal.SIGTERM):
        if sig is not None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return 'no end'


def cli(*args, name=NAME, ok=True):
    p = subprocess.run([KVCLI, '--name', name, *args], capture_output=True, text=True, timeout=60)
    if ok and p.returncode != 0:
        check(f'kvcli {args}', False, p.stdout + p.stderr)
    return p


def load(*args, name=NAME, rank=None):
    p = subprocess.Popen([CLIENT, '--attach', name, '--clients', '2', '--depth', '4', '--warmup', '0', '--quiet',
                          *args],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running.append(p)
    if rank is not None:
        before = health(rank)['requests']
        until('the load is on', lambda: health(rank)['requests'] > before + 1000)
    return p


class Writer(threading.Thread):
    """Puts 0, 1, 2 ... to a key, one after the other, until one is not acknowledged."""
    def __init__(self):
        super().__init__()
        self.acknowledged = -1
        self.start()
        self.until_more()

    def run(self):
        while cli('put', 'counter', f'{self.acknowledged + 1:08}', ok=False).returncode == 0:
            self.acknowledged += 1

    def until_more(self):
        want = self.acknowledged + 10
        until('puts are acknowledged', lambda: self.acknowledged >= want)


class Caller(threading.Thread):
    """Gets, puts and deletes the first of benchkv-client's keys by kvcli until it is ended, and notes them."""
    def __init__(self, number):
        super().__init__()
        self.lines = []
        self.number = number
        self.ends = False
        self.start()

    def run(self):
        rng = random.Random(self.number)
        while not self.ends:
            self.call(rng.choice(['get', 'get', 'put', 'del']), rng.randrange(4))

    def call(self, kind, key):
        word = self.number << 48 | len(self.lines) + 1
        arg = [struct.pack('<Q', word).hex()] if kind == 'put' else []
        begin = time.monotonic_ns()
        p = cli('--hex', '--timeout-ms', '500', kind, struct.pack('<Q', key).hex(), *arg, ok=False)
        end, result = time.monotonic_ns(), 'ok'
        if p.returncode == 2:
            return  # There was no service to ask.
        if p.returncode != 0:
            end, result = (end, 'none') if 'no such key' in p.stderr else ('?', '?')
        elif kind == 'get':
            result = struct.unpack('<Q', bytes.fromhex(p.stdout.strip()))[0]
        self.lines.append(f'{self.number} {key} {begin} {end} {kind} {word if arg else "-"} {result}\n')


class Load(threading.Thread):
    """benchkv-client with a history, one after the other: each ends with the kvd that it is attached to."""
    def __init__(self):
        super().__init__()
        self.histories = []
        self.ends = False
        self.start()

    def run(self):
        while not self.ends:
            path = os.path.join(TMP, f'load.{len(self.histories)}.history')
            self.process = load('--seconds', '60', '--read-ratio', '0.5', '--delete-ratio', '0.1', '--cas', '--rate',
                                '5000', '--history', path)
            self.process.communicate()
            if os.path.exists(path):
                self.histories.append(path)

    def end(self):
        self.ends = True
        self.process.send_signal(signal.SIGINT)
        self.join()


def counter():
    return int(cli('--timeout-ms', '20000', 'get', 'counter').stdout)


def version_of(answer):
    return int(answer.stdout.split()[-1])


def values():
    """Of some of benchkv-client's keys, which are numbers."""
    keys = [struct.pack('<Q', i * 37).hex() for i in range(100)]
    return [cli('--timeout-ms', '20000', '--hex', 'get', key, ok=False).stdout for key in keys]


def health(rank, command='/crpc/kvd/health'):
    """Telemetry's answer."""
    for path in glob.glob(os.path.join(ENV['RUNTIME_DIRECTORY'], 'dpdk', '*', 'dpdk_telemetry.v2*')):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            # That of a process that was killed stays until another one takes its place.
            if s.connect_ex(path) != 0 or json.loads(s.recv(4096))['pid'] != rank.process.pid:
                continue
            s.send(command.encode())
            return json.loads(s.recv(16384))[command]
    raise AssertionError(f'process {rank.process.pid} has no telemetry')


def one_rank():
    path = os.path.join(TMP, 'one')
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(os.path.join(TMP, 'notify'))
    notify.settimeout(20)
    # Versions rise also over runs without snapshots, which begin by the time.
    rank = Rank().is_ready()
    version, epoch = version_of(cli('put', 'first', 'by time!')), health(rank)['epoch']
    check('a stop without snapshots', rank.end() == 0, rank.said())
    rank = Rank('--snapshot', path, env={'NOTIFY_SOCKET': os.path.join(TMP, 'notify')})
    notified = b''
    while b'READY=1' not in notified:
        notified += notify.recv(4096)
    check('systemd is notified', b'STATUS=1 of 1 ranks are up' in notified, notified)
    rank.is_ready()
    first = version_of(cli('put', 'first', 'kept over a stop'[:8]))
    check('versions rise when snapshots are switched on', first > version, (version, first))
    p = load('--seconds', '1', '--read-ratio', '0.5')
    out = p.communicate(timeout=30)
    check('benchkv-client loads it', p.returncode == 0, out)
    rank.process.send_signal(signal.SIGHUP)
    rank.says(r'snapshot of [1-9]\d* keys written')
    until('health counts the snapshot', lambda: health(rank)['snapshots'] == 1)
    h = health(rank)
    mode = os.stat(f'/dev/shm/crpc.{NAME}').st_mode & 0o777
    check('no other user may connect', mode == 0o600, oct(mode))
    check('health', h['state'] == 'serving' and h['ranks_up'] == h['ranks'] == 1 and h['epoch'] > epoch and
          h['keys'] > 1 and h['requests'] > 100 and h['snapshot_time'] > time.time() - 60, h)
    stats = health(rank, '/crpc/kvd/stats')
    check('counters of its daemons', stats['daemons'] == 1 and stats['ops'] > 100 and stats['puts'] > 1, stats)
    top = subprocess.run([os.path.join(source, 'usertools/crpc-top'), '--once', '--json', '--interval', '0.5', NAME],
                         capture_output=True, text=True, env=ENV)
    rows = [json.loads(line) for line in top.stdout.splitlines()]
    check('crpc-top shows it', top.returncode == 0 and
          [r['keys'] for r in rows if r['kind'] == 'kv'] == [stats['keys']] and
          {r['pid'] for r in rows} == {rank.process.pid} and
          any(r['thread'].startswith('rte-worker') for r in rows if r['kind'] == 'lcore'), top)
    before = values()
    status = rank.end()
    check('SIGTERM ends it with status 0', status == 0, f'{status} {rank.said()}')
    check('it says that it stops', b'STOPPING=1' in notify.recv(4096) and not os.path.exists(rank.ready))
    rank = Rank('--snapshot', path).is_ready()
    after = values()
    check('the same keys after a stop', before == after and len(set(after)) > 2,
          [pair for pair in zip(before, after) if pair[0] != pair[1]])
    check('the epoch rose', health(rank)['epoch'] == h['epoch'] + 1)

    # Killed under load: what the snapshot has is there, and no version comes twice.
    p = load('--seconds', '20', '--read-ratio', '0.1', rank=rank)
    writer = Writer()
    written = writer.acknowledged
    rank.process.send_signal(signal.SIGHUP)
    rank.says('snapshot of')
    version = version_of(cli('put', 'second', 'after it'))
    writer.until_more()
    rank.end(signal.SIGKILL)
    writer.join()
    p.communicate(timeout=30)
    rank = Rank('--snapshot', path).is_ready()
    check('the snapshot is there after a kill', cli('get', 'first').stdout.strip() == 'kept ove' and
          written <= counter() <= writer.acknowledged + 1, f'{written} {counter()}')
    check('what came after it is lost', cli('get', 'second', ok=False).returncode == 1)
    again = version_of(cli('put', 'second', 'once more'[:8]))
    check('versions do not repeat after a kill', again > version and again >> 40 == h['epoch'] + 2, (version, again))

    # Stopped under load: all that was acknowledged is there, and there are no new clients meanwhile.
    p = load('--seconds', '20', rank=rank)
    writer = Writer()
    rank.process.send_signal(signal.SIGTERM)
    rank.says('is stopped by signal 15')
    answer = cli('--timeout-ms', '100', 'get', 'first', ok=False)
    check('no new clients at the end', answer.returncode == 2, answer)
    check('a stop under load', rank.end(None) == 0, rank.said())
    writer.join()
    p.communicate(timeout=30)
    rank = Rank('--snapshot', path).is_ready()
    check('a stop loses nothing', counter() - writer.acknowledged in (0, 1), f'{counter()} {writer.acknowledged}')

    # The second signal does not wait for the drain, which lasts while clients ask.
    p = load('--seconds', '20', rank=rank)
    begin = time.monotonic()
    rank.process.send_signal(signal.SIGTERM)
    rank.says('is stopped by signal 15')
    time.sleep(0.3)
    status = rank.end()
    took = time.monotonic() - begin
    p.communicate(timeout=30)
    check('the second signal ends it at once', status == -signal.SIGTERM and took < 2, f'{status} {took}')
    return path


def refused(text, *args, command=None):
    command = command or [KVD, '--no-huge', '-l', str(CORES[0]), '--', *args]
    p = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENV)
    check(f'refused: {p.stderr.strip()}', p.returncode == 2 and p.stderr.count('\n') == 1 and not p.stdout and
          text in p.stderr, f'status {p.returncode}, expected "{text}": {command}')


def write(name, text):
    path = os.path.join(TMP, name)
    with open(path, 'w') as f:
        f.write(text)
    return path


def patched(path, offset, to):
    shutil.copy(path, to)
    with open(to, 'r+b') as f:
        f.seek(offset)
        f.write(b'\xff')


def lincheck(*histories):
    p = subprocess.run([LINCHECK, *histories], capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout + p.stderr


def killed_under_load():
    """What clients see over several lives of a kvd, with its snapshots and restarts, is what one copy shows."""
    args = ['--snapshot', os.path.join(TMP, 'history'), '--keys', '16']
    rank = Rank(*args).is_ready()
    callers, clients, marks = [Caller(100), Caller(101)], Load(), ['# crpc-history 1\n']

    def note(begin, kind):
        marks.append(f'0 * {begin} {time.monotonic_ns()} {kind} - ok\n')

    def calls(n):
        want = [len(caller.lines) + n for caller in callers]
        until('kvcli is answered', lambda: all(len(c.lines) >= w for c, w in zip(callers, want)))
        asked = health(rank)['requests']
        until('benchkv-client is answered', lambda: health(rank)['requests'] > asked + 500)

    for life in range(3):
        calls(10)
        begin = time.monotonic_ns()
        rank.process.send_signal(signal.SIGHUP)
        rank.says('snapshot of')
        note(begin, 'snapshot')
        calls(10)
        begin = time.monotonic_ns()
        rank.end(signal.SIGKILL)
        rank = Rank(*args).is_ready()
        note(begin, 'restart')
    calls(10)
    check('a stop under load and with a history', rank.end() == 0, rank.said())
    rank = Rank(*args).is_ready()  # Nothing is lost: it needs no mark.
    calls(10)
    for caller in callers:
        caller.ends = True
        caller.join()
    clients.end()
    rank.end()
    seen = marks[:1] + [line for caller in callers for line in caller.lines]
    seen, marks = write('kvcli.history', ''.join(seen)), write('marks.history', ''.join(marks))
    status, out = lincheck(seen, marks, *clients.histories)
    check(f'{len(clients.histories)} loads and kvcli over 3 kills: {out.strip()}',
          status == 0 and len(clients.histories) >= 4, status)
    status, out = lincheck(seen, *clients.histories)
    check('without the restarts the same histories are wrong', status == 1, out)


def bad_input(snapshot):
    good = ['--name', NAME, '--keys', '4000']
    refused('--frobnicate', *good, '--frobnicate')
    refused('--keys', '--name', NAME)
    refused('line 1', *good, '--config', write('bad.json', '{"keys": '))
    refused('"kees"', *good, '--config', write('bad.json', '{"kees": 5}'))
    refused('expected an integer, found true', *good, '--config', write('bad.json', '{"keys": true}'))
    refused('line 2', *good, '--hosts', write('bad.hosts', '127.0.0.1\na b\n'))
    refused('--rank N', *good, '--hosts', write('two.hosts', '127.0.0.1:1\n127.0.0.1:2\n'))
    refused('2 ranks', *good, '--hosts', os.path.join(TMP, 'two.hosts'), '--rank', '2')
    refused('no_such_group', *good, '--group', 'no_such_group')
    refused('no/such', *good, '--snapshot', '/no/such/folder/x')
    refused('--key-size', *good, '--key-size', '65')
    # Another version, other sizes, damage.
    bad = os.path.join(TMP, 'bad')
    shutil.copy(f'{snapshot}.0.epoch', f'{bad}.0.epoch')
    patched(f'{snapshot}.0', 8, f'{bad}.0')
    refused('expected version 1, found', *good, '--snapshot', bad)
    patched(f'{snapshot}.0', 100, f'{bad}.0')
    refused('checksum', *good, '--snapshot', bad)
    refused('expected keys of 16 bytes', *good, '--key-size', '16', '--snapshot', snapshot)
    shutil.copy(f'{snapshot}.0', f'{bad}.0')
    write('bad.0.epoch', 'five\n')
    refused('found \'five\'', *good, '--snapshot', bad)
    os.unlink(f'{bad}.0.epoch')
    refused('--restore-missing allow', *good, '--snapshot', bad)
    rank = Rank('--snapshot', bad, '--restore-missing', 'allow', '--access', '0660', '--group', str(GROUP),
                '--value-size', '8192', '--memory-limit', '1').is_ready()
    segment = f'/dev/shm/crpc.{NAME}'
    for part in (segment, segment + '.values'):
        # On hugepages all may come to the socket, where the daemon looks at their groups.
        stat = os.stat(part)
        at_socket = os.path.exists(part + '.sock') and os.stat(part + '.sock').st_mode & 0o777 == 0o666
        check('a group may connect', at_socket or stat.st_mode & 0o777 == 0o660 and stat.st_gid == GROUP, stat)
    refused('has it and is alive', '--name', NAME + '.b', '--keys', '4000', '--snapshot', bad)
    refused(NAME, *good)
    patched(segment, 8, segment + '.old')
    refused('version', command=[KVCLI, '--name', NAME + '.old', 'get', 'first'])
    os.unlink(segment + '.old')
    rank.end()


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(('127.0.0.1', 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def hello(version=1, rank=1, begin=9, value_size=8, secret=b'a secret of the test'):
    return struct.pack('<QIIQIIIIQQQ64s', 0x44564b4350524301, version, rank, begin, 2, 1, 8, value_size, 4000, 0, 0,
                       secret)


def talk(port, data):
    """Send it, and read until the connection ends."""
    with socket.create_connection(('127.0.0.1', port)) as s:
        s.settimeout(10)
        s.sendall(data)
        answer = b''
        while len(part := s.recv(4096)) != 0:
            answer += part
    return answer


def two_ranks():
    ports = free_ports(2)
    path = os.path.join(TMP, 'two')
    secret = write('secret', 'a secret of the test\n')
    os.chmod(secret, 0o600)
    common = ['--hosts', write('hosts', ''.join(f'127.0.0.1:{p}\n' for p in ports)), '--secret-file', secret,
              '--snapshot', path]

    def start(rank):
        return Rank(*common, '--rank', str(rank), soft=True, cores=[CORES[rank % len(CORES)], CORES[-1]])

    ranks = [start(0), start(1)]
    for rank in ranks:
        rank.is_ready()
    check('both are up', 'rank 1 joined (epoch ' in ranks[0].said() and '2 ranks up' in ranks[0].said(),
          ranks[0].said())
    # Keys of both ranks, seen through either; those that fail while rank 1 is away are its own.
    keys = [f'key{i}' for i in range(40)]
    for i, key in enumerate(keys):
        cli('put', key, f'value{i:03}', name=f'{NAME}.{i % 2}')
    check('either rank reaches all keys', all(
        cli('get', key, name=f'{NAME}.{1 - i % 2}').stdout.strip() == f'value{i:03}' for i, key in enumerate(keys)))
    check('the name of the service finds one of its ranks', cli('get', 'key7').stdout.strip() == 'value007')
    ranks[1].process.send_signal(signal.SIGHUP)
    ranks[1].says('snapshot of')

    # Hellos that do not fit: refused with one line, and no harm is done.
    for data, words in ((hello(version=7), 'expected version 1 .*found 7'),
                        (hello(value_size=64), 'found 2, 1, 8, 64, 4000'),
                        (hello(secret=b'another'), 'another --secret-file'),
                        (hello(begin=0), 'expected versions from .* on, found 0')):
        time.sleep(0.6)
        answer = talk(ports[0], data)
        ranks[0].says(f'a connection was refused: .*{words}')
        check('the refusal is an answer without the secret', len(answer) == 128 and b'secret' not in answer, answer)

    p = load('--seconds', '30', '--read-ratio', '0.5', name=f'{NAME}.0', rank=ranks[0])
    begin = time.monotonic()
    ranks[1].end(signal.SIGKILL)
    ranks[0].says('lost rank 1: ')
    check('the loss is reported at once', time.monotonic() - begin < 2)
    alive = [key for key in keys if cli('get', key, name=f'{NAME}.0', ok=False).returncode == 0]
    check('keys of the living rank are served, those of the other fail', 5 < len(alive) < 35, alive)
    check('the load continues', p.poll() is None)
    ranks[1] = start(1).is_ready()
    ranks[0].says(r'rank 1 joined again \(epoch [1-9]\d*\)')
    check('all keys of the snapshot are reached again', all(
        cli('get', key, name=f'{NAME}.{i % 2}').stdout.strip() == f'value{i:03}' for i, key in enumerate(keys)))
    check('it was lost and reported once', ranks[0].said().count('lost rank 1') == 1, ranks[0].said())
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=30)

    status = ranks[1].end()
    check('a rank that is stopped ends with status 0', status == 0, f'{status} {ranks[1].said()}')
    ranks[0].says('lost rank 1: it was stopped')
    check('the last rank ends with status 0', ranks[0].end() == 0, ranks[0].said())
    leftovers = [f for f in os.listdir('/dev/shm') if NAME in f]
    check('nothing is left in /dev/shm', not leftovers, leftovers)


def connected_on_use():
    """Ranks that have met exchange addresses when the first request needs them, which waits for that."""
    hosts = write('use.hosts', ''.join(f'127.0.0.1:{p}\n' for p in free_ports(2)))
    ranks = [Rank('--hosts', hosts, '--rank', str(r), '--connect', 'use', soft=True) for r in range(2)]
    for rank in ranks:
        rank.is_ready()
    check('ready without endpoints', all('2 ranks up' in rank.said() and ' joined' not in rank.said()
                                         for rank in ranks), ranks[0].said())
    for i in range(8):
        cli('put', f'key{i}', f'value{i}', name=f'{NAME}.0')
    for rank in range(2):
        ranks[rank].says(rf'rank {1 - rank} joined \(epoch ')
    check('the other reaches them too', all(
        cli('get', f'key{i}', name=f'{NAME}.1').stdout.strip() == f'value{i}' for i in range(8)))
    check('both end with status 0', [rank.end() for rank in ranks] == [0, 0], ranks[0].said())


def killed_while_it_writes():
    """The child that waits for the disk outlives it, and keeps neither its port nor its connections."""
    port, other = free_ports(2)
    path = os.path.join(TMP, 'slow')
    hosts = write('slow.hosts', f'127.0.0.1:{port}\n127.0.0.1:{other}\n')
    slow = {'LD_PRELOAD': os.path.join(build, 'test/e2e/slow_sync.so'), 'SLOW_SYNC_S': '4'}
    rank = Rank('--hosts', hosts, '--rank', '0', '--snapshot', path, soft=True, env=slow)

    def connection():
        try:
            return socket.create_connection(('127.0.0.1', port), timeout=1)
        except OSError:
            return None

    link = connection()
    while link is None and rank.process.poll() is None:
        time.sleep(0.05)
        link = connection()
    rank.process.send_signal(signal.SIGHUP)
    until('the snapshot is written', lambda: os.path.getsize(path + '.0.new') > 64)
    rank.end(signal.SIGKILL)
    check('the child that writes still does', os.path.exists(path + '.0.new') and not os.path.exists(path + '.0'))
    check('its port is free', connection() is None)
    until('the child has ended', lambda: os.path.exists(path + '.0'))


def launched():
    """Two ranks of a launcher, each with two daemons on one lcore, and large values."""
    if shutil.which('mpirun') is None:
        return
    ready = os.path.join(TMP, 'launched.ready')
    with open(os.path.join(TMP, 'launched.err'), 'w') as err:
        p = subprocess.Popen(['mpirun', '-n', '2', '--oversubscribe', '--bind-to', 'none', *SOFT, KVD, '--no-huge',
                              '-m', '128', '-l', str(CORES[0]), '--', '--name', NAME, '--keys', '1000',
                              '--daemons', '2', '--value-size', '64Ki', '--memory-limit', '16M', '--clients', '4',
                              '--ready-file', ready], stderr=err,
                             env={**ENV, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'})
    running.append(p)
    until('ranks of a launcher are ready', lambda: os.path.exists(ready))
    large = write('large', 'x' * 60000)
    for i in range(8):
        with open(large) as f:
            subprocess.run([KVCLI, '--name', f'{NAME}.{i % 2}.{i // 2 % 2}', 'put', f'key{i}', '-'], stdin=f,
                           capture_output=True)
    got = [len(cli('--raw', 'get', f'key{i}', name=f'{NAME}.{1 - i % 2}.0').stdout) for i in range(8)]
    check('either rank of a launcher reaches all keys', got == 8 * [60000], got)
    p.terminate()
    with open(os.path.join(TMP, 'launched.err')) as f:
        check('they are stopped together', p.wait(timeout=30) is not None, f.read())


def slurm():
    """The batch script with commands of Slurm that know one node, this one."""
    folder = os.path.join(TMP, 'bin')
    os.mkdir(folder)
    for name, text in (('scontrol', 'echo 127.0.0.1:%d' % free_ports(1)[0]),
                       ('scancel', f'kill -TERM $(cat {TMP}/task)'),
                       ('srun', 'while [[ $1 == --* ]]; do shift; done\n'
                                f'echo $$ >{TMP}/task\nSLURM_PROCID=0 exec "$@"')):
        path = write(f'bin/{name}', f'#!/bin/bash\n{text}\n')
        os.chmod(path, 0o755)
    ready = os.path.join(TMP, 'slurm.ready')
    with open(os.path.join(TMP, 'slurm.err'), 'w') as err:
        p = subprocess.Popen(['bash', os.path.join(source, 'apps/kvd/kvd.sbatch'), NAME, '4000', f'{TMP}/shared',
                              '--ready-file', ready], stderr=err,
                             env={**ENV, 'PATH': f"{folder}:{ENV['PATH']}", 'KVD': KVD, 'SLURM_JOB_ID': '1',
                                  'KVD_EAL': f'--no-huge -m 128 -l {CORES[0]},{CORES[-1]}'})
    running.append(p)

    def said():
        with open(os.path.join(TMP, 'slurm.err')) as f:
            return f.read()

    until('the job serves', lambda: said().count(' serves ') == 1)
    with open(ready) as f:
        os.kill(int(f.read()), signal.SIGKILL)
    until('a rank that dies is started again', lambda: said().count(' serves ') == 2)
    cli('put', 'key', 'of a job')
    p.send_signal(signal.SIGTERM)
    check('the end of a job is a stop', p.wait(timeout=60) == 0 and 'snapshot of 1 keys' in said(), said())


try:
    bad_input(one_rank())
    launched()
    slurm()
    killed_under_load()
    two_ranks()
    connected_on_use()
    killed_while_it_writes()
finally:
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()
    shutil.rmtree(TMP)
    for f in os.listdir('/dev/shm'):
        if NAME in f:
            os.unlink(os.path.join('/dev/shm', f))
    shutil.rmtree(f'/dev/shm/soft_mlx5.{os.getuid()}.kvd{os.getpid()}', ignore_errors=True)
sys.exit(1 if failures else 0)
