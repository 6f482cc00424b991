#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Modes that the tools find in distributions of which they are known, whole and as percentiles.
Argument: source root."""
import importlib.machinery
import importlib.util
import os
import random
import sys

sys.dont_write_bytecode = True
TOOLS = os.path.join(sys.argv[1], 'usertools')
sys.path.insert(0, TOOLS)
import crpc_tool  # noqa: E402

loader = importlib.machinery.SourceFileLoader('crpc_plot', os.path.join(TOOLS, 'crpc-plot'))
plot = importlib.util.module_from_spec(importlib.util.spec_from_loader('crpc_plot', loader))
loader.exec_module(plot)

bad = 0


def check(what, found, expected, points=0.03):
    """Positions within 10 %, shares within 3 points; a file has one line for 10 % where its lines are widest."""
    global bad
    good = len(found) == len(expected) and all(abs(at / us - 1) < 0.1 and abs(share - part) < points
                                               for (at, share), (us, part) in zip(found, expected))
    bad += not good
    print('ok  ' if good else 'FAIL', what, crpc_tool.modes_text(found))


def samples(modes, n=20000, spread=0.1, tail=0):
    """Log-normal samples around each mode, us; a part of all are anywhere above."""
    dice = random.Random(1)
    values = [us * dice.lognormvariate(0, spread) for us, share in modes for _ in range(int(n * share))]
    return sorted(values + [dice.uniform(30, 3000) for _ in range(int(n * tail))])


def histogram(values):
    """Buckets of a 64th of their power of two, as benchkv's rows have them."""
    count = {}
    for v in values:
        ns = int(1000 * v)
        bits = max(ns.bit_length() - 7, 0)
        most = ((ns >> bits) + 1 << bits) - 1
        count[most] = count.get(most, 0) + 1
    return [(0, ns / 1000, n) for ns, n in sorted(count.items())]


def hgrm(values):
    """Lines of a file: five to each half of what is left."""
    q, left, lines = 0.0, 1.0, []
    while int(q * len(values)) < len(values) - 1:
        for _ in range(5):
            at = min(int(q * len(values)), len(values) - 1)
            lines.append((1 / (1 - q), values[at], at + 1))
            q += left / 10
        left /= 2
    return plot.parts([*lines, (len(values), values[-1], len(values))])


CASES = {'one': [(1.4, 1.0)], 'two': [(5.5, 0.6), (13, 0.4)], 'two, one small': [(1.4, 0.95), (6, 0.05)],
         'three': [(0.2, 0.5), (2, 0.3), (40, 0.2)]}
for name, modes in CASES.items():
    check(name, crpc_tool.modes(histogram(samples(modes))), modes)
    if 'small' not in name:
        check(f'{name}, of a file', crpc_tool.modes(hgrm(samples(modes))), modes, 0.1)
check('a long tail is no mode', crpc_tool.modes(histogram(samples([(1.4, 0.995)], tail=0.005))), [(1.4, 1)])
check('two that overlap are one', crpc_tool.modes(histogram(samples([(5, 0.5), (6, 0.5)], spread=0.15))), [(5.5, 1)])
check('few samples', crpc_tool.modes(histogram(samples([(5, 0.5), (15, 0.5)], n=200))), [(5, 0.5), (15, 0.5)])
check('one value', crpc_tool.modes([(0, 2.0, 7)]), [(2, 1)])
check('nothing', crpc_tool.modes([]), [])
print(f'{bad} failures')
sys.exit(bad != 0)
