"""Finds libringo and declares the functions of ringo.h that this package calls."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import lru_cache
from pathlib import Path

from ._errors import KINDS, RingoError

ABI = 1
OK, PENDING = 0, 1


class Options(ctypes.Structure):
    """ringo_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("size", c_int),
        ("rank", c_int),
        ("rendezvous", c_char_p),
        ("ticket", c_char_p),
        ("ticket_file", c_char_p),
        ("transport", c_char_p),
        ("bind", c_char_p),
        ("timeout_ms", c_int64),
        ("join_timeout_ms", c_int64),
        ("algorithm", c_char_p),
    ]


class Tuning(ctypes.Structure):
    """ringo_tuning."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("plan", c_char_p),
        ("choices", c_char_p),
        ("steps", c_int64),
        ("profile", c_char_p),
    ]


class MicroBatch(ctypes.Structure):
    """ringo_micro_batch."""

    _fields_ = [
        ("n", c_size_t),
        ("eval", c_int),
        ("seed", c_float),
        ("inputs", POINTER(c_void_p)),
        ("labels", c_void_p),
        ("targets", c_void_p),
        ("out", c_void_p),
        ("gradients", POINTER(c_void_p)),
        ("loss", c_float),
        ("terms", c_size_t),
        ("correct", c_size_t),
    ]


class PartMemory(ctypes.Structure):
    """ringo_part_memory."""

    _fields_ = [
        ("gradients", c_void_p),
        ("values", c_void_p),
        ("n", c_size_t),
        ("state", c_void_p),
        ("n_state", c_size_t),
        ("start", c_int),
    ]


class Part(ctypes.Structure):
    """ringo_part."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("context", c_void_p),
        ("open", ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(PartMemory), c_void_p, c_size_t)),
        ("run", ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(MicroBatch), c_void_p, c_size_t)),
        ("update", ctypes.CFUNCTYPE(c_int, c_void_p, c_double, c_float, c_void_p, c_size_t)),
        ("sync", ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_size_t)),
        ("close", ctypes.CFUNCTYPE(None, c_void_p)),
        ("report", ctypes.CFUNCTYPE(None, c_void_p, c_char_p)),
    ]


_COUNTS = POINTER(c_size_t)

# Parameters of operations between the group and, if they are started, the work.
OPERATIONS: dict[str, list[type]] = {
    "allreduce": [c_void_p, c_size_t, c_int, c_int],
    "reduce": [c_void_p, c_size_t, c_int, c_int, c_int],
    "broadcast": [c_void_p, c_size_t, c_int, c_int],
    "reduce_scatter": [c_void_p, c_void_p, c_size_t, c_int, c_int],
    "allgather": [c_void_p, c_void_p, c_size_t, c_int],
    "allgather_to": [POINTER(c_void_p), c_void_p, c_size_t, c_int],
    "allgatherv": [c_void_p, c_void_p, _COUNTS, c_int],
    "gather": [c_void_p, c_void_p, c_size_t, c_int, c_int],
    "scatter": [c_void_p, c_void_p, c_size_t, c_int, c_int],
    "alltoall": [c_void_p, c_void_p, c_size_t, c_int],
    "alltoallv": [c_void_p, _COUNTS, c_void_p, _COUNTS, c_int],
    "barrier": [],
    "send": [c_void_p, c_size_t, c_int, c_int],
    "receive": [c_void_p, c_size_t, c_int, c_int],
    "listen": [c_void_p, c_size_t, c_int, c_int],
}

_PULL: list[type] = [c_void_p, c_size_t, c_uint64, c_void_p, c_size_t, c_void_p, POINTER(c_void_p)]

_OTHERS: dict[str, tuple[list[type], type]] = {
    "abi": ([], c_int),
    "version": ([], c_char_p),
    "last_error": ([], c_char_p),
    "last_error_rank": ([], c_int),
    "join": ([POINTER(Options), POINTER(c_void_p)], c_int),
    "leave": ([c_void_p], c_int),
    "fail": ([c_void_p, c_char_p, POINTER(c_int)], c_int),
    "rank": ([c_void_p], c_int),
    "size": ([c_void_p], c_int),
    "local_rank": ([c_void_p], c_int),
    "transport": ([c_void_p], c_char_p),
    "ticket": ([c_char_p], c_int),
    "address": ([c_char_p, c_char_p, c_size_t], c_int),
    "world": ([c_void_p], c_void_p),
    "subgroup": ([c_void_p, POINTER(c_int), c_size_t, POINTER(c_void_p)], c_int),
    "group_close": ([c_void_p], c_int),
    "group_rank": ([c_void_p], c_int),
    "group_size": ([c_void_p], c_int),
    "group_algorithm": ([c_void_p], c_char_p),
    "alloc": ([c_void_p, c_size_t, POINTER(c_void_p)], c_int),
    "free": ([c_void_p, c_void_p], c_int),
    "strategy_open": ([c_void_p, c_char_p, c_double, POINTER(c_char_p), _COUNTS, c_size_t, POINTER(c_void_p)], c_int),
    "strategy_arrange": ([c_void_p, _COUNTS, c_size_t, _COUNTS, c_size_t], c_int),
    "strategy_tune": ([c_void_p, POINTER(Tuning), _COUNTS, c_size_t, _COUNTS, c_size_t], c_int),
    "strategy_ready": ([c_void_p, c_size_t], c_int),
    "strategy_step": ([c_void_p], c_int),
    "strategy_buckets": ([c_void_p, _COUNTS, c_size_t], c_int),
    "strategy_report": ([c_void_p, c_char_p, c_size_t], c_int),
    "strategy_close": ([c_void_p], c_int),
    "start_exchange": ([c_void_p, c_size_t, c_void_p, c_size_t, POINTER(c_void_p)], c_int),
    "residual": ([c_void_p, c_size_t, c_void_p, c_size_t], c_int),
    "set_residual": ([c_void_p, c_size_t, c_void_p, c_size_t], c_int),
    "servers": ([c_void_p], c_int),
    "tables_open": ([c_void_p, c_char_p, POINTER(c_void_p)], c_int),
    "tables_close": ([c_void_p], c_int),
    "start_pull": (_PULL, c_int),
    "start_peek": (_PULL, c_int),
    "push": ([c_void_p, c_size_t, c_uint64, c_void_p, c_size_t, c_void_p], c_int),
    "clock": ([c_void_p, c_uint64, c_double], c_int),
    "flush": ([c_void_p], c_int),
    "save": ([c_void_p, c_uint64, c_uint64, POINTER(c_uint64), c_size_t], c_int),
    "wait": ([c_void_p, c_int64], c_int),
    "serve_part": ([POINTER(Options), c_char_p, POINTER(Part)], c_int),
}


def _candidates() -> list[str]:
    """Where the library may lie: what RINGO_LIBRARY says, else within this package, else where the loader looks."""
    said = os.environ.get("RINGO_LIBRARY")
    if said:
        return [said]
    name = f"libringo.so.{ABI}"
    return [str(Path(__file__).with_name("lib") / name), name]


@lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """libringo, loaded when it is first needed."""
    faults = []
    for path in _candidates():
        try:
            loaded = ctypes.CDLL(path)
        except OSError as fault:
            faults.append(str(fault))
            continue
        _declare(loaded)
        if loaded.ringo_abi() != ABI:
            raise ImportError(f"{path} has version {loaded.ringo_abi()} of the interface, this package needs {ABI}")
        return loaded
    raise ImportError(
        "libringo was not found: build it with capi/build.sh and say where it is in RINGO_LIBRARY, or install a wheel that has it ("
        + "; ".join(faults)
        + ")"
    )


def _declare(loaded: ctypes.CDLL) -> None:
    for name, (parameters, result) in _OTHERS.items():
        function = getattr(loaded, "ringo_" + name)
        function.argtypes, function.restype = parameters, result
    for name, parameters in OPERATIONS.items():
        function = getattr(loaded, "ringo_start_" + name)
        function.argtypes, function.restype = [c_void_p, *parameters, POINTER(c_void_p)], c_int


def check(code: int, operation: str) -> int:
    """code, if it is no fault. It is to be called by the thread that has made the call, next."""
    if code >= 0:
        return code
    lib = library()
    text = lib.ringo_last_error().decode("utf-8", "replace")
    rank = lib.ringo_last_error_rank()
    if operation not in text:
        text = f"{operation}: {text}"
    raise KINDS.get(code, RingoError)(text, operation, rank if rank >= 0 else None)


def version() -> str:
    """The release of the library, such as "0.1.0". All ranks of a job need the same."""
    return str(library().ringo_version().decode())
