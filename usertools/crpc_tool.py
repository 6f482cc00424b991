# SPDX-License-Identifier: BSD-3-Clause
"""What the tools in Python share: one line and status 2 for what is wrong, --version, results, gnuplot."""
import argparse
import contextlib
import json
import math
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

NAME = os.path.basename(sys.argv[0])
HERE = os.path.dirname(os.path.realpath(__file__))


def fail(text):
    print(f'{NAME}: {text}', file=sys.stderr)
    sys.exit(2)


def version():
    for folder in (os.path.dirname(HERE), HERE):
        path = os.path.join(folder, 'VERSION')
        if os.path.exists(path):
            with open(path) as f:
                return f.read().strip()
    return 'unknown'


def run(main):
    """Run main() and exit with its status; what goes wrong outside the program is one line."""
    if '--version' in sys.argv[1:]:
        print(NAME, version())
        sys.exit(0)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        fail('interrupted')
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as e:
        fail(f'{e.filename}: {e.strerror}' if e.filename else e)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as e:
        if os.environ.get('CRPC_TOOL_TRACE'):
            raise
        fail(f'a result is none of this version: {type(e).__name__} {e}')


# What says which case a row measured, in this order; the rest of a row is conditions and results.
CASE = ('app', 'layer', 'bench', 'pattern', 'method', 'mode', 'record', 'transport', 'backend', 'path',
        'place', 'ranks', 'hosts', 'nodes', 'daemons', 'rank', 'daemon', 'clients', 'active', 'endpoints',
        'size', 'burst', 'depth', 'slots', 'chunk', 'window', 'rails', 'segments', 'ops', 'fused', 'compute',
        'both_directions', 'engine', 'unpack', 'page_size', 'keys', 'key_size', 'value_size', 'scan',
        'read_ratio', 'rmw', 'dist', 'value_sizes', 'verify', 'flush', 'flow', 'arrival', 'fault', 'set')


def axes(row):
    """Where a row lies in its sweep: {name: value}."""
    return row.get('sweep', {}).get('at', {})


def case(row):
    """The case that a row measured: pairs of names and values; values of a sweep's axes are among them."""
    at = axes(row)
    return tuple((k, row[k]) for k in CASE if row.get(k) not in (None, 'result') and k not in at) + tuple(at.items())


def modes(parts):
    """Modes of a distribution, the lowest first: [(position, share)]; parts are (above, up to, count).

    Counts go into bins of an eighth of an octave, smoothed over five. Peaks are apart if the lowest bin between two is
    below half of the smaller one; less than 1 % of all is no mode.
    """
    bins = {}
    for low, high, n in parts:
        last = math.floor(8 * math.log2(max(high, 1e-3)))
        over = range(min(math.floor(8 * math.log2(low)) + 1 if low > 0 else last, last), last + 1)
        for i in over:
            bins[i] = bins.get(i, 0) + n / len(over)
    total = sum(bins.values())
    if not total:
        return []
    ends = min(bins) - 2, max(bins) + 3
    smooth = {i: sum(w * bins.get(i + d, 0) for d, w in enumerate((1, 2, 3, 2, 1), -2))
              for i in range(ends[0] - 1, ends[1] + 1)}
    peaks = [i for i in range(*ends) if smooth[i - 1] < smooth[i] >= smooth[i + 1]]
    while True:
        cuts = [min(range(a, b), key=smooth.get) for a, b in zip(peaks, peaks[1:])]
        depth = [smooth[c] / min(smooth[a], smooth[b]) for c, a, b in zip(cuts, peaks, peaks[1:])]
        if max(depth, default=0) < 0.5:
            break
        k = depth.index(max(depth))
        peaks.remove(min(peaks[k:k + 2], key=smooth.get))
    found = []
    for peak, begin, end in zip(peaks, [ends[0], *cuts], [*cuts, ends[1]]):
        near = {i: bins.get(i, 0) for i in range(peak - 2, peak + 3)}
        at = sum((i + 0.5) * n for i, n in near.items()) / sum(near.values())
        found.append((2 ** (at / 8), sum(bins.get(i, 0) for i in range(begin, end)) / total))
    return [(at, share) for at, share in found if share >= 0.01]


def modes_text(found):
    """Modes as words: 1.4 (93 %), 5.2 (6 %)."""
    return ', '.join(f'{at:.3g} ({100 * share:.0f} %)' for at, share in found)


SCHEMA = 1
KEYS = {'schema': int, 'app': str, 'version': str, 'commit': str, 'record': str, 'cpu': str, 'lcores': str,
        'state': str, 'steal_pct': float, 'away_pct': float, 'noisy': bool}


def wrong(row):
    """What of a row is not as doc/protocol/results.md says; None: nothing."""
    if row.get('schema') != SCHEMA:
        return f'schema: expected {SCHEMA}, found {row.get("schema")}'
    for key, kind in KEYS.items():
        if not isinstance(row.get(key), kind):
            return f'{key}: found {row.get(key)!r}'
    if row['state'] not in ('near', 'far', 'mixed'):
        return f'state: expected near, far or mixed, found {row["state"]}'
    for key, value in row.items():
        name = re.fullmatch('(rate|latency|bandwidth|time|ratio)(_.*)?', key)
        if isinstance(value, dict) and 'median' in value:
            if not name or set(value) != {'median', 'min', 'max', 'unit', 'n'} or value['n'] < 1 or \
                    not value['min'] <= value['median'] <= value['max']:
                return f'{key}: {value} is no figure'
        elif name and (name[1] != 'ratio' or not isinstance(value, (float, type(None)))):
            return f'{key}: expected a figure or a ratio, found {value!r}'
    return None


def parser(doc):
    """Options of a tool whose usage is its own text; what is wrong is one line and status 2."""
    class Parser(argparse.ArgumentParser):
        def format_help(self):
            return doc.strip() + '\n'

        def error(self, message):
            fail(message + '; --help lists the options')
    return Parser(prog=NAME, allow_abbrev=False)


def number(kind, low, high):
    """The type of an option: a number within limits."""
    def convert(text):
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f'{text} is out of range; give {low} to {high}')
        return value
    convert.__name__ = 'number'
    return convert


class Say:
    """Checks of a host, a line each; counts those that failed."""

    def __init__(self, as_json=False):
        self.json, self.failures = as_json, 0

    def __call__(self, good, check, found, todo='', bad='warn'):
        state, todo = ('ok', '') if good else (bad, todo)
        self.failures += state == 'fail'
        print(json.dumps({'check': check, 'state': state, 'found': found, 'todo': todo}) if self.json else
              f'{state:5} {check:12} {found}' + (f'; {todo}' if todo else ''), flush=True)
        return good


def free_mib(path):
    at = os.statvfs(path)
    return at.f_bavail * at.f_frsize >> 20


# Open MPI refuses root without them.
MPI_ENV = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}


def program(name, build):
    """Where a program of this project is: in the build folder, or beside the tool that asks; None: nowhere."""
    beside = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), '')
    places = (os.path.join(build, 'apps', name, name), beside + name, beside + 'crpc-' + name)
    return next((p for p in places if os.path.isfile(p)), None)


def soft_mlx5_answer(name, question, wait):
    """The text that one process answers; '' if it is gone. OSError if it is silent, SystemExit if it refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(wait)
        with contextlib.suppress(ConnectionRefusedError):
            sock.connect('\0' + name)
            owner = struct.unpack('3i', sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if owner == os.geteuid():
                sock.sendall(question.encode() + b'\n')
                with sock.makefile() as answer:
                    status, _, text = answer.read().partition('\n')
                if status not in ('ok', ''):
                    raise SystemExit(f'soft-mlx5: {name}: {status}')
                return text
    return ''


def soft_mlx5_ask(question, wait):
    """Ask all programs on the software ConnectX: the answers, and how many did not answer in time."""
    answers, silent = [], 0
    with open('/proc/net/unix') as f:
        names = set(re.findall(rf'@(soft_mlx5\.{os.geteuid()}\.ctl\.[\d.]+)$', f.read(), re.M))
    end = time.monotonic() + wait
    for name in sorted(names):
        try:
            answers += filter(None, [soft_mlx5_answer(name, question, max(0.001, end - time.monotonic()))])
        except OSError:
            silent += 1
    return answers, silent


def load(path, app=None):
    """The results of a program, or of all, in a file of JSON lines."""
    rows = []
    with open(path, errors='replace') as f:
        for number, line in enumerate(f, 1):
            try:
                row = json.loads(line)
            except ValueError:
                fail(f'{path}:{number}: not JSON')
            if isinstance(row, dict) and row.get('app') and app in (None, row['app']):
                if wrong(row):
                    fail(f'{path}:{number}: no result of this version: {wrong(row)}')
                rows.append(row)
    if not rows:
        fail(f'{path}: no results of {app or "a benchmark"}')
    return rows


def gnuplot(script, path, width=900):
    """Draw one picture, by the lines of a script without terminal and output."""
    head = [f'set terminal svg size {width},540 background "white" noenhanced', f'set output "{path}"',
            'set grid ytics']
    done = subprocess.run(['gnuplot'], input='\n'.join(head + script) + '\n', text=True, stderr=subprocess.PIPE)
    if done.returncode != 0:
        fail(f'{path}: gnuplot ended with {done.returncode}: ' + ' '.join(done.stderr.strip().splitlines()[-1:]))
    print(path)


def need_gnuplot():
    if shutil.which('gnuplot') is None:
        fail('gnuplot is not installed (apt-get install gnuplot-nox)')
