"""Tensors as operands of libringo: addresses, types, reductions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._arrays import Op

# ringo_type. Other types are moved as bytes, and reduced as WIDER says.
TYPES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.int32: 2,
    torch.int64: 3,
    torch.uint8: 4,
    torch.float16: 5,
    torch.bfloat16: 6,
}
BYTES = TYPES[torch.uint8]
WIDER = {torch.int8: torch.int32, torch.int16: torch.int32, torch.bool: torch.uint8}

_OPS = {"SUM": Op.SUM, "AVG": Op.MEAN, "PRODUCT": Op.PROD, "MIN": Op.MIN, "MAX": Op.MAX}
_OF_BOOLS = {"SUM": Op.MAX, "PRODUCT": Op.MIN, "BAND": Op.MIN, "BOR": Op.MAX, "MIN": Op.MIN, "MAX": Op.MAX}
BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}


def dense(t: Tensor) -> Tensor:
    """t where its values lie one behind the other, or such a copy."""
    if t.layout != torch.strided:
        raise ValueError(f"backend ringo sends dense tensors here: this one's layout is {t.layout}")
    return t.detach().contiguous()


def room(t: Tensor) -> Tensor:
    """t, if its values lie one behind the other, else room for them, which restore copies to t."""
    return dense(t) if t.is_contiguous() else torch.empty(t.shape, dtype=t.dtype, device=t.device)


def restore(t: Tensor, operand: Tensor) -> None:
    """Writes an operand of t back to it, if that is a copy."""
    if operand.data_ptr() != t.data_ptr() or operand.dtype != t.dtype or not t.is_contiguous():
        with torch.no_grad():
            t.detach().copy_(operand.view_as(t) if operand.dtype == t.dtype else operand)


def restore_each(tensors: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
    """restore of each of them."""
    for t, operand in zip(tensors, operands):
        restore(t, operand)


def values(t: Tensor) -> tuple[int, int]:
    """How many values a dense tensor has, and their type, for operations that only move them."""
    number = TYPES.get(t.dtype)
    if number is None:
        return t.numel() * t.element_size(), BYTES
    return t.numel(), number


def addresses(tensors: Sequence[Tensor]) -> Any:
    """Where tensors lie, as libringo takes it."""
    return (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])


def name_of(op: object) -> str:
    """The name of a ReduceOp, "SUM" and so on."""
    return str(getattr(op, "op", op)).rpartition(".")[2]


def reduced(t: Tensor, op: object) -> tuple[Tensor, int, int]:
    """The operand by which t is reduced, the number of its type, and that of the reduction."""
    name, operand = name_of(op), dense(t)
    ops = _OF_BOOLS if t.dtype == torch.bool else _OPS
    if name not in ops:
        raise ValueError(f"backend ringo does not reduce {t.dtype} by {name}: want one of {', '.join(ops)}")
    if t.is_complex():
        if name not in ("SUM", "AVG"):
            raise ValueError(f"backend ringo does not reduce complex values by {name}: all_reduce does not support that")
        operand = torch.view_as_real(operand)
    elif t.dtype in WIDER:
        operand = operand.to(WIDER[t.dtype])
    if operand.dtype not in TYPES:
        raise ValueError(f"backend ringo does not reduce {t.dtype}")
    return operand, TYPES[operand.dtype], int(ops[name])


def together(tensors: Sequence[Tensor]) -> Tensor | None:
    """One tensor of all these, if they lie one behind the other."""
    first = tensors[0]
    at, size = first.data_ptr(), first.element_size()
    for t in tensors:
        if not t.is_contiguous() or t.dtype != first.dtype or t.data_ptr() != at:
            return None
        at += t.numel() * size
    memory = _memory(first)
    if at > memory.data_ptr() + memory.nbytes():
        return None
    whole = (at - first.data_ptr()) // max(size, 1)
    return first.detach().as_strided((whole,), (1,), first.storage_offset())


def joined(tensors: Sequence[Tensor], filled: bool) -> Tensor:
    """The tensors one behind the other: where they lie, if they lie so, else in new memory, with their values if filled."""
    whole = together(tensors)
    if whole is not None:
        return whole
    if filled:
        return torch.cat([dense(t).reshape(-1) for t in tensors])
    return torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype, device=tensors[0].device)


def _memory(t: Tensor) -> Any:
    """The storage of t: PyTorch 2 warns of the older name."""
    return t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()


def spread(whole: Tensor, tensors: Sequence[Tensor]) -> None:
    """Writes the parts of a joined tensor back, where it is a copy."""
    at = 0
    with torch.no_grad():
        for t in tensors:
            part = whole[at : at + t.numel()]
            if part.data_ptr() != t.data_ptr():
                t.detach().copy_(part.view(t.shape))
            at += t.numel()
