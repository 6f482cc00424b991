# SPDX-License-Identifier: BSD-3-Clause
"""The shared libraries, their errors, and the guard of memory that is borrowed from them."""
import copy
import ctypes
import math
import os
import threading
import weakref
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

u8, u16, u32, u64, i32 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32
ptr, text, ref = ctypes.c_void_p, ctypes.c_char_p, ctypes.byref


class Struct(ctypes.Structure):
    """A struct of C, whose numbers fit: ctypes cuts others."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        for (name, *_), value in zip(self._fields_, values):
            held = getattr(self, name)
            if isinstance(held, int) and held != value:
                raise OverflowError(f'{name}: {value} is out of range')


class Number:
    """An argument: a number that does not fit is taken for the nearest one, which the function refuses or accepts."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def from_param(self, value: int) -> Any:
        least = -2 ** 31 if self.kind is i32 else 0
        return self.kind(min(max(value, least), 2 ** (8 * ctypes.sizeof(self.kind)) - 1 + least))


def struct(name: str, /, **fields: Any) -> Any:
    """A struct of C: names and types of its members, in order."""
    return type(name, (Struct,), {'_fields_': list(fields.items())})


def load(name: str, functions: dict[str, tuple[Any, ...]]) -> ctypes.CDLL:
    """A library, and functions of it or of libraries below it: the type of each, and those of its arguments."""
    try:
        lib = ctypes.CDLL(f'libcrpc_{name}.so.0', use_errno=True)
    except OSError as e:
        raise ImportError(f'{e}; install the libraries of copyrpc, or set LD_LIBRARY_PATH to their folder') from e
    for function, types in functions.items():
        f = getattr(lib, f'crpc_{function}')
        f.restype, f.argtypes = types[0], [Number(t) if t in (u8, u16, u32, u64, i32) else t for t in types[1:]]
    return lib


def ok(rc: int, what: str, lib: Optional[ctypes.CDLL] = None) -> int:
    """What a function returned, or the OSError of a negative errno, with the text of the library that found it."""
    if rc >= 0:
        return rc
    cause = lib.crpc_log_last().decode(errors='replace') if lib else ''
    raise OSError(-rc, f'{what}: {cause or os.strerror(-rc)}')


class Lease:
    """A piece of an owner's memory, until end(). Its arrays keep it, and the owner with its mapping."""

    def __init__(self, owner: 'Handle', address: Optional[int], size: int, readonly: bool = False) -> None:
        self.owner, self.address, self.size, self.readonly, self.valid = owner, address or 0, size, readonly, True
        self.arrays: 'weakref.WeakSet[View]' = weakref.WeakSet()
        owner.leases.add(self)

    def check(self) -> None:
        """ValueError: the memory has been given back."""
        if not self.valid:
            raise ValueError('the memory of this array has been given back')

    def idle(self) -> None:
        """BufferError: an array exists."""
        if len(self.arrays) > 0:
            raise BufferError('an array on this memory still exists: delete it, and slices of it, first')

    def end(self) -> None:
        """Give it back. BufferError, and nothing changes, while an array exists."""
        self.idle()
        self.valid = False


class View:
    """An array in borrowed memory, which `np` shows as long as the memory is this process's."""

    def __init__(self, lease: Lease, dtype: 'np.dtype[Any]', shape: tuple[int, ...], offset: int = 0) -> None:
        self.lease, self.dtype, self.shape, self.offset = lease, dtype, shape, offset

    @property
    def np(self) -> NDArray[Any]:
        """The array. ValueError: the memory has been given back, or has no room for it."""
        lease, end = self.lease, self.offset + math.prod(self.shape) * self.dtype.itemsize
        lease.check()
        if self.dtype.hasobject or min((0, *self.shape)) < 0 or end > lease.size:
            raise ValueError(f'an array {self.shape} of {self.dtype} up to byte {end}: there are {lease.size} bytes')
        base = copy.copy(self)  # what the array refers to, as long as it or a slice of it exists
        setattr(base, '__array_interface__', {'version': 3, 'data': (lease.address + self.offset, lease.readonly),
                                              'typestr': self.dtype.str, 'shape': self.shape})
        lease.arrays.add(base)
        return np.asarray(base).view(self.dtype)  # the interface knows no fields


class Scope(AbstractContextManager):  # type: ignore[type-arg]
    """What ends by close(), or with a `with`."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.close()  # type: ignore[attr-defined]
        except BufferError:
            if error is None:  # else the traceback may hold the array, and `error` is what matters
                raise


class Handle(Scope):
    """An object of a library, of one thread."""

    def __init__(self) -> None:
        self._who, self._open, self._cookie = (os.getpid(), threading.get_ident()), True, 0
        self.leases: 'weakref.WeakSet[Lease]' = weakref.WeakSet()
        self._parts = ExitStack()  # what frees it

    def _made(self, lib: ctypes.CDLL, what: str, value: Any, undo: Any) -> Any:
        """What a function returned, and what undoes it. NULL is an error, and undoes all."""
        if not value:
            self._open = False
            with self._parts:
                ok(-ctypes.get_errno(), what, lib)
        self._parts.callback(undo, value)
        return value

    def check(self) -> None:
        if not self._open:
            raise ValueError(f'this {type(self).__name__} is closed')
        if self._who != (os.getpid(), threading.get_ident()):
            raise RuntimeError(f'this {type(self).__name__} belongs to another thread or process: make one for each')

    def close(self) -> None:
        """End it. BufferError, and it stays open, while an array on its memory exists."""
        if self._open:
            self.check()
            self.end_leases()
            self.__del__()

    def end_leases(self) -> None:
        """BufferError, and none ends, while an array on one of them exists."""
        for lease in self.leases:
            lease.idle()
        for lease in self.leases:
            lease.end()

    def __del__(self) -> None:
        # No array exists: it would hold a reference. A forked child leaves its parent's objects alone.
        if getattr(self, '_open', False) and self._who[0] == os.getpid():
            self._open = False
            self._parts.close()
