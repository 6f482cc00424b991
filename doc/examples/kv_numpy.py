#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""An array as the value of a key, which other clients change meanwhile: compare-and-swap, and a look without a copy.

    kvd --no-huge -- --name kv --keys 1000 --value-size 64 &
    python3 kv_numpy.py kv
"""
import errno
import sys

import numpy as np

import copyrpc

KEY = b'counters'


def add(kv: copyrpc.Kv, numbers: np.ndarray) -> None:
    """Add to the array of the key; try again if another client was faster."""
    while True:
        try:
            old, version = kv.get(KEY, np.int64)
        except FileNotFoundError:
            old, version = np.zeros(8, np.int64), 0  # 0: only if there is no such key
        try:
            kv.put(KEY, old + numbers, if_version=version)
            return
        except OSError as e:
            if e.errno not in (errno.ESTALE, errno.ENOENT):
                raise


with copyrpc.Kv(sys.argv[1], connect_ms=5000) as kv:
    for _ in range(100):
        add(kv, np.arange(8))
    with kv.view(KEY, np.int64) as (value, version):
        print(f'the largest of {value.np.size} counters is {value.np.max()}')
