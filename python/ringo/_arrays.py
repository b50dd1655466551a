"""NumPy arrays as operands."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from ._errors import InvalidError

Array = npt.NDArray[np.generic]


class Op(enum.IntEnum):
    """A reduction: ringo_op."""

    SUM = 0
    MEAN = 1  # floating point only
    MIN = 2  # NaN wins
    MAX = 3  # NaN wins
    PROD = 4


# ringo_type by NumPy's name. bfloat16 is that of the package ml_dtypes, which JAX has, too.
TYPES = {"float32": 0, "float64": 1, "int32": 2, "int64": 3, "uint8": 4, "float16": 5, "bfloat16": 6}


def type_of(x: Array, operation: str) -> int:
    """The number of an array's type."""
    number = TYPES.get(x.dtype.name)
    if number is None:
        raise InvalidError(f"{operation}: arrays of {x.dtype} are not supported: want one of {', '.join(TYPES)}", operation)
    return number


def operand(x: Array, operation: str, written: bool) -> Array:
    """x, if it can be one: contiguous, aligned, and writable if it is to be written."""
    if not isinstance(x, np.ndarray):
        raise InvalidError(f"{operation}: want a NumPy array, not {type(x).__name__}", operation)
    if not (x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative):
        raise InvalidError(f"{operation}: the array's values must lie one behind the other: numpy.ascontiguousarray makes such a copy", operation)
    if written and not x.flags.writeable:
        raise InvalidError(f"{operation}: the array is read-only", operation)
    return x


def reduction(op: Op | str, operation: str) -> int:
    """The number of a reduction: an Op, its number or its name. True and 1.0 equal a number, but are none."""
    try:
        if not isinstance(op, (str, int)) or isinstance(op, bool):
            raise ValueError
        return int(Op[op.upper()] if isinstance(op, str) else Op(op))
    except (KeyError, ValueError):
        names = ", ".join(o.name.lower() for o in Op)
        raise InvalidError(f"{operation}: {op!r} is not a reduction: want one of {names}", operation) from None


def same(operation: str, *arrays: Array) -> int:
    """The number of the type that all of them have."""
    if len({a.dtype for a in arrays}) > 1:
        raise InvalidError(f"{operation}: the arrays are of different types: {', '.join(str(a.dtype) for a in arrays)}", operation)
    return type_of(arrays[0], operation)


def times(operation: str, whole: Array, part: Array, size: int) -> None:
    """Reports a whole that has not size times as many values as a part."""
    if whole.size != part.size * size:
        raise InvalidError(f"{operation}: {whole.size} values, want {size} times {part.size}, one part for each rank", operation)
