# SPDX-License-Identifier: BSD-3-Clause
"""What the tools in Python share: one line and status 2 for what is wrong, --version, results, gnuplot."""
import argparse
import json
import os
import shutil
import subprocess
import sys

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
CASE = ('app', 'layer', 'bench', 'pattern', 'method', 'mode', 'scope', 'transport', 'backend', 'path', 'stage',
        'place', 'ranks', 'hosts', 'nodes', 'daemons', 'rank', 'daemon', 'clients', 'qd', 'active', 'endpoints',
        'size', 'msg_size', 'burst', 'depth', 'inflight', 'chunk', 'window', 'rails', 'segments', 'ops', 'fused',
        'both_directions', 'engine', 'page_size', 'keys', 'key_size', 'value_size', 'scan', 'read_ratio', 'rmw',
        'dist', 'key_sizes', 'value_sizes', 'verify', 'flush', 'flow', 'arrival')


def case(row):
    """The case that a row measured: pairs of names and values; values of a sweep's axes are among them."""
    at = row.get('sweep', {}).get('at', {})
    return tuple((k, row[k]) for k in CASE if row.get(k) is not None and k not in at) + tuple(at.items())


def parser(doc):
    """Options of a tool whose usage is its own text; what is wrong is one line and status 2."""
    class Parser(argparse.ArgumentParser):
        def format_help(self):
            return doc.strip() + '\n'

        def error(self, message):
            fail(message + '; --help lists the options')
    return Parser(prog=NAME)


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
