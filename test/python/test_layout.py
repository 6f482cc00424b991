#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves that the package declares the structs and constants of the libraries as the compiler has them.

Argument: the program of layout.c.
"""
import subprocess
import sys

from copyrpc import clients
from test_lib import check, finish

*structs, constants = subprocess.check_output(sys.argv[1], text=True).split('\n')[1:-1]
ours = {s.__name__: s for s in vars(clients).values() if hasattr(s, '_fields_')}
for line in structs:
    name, size, *members = line.split()
    fields = [(f, str(getattr(ours[name], f).offset)) for f, _ in ours[name]._fields_]
    check(name, fields == list(zip(members[::2], members[1::2])), f'{fields}, in C {line}')
    # Of kv_info the begin is declared, which the library fills.
    size_ok = (clients.ctypes.sizeof(ours[name]) == int(size) or name == 'kv_info')
    check(f'size of {name}', size_ok, line)
check('all structs', sorted(ours) == sorted(line.split()[0] for line in structs), sorted(ours))
check('constants', constants == f'{clients.MAX} 160 4 {max(clients.DTYPES.values())}', constants)
finish()
