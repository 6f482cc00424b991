#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves kvcli against real services of one daemon, of two, of two ranks, and with large values: each command does what
it says, what a dump has is what was loaded, a scan gives every key that stays exactly once while others come and go,
bad input ends in one line, and a service that hangs or dies ends no command later than its deadline.

Arguments: kvcli, kvd, the root of the source tree, libsoft_mlx5.so or ''. SEED in the environment repeats a run.
"""
import collections
import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

kvcli, kvd, source, library = (arg and os.path.abspath(arg) for arg in sys.argv[1:])
SEED = int(os.environ.get('SEED', time.time_ns() % 1000000))
NAME = f'kvcli{os.getpid()}'
failures = 0


def check(what, ok, detail=''):
    global failures
    failures += not ok
    print(('ok: ' if ok else 'FAIL: ') + what, '' if ok else detail, flush=True)


class Service:
    """A service without keys; its daemons have room for 30,000."""
    def __init__(self, name, *args, ranks=1):
        self.name = f'{NAME}.{name}'
        self.log = open(os.path.join(tmp, f'{name}.log'), 'w+')
        command = [kvd, '--no-huge', '--no-telemetry', '--', '--name', self.name, '--keys', '30000', '--clients', '6',
                   *args]
        if ranks > 1:
            sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(ranks)]
            with open(os.path.join(tmp, 'hosts'), 'w') as hosts:
                hosts.writelines(f'127.0.0.1:{s.getsockname()[1]}\n' for s in sockets)
                for s in sockets:
                    s.close()
            command = [os.path.join(source, 'usertools/soft-mlx5'), '--net', NAME, '--lib', library, '--', *command,
                       '--hosts', hosts.name, '--rank']
        self.processes = [subprocess.Popen(command + ([str(rank)] if ranks > 1 else []), start_new_session=True,
                                           stdout=self.log, stderr=subprocess.STDOUT,
                                           env=dict(os.environ, RUNTIME_DIRECTORY=tmp)) for rank in range(ranks)]

    def __enter__(self):
        end = time.time() + 60
        while time.time() < end and all(p.poll() is None for p in self.processes):
            if self.run('--timeout-ms', '500', 'stats').returncode == 0:
                return self
            time.sleep(0.1)
        raise RuntimeError('the service did not start: ' + open(self.log.name).read()[-2000:])

    def __exit__(self, *_):
        self.kill()
        self.log.close()
        for path in glob.glob(f'/dev/shm/crpc.{self.name}*'):
            os.unlink(path)
        for path in glob.glob(f'/dev/shm/soft_mlx5.*.{NAME}'):
            shutil.rmtree(path)

    def kill(self):
        for p in self.processes:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()

    def run(self, *args, data=None, limit=60):
        return subprocess.run([kvcli, '--name', self.name, '--timeout-ms', '20000', *args], input=data, timeout=limit,
                              capture_output=True, cwd=tmp)

    def text(self, *args):
        r = self.run(*args)
        return r.returncode, r.stdout.decode().rstrip('\n'), r.stderr.decode()

    def objects(self, *args):
        r = self.run('--json', *args)
        if r.returncode != 0:
            print(f'{args}: {r.returncode} {r.stderr}')
        return [json.loads(line) for line in r.stdout.splitlines()]


def lines_of(keys):
    return ''.join(json.dumps({'key': k, 'value': v}) + '\n' for k, v in keys.items()).encode()


def loaded(service, keys, *args):
    r = service.run(*args, 'load', '-', data=lines_of(keys))
    return r.returncode == 0 or r.stderr.decode()


def dumped(service):
    path = os.path.join(tmp, 'dump.jsonl')
    r = service.run('dump', path)
    rows = [json.loads(line) for line in open(path, encoding='utf-8')]
    for row in rows:
        row.setdefault('key', row.get('key_hex'))  # A key that is no text, as random_input() may leave one.
    check('a dump ends well and has no key twice', r.returncode == 0 and len({row['key'] for row in rows}) == len(rows),
          r.stderr)
    return {row['key']: row.get('value') for row in rows}


def commands(s):
    check('put prints a version', s.text('put', 'user', 'Ada')[1].startswith('version '))
    check('get prints the value', s.text('get', 'user')[:2] == (0, 'Ada'))
    row, = s.objects('get', 'user')
    check('get --json', row['key'] == 'user' and row['value'] == 'Ada', row)
    check('cas of another version fails', s.text('cas', 'user', str(row['version'] + 1), 'Eve')[0] == 1)
    check('  and names both', str(row['version']) in s.text('cas', 'user', '1', 'Eve')[2])
    check('cas of this version', s.text('cas', 'user', str(row['version']), 'Grace')[0] == 0 and
          s.text('get', 'user')[1] == 'Grace')
    check('cas 0 of a key that is there fails', s.text('cas', 'user', '0', 'Eve')[0] == 1)
    check('cas 0 of one that is not', s.text('cas', 'other', '0', 'Eve')[0] == 0)
    check('del', s.text('del', 'other')[0] == 0)
    check('del of none', s.text('del', 'other')[0] == 1)
    check('get of none', s.text('get', 'other') == (1, '', "kvcli: get 'other': no such key\n"))
    check('a word behind the command is no option', s.text('put', '--key', '--hex')[0] == 0 and
          s.text('--', 'get', '--key')[1] == '--hex')
    for i, value in enumerate(('\x1b[7m', '\x7f', '\u009b7m')):
        s.run('put', 'screen', '-', data=value.encode())
        check(f'what a terminal obeys is shown as hex digits: {i}', s.text('get', 'screen')[1].startswith('0x'))
    s.text('del', 'screen')
    check('a value with an end', s.text('--ttl-ms', '20000', 'put', 'short', 'life')[0] == 0)
    left = [row.get('ttl_ms') for row in s.objects('scan') if row['key'] == 'short']
    check('  which a scan shows', left and 0 < left[0] <= 20000, left)
    s.text('--ttl-ms', '10', 'put', 'short', 'life')
    time.sleep(0.1)
    check('  and which comes', s.text('get', 'short')[0] == 1)
    check('scan --limit', len(s.objects('--limit', '1', 'scan')) == 1 and len(s.objects('scan')) == 2)
    keys = sum(row['keys'] for row in s.objects('stats'))
    check('stats counts them', keys == 2 and s.text('stats')[1].count('\n') == len(s.objects('stats')), keys)


def bytes_are_exact(s, size):
    """Values of every small size, of all bytes, and the largest, there and back in each form."""
    values = [b'x' * n for n in range(1, 10)] + [bytes(range(256))[:size], bytes(8), 'héllo wörld'.encode(),
                                                 b'a\0b', b'"\\', os.urandom(size), b'\xff' * size]
    bad = []
    for number, value in enumerate(values):
        key = f'v{number}'
        put = s.run('put', key, '-', data=value).returncode
        raw = s.run('--raw', 'get', key).stdout
        hexes = s.text('--hex', 'get', key.encode().ljust(s.key_size, b'\0').hex())[1]
        if put != 0 or raw != value.ljust(8, b'\0') or hexes != raw.hex():
            bad.append((put, value[:20], raw[:20], hexes[:40]))
    check(f'values of all sizes to {size} and all bytes come back', not bad, bad)
    dump = s.run('dump', '-').stdout
    for number in range(len(values)):
        s.run('del', f'v{number}')
    check('  and by dump and load', s.run('load', '-', data=dump).returncode == 0 and all(
        s.run('--raw', 'get', f'v{number}').stdout == value.ljust(8, b'\0') for number, value in enumerate(values)))
    check('a value that is too large is refused',
          s.run('put', 'v', '-', data=bytes(size + 1)).returncode == 2 and
          s.run('put', 'v', 'x' * (size + 1) if size < 100000 else '').returncode == (2 if size < 100000 else 0))


def bulk(s, count):
    keys = {f'k{n}': f'value {n} ' + 'é' * (n % 20) for n in range(count)}
    check(f'load of {count} keys', loaded(s, keys) is True)
    got = dumped(s)
    check('  and their dump is the same', {k: got.get(k) for k in keys} == keys)
    return keys


def scans_during_changes(s, keys):
    """Keys with short lives come and go in the places between those that stay."""
    stop = threading.Event()
    rounds, failed = [0], []

    def churn():
        rng = random.Random(SEED)
        while not stop.is_set():
            some = {f'c{rng.randrange(5000)}': 'x' * rng.randrange(60) for _ in range(2000)}
            result = loaded(s, some, '--ttl-ms', str(rng.randrange(1, 40)))
            failed.extend([] if result is True else [result])
            rounds[0] += 1

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    bad, begin, scans = [], time.time(), 0
    while (scans < 5 or rounds[0] < 5) and time.time() < begin + 60:
        seen = collections.Counter(row['key'] for row in s.objects('scan'))
        bad += [key for key in keys if seen[key] != 1]
        scans += 1
    stop.set()
    for thread in threads:
        thread.join()
    check(f'{scans} scans during {rounds[0]} loads give each key that stays once', not bad and not failed and
          rounds[0] >= 5, f'{bad[:5]} {failed[:2]}')


def bad_usage(s):
    for args, text in [([], 'expected a command'), (['nope'], "'nope'"), (['get'], 'expected 1 arguments, found 0'),
                       (['put', 'k'], 'expected 2'), (['get', 'k' * 65], 'found 65 bytes'),
                       (['--none', 'get', 'k'], '--none'),
                       (['--hex', 'get', '0011'], 'found 4'), (['--hex', 'get', 'zz' * s.key_size], 'hex'),
                       (['cas', 'k', '-1', 'v'], "'-1'"), (['cas', 'k', '99999999999999999999', 'v'], 'version'),
                       (['load', '/nowhere/x'], '/nowhere/x'), (['dump', '/nowhere/x'], '/nowhere/x'),
                       (['--depth', '65', 'scan'], '1 to 64'),
                       (['--ttl-ms', '9999999999', 'put', 'k', 'v'], '--ttl-ms'),
                       (['get', 'k', '--json'], 'options before it')]:
        rc, out, err = s.text(*args)
        check(f'{" ".join(args)[:40]!r} is refused in a line', rc == 2 and text in err and err.count('\n') == 1 and
              not out, f'{rc}: {err}')
    for line, text in [('x', 'line 2'), ('[]', 'something else'), ('{}', '"key"'), ('{"key":"a"}', '"value"'),
                       ('{"key":1,"value":"v"}', '"key"'), ('{"key":"a","value_hex":"0"}', 'hex'),
                       ('{"key":"%s","value":"v"}' % ('k' * 65), 'found 65'), ('{"key":"a","value":"v"} {}', 'line 2'),
                       ('{' * 100000, 'line 2'), ('\0', 'line 2'),
                       *(('{"key":"a","value":"v","ttl_ms":%s}' % ttl, 'line 2: expected "ttl_ms"')
                         for ttl in ('-1', '"5"', '1.5', 'true', '1073741825'))]:
        r = s.run('load', '-', data=b'{"key":"good","value":"v"}\n' + line.encode() + b'\n')
        check(f'a file with {line[:30]!r} ends there', r.returncode == 1 and text in r.stderr.decode(), r.stderr)
    rc, _, err = s.text('--name', NAME + '.none', '--timeout-ms', '100', 'stats')
    check('no service: status 2', rc == 2 and 'cannot connect' in err and err.count('\n') == 1, err)
    full = subprocess.run([kvcli, '--name', s.name, 'scan'], stdout=open('/dev/full', 'w'), stderr=subprocess.PIPE)
    check('output that cannot be written: status 1', full.returncode == 1 and b'written' in full.stderr, full)


def random_input(s):
    """Whatever is given, it ends by itself, with one of its statuses."""
    rng = random.Random(SEED)
    words = ['put', 'get', 'cas', 'del', 'scan', 'stats', 'load', 'dump', '-', '--', '--hex', '--json', '--raw', '0',
             'k', '--limit', '--limit=3', '--depth', '--ttl-ms', '5', '00' * s.key_size, '\x1b[2J', 'é', '%s%n', '']
    wrong = []
    for _ in range(150):
        args = [rng.choice(words) for _ in range(rng.randrange(6))]
        data = bytes(rng.choice(b'{}[]":,\\ kevalux019\n\0\xff') for _ in range(rng.randrange(300)))
        r = s.run(*args, data=data)
        if r.returncode not in (0, 1, 2) or (r.returncode == 2 and not r.stderr):
            wrong.append((args, data, r))
    check('random arguments and files', not wrong, wrong[:1])


def interrupted(s):
    p = subprocess.Popen([kvcli, '--name', s.name, 'load', '-'], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b'{"key":"before","value":"it"}\n')
    p.stdin.flush()
    for _ in range(100):
        time.sleep(0.05)
        if s.text('get', 'before')[0] == 0:
            break
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=20)[1].decode()
    check('Ctrl-C ends a load with what it did', p.returncode == 1 and '1 keys' in err, f'{p.returncode}: {err}')


def stopped_service(s):
    """Stopped: every command ends by its deadline. Killed: at once."""
    os.killpg(s.processes[0].pid, signal.SIGSTOP)
    begin = time.time()
    rc, _, err = s.text('--timeout-ms', '500', 'get', 'k')
    check('a service that hangs', rc == 2 and time.time() - begin < 10, f'{rc}: {err}')
    os.killpg(s.processes[0].pid, signal.SIGCONT)
    p = subprocess.Popen([kvcli, '--name', s.name, '--timeout-ms', '1000', 'load', '-'], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    feed = threading.Thread(target=lambda: feed_for(p, 20))
    feed.start()
    time.sleep(0.5)
    s.kill()
    begin = time.time()
    err = p.stderr.read().decode()
    p.wait(timeout=30)
    check('a service that is killed ends a load', p.returncode == 1 and time.time() - begin < 10 and
          'has ended' in err and 'not all' in err, f'{p.returncode}: {err}')
    feed.join()
    check('  and there is none afterwards', s.text('--timeout-ms', '100', 'get', 'k')[0] == 2)


def feed_for(p, seconds):
    end = time.time() + seconds
    try:
        while time.time() < end:
            p.stdin.write(lines_of({f'f{n}': 'x' for n in range(100)}))
        p.stdin.close()
    except BrokenPipeError:
        pass


def rank_is_lost(s):
    everything = {row['key'] for row in s.objects('scan')}
    os.killpg(s.processes[1].pid, signal.SIGKILL)
    for _ in range(100):  # It is found lost after seconds.
        r = s.run('--json', '--name', s.name + '.0.0', 'scan')
        if r.returncode != 0:
            break
    rest = {json.loads(line)['key'] for line in r.stdout.splitlines()}
    check('without rank 1 a scan gives the keys of rank 0, and status 1', r.returncode == 1 and
          b'rank 1' in r.stderr and rest and rest < everything, f'{r.returncode}: {r.stderr} {len(rest)}')


def main():
    print(f'SEED={SEED}')
    with Service('one', '--value-size', '300', '--key-size', '16') as s:
        s.key_size = 16
        commands(s)
        bytes_are_exact(s, 300)
        bad_usage(s)
        random_input(s)
        keys = bulk(s, 10000)
        scans_during_changes(s, keys)
        interrupted(s)
        stopped_service(s)
    with Service('small', '--daemons', '2') as s:
        s.key_size = 8
        commands(s)
        check('8 bytes and no more', s.run('put', 'k', '123456789').returncode == 2)
        keys = {f'{n}': f'{n * n}' for n in range(10000)}
        check('load of 10000 small keys in two daemons', loaded(s, keys) is True)
        got = dumped(s)
        check('  and their dump', {k: got.get(k) for k in keys} == keys)
    with Service('large', '--daemons', '2', '--value-size', '65536', '--keys', '500') as s:
        s.key_size = 8
        commands(s)
        bytes_are_exact(s, 65536)
    if library:
        with Service('ranks', '--daemons', '2', '--value-size', '100', ranks=2) as s:
            commands(s)
            scans_during_changes(s, bulk(s, 1000))
            rank_is_lost(s)
    print(f'{failures} failures')
    return failures != 0


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as tmp:
        sys.exit(main())
