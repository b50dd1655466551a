"""Tables of rows on servers, which `ringo run --servers N` starts beside the ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._arrays import operand
from ._errors import ClosedError, InvalidError
from ._library import check, library
from ._work import Unfinished, Work

if TYPE_CHECKING:
    from ._job import Job

Keys = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Table:
    """A table: its name, weights of a row, the rule that moves rows ("sgd", "adagrad", "adam" and others of `ringo train`) with its learning
    rate and settings, and how rows begin: "zeros", "constant" or "uniform" with its value.
    """

    name: str
    dim: int
    rule: str = "adagrad"
    lr: float = 0.05
    init: str = "uniform"
    value: float = 0.01
    seed: int = 0
    settings: Mapping[str, float] = field(default_factory=dict)

    def schema(self) -> dict[str, Any]:
        """As the servers want it."""
        rule = {"name": self.rule, "lr": self.lr, "settings": dict(self.settings)}
        init = {"name": self.init, "value": self.value if self.init != "zeros" else 0}
        return {"name": self.name, "dim": self.dim, "rule": rule, "init": init, "seed": self.seed}


class Tables:
    """This rank's connection to the job's servers of tables: Job.tables. All ranks open the same ones, once.

    A step is: pull rows, compute, push gradients, clock. Steps are counted from 1. In mode bsp a pull waits until all ranks have ended the step
    before, and a row moves by the mean of the ranks' gradients; in async and ssp by the whole of each.
    """

    def __init__(self, job: Job, tables: Sequence[Table], settings: Mapping[str, str] | None = None) -> None:
        self.job = job
        self.tables = tuple(tables)
        self.numbers = {t.name: i for i, t in enumerate(tables)}
        text = json.dumps({"sparse": [t.schema() for t in tables], **({"settings": dict(settings)} if settings else {})})
        handle = c_void_p()
        check(library().ringo_tables_open(job._open("tables_open"), text.encode(), byref(handle)), "tables_open")
        self._handle: c_void_p | None = handle
        self._unfinished = Unfinished()

    def _open(self, operation: str) -> c_void_p:
        if self._handle is None or self.job.left:
            raise ClosedError(f"{operation}: the tables were closed", operation)
        return self._handle

    def _number(self, table: str, operation: str) -> int:
        if table not in self.numbers:
            raise InvalidError(f"{operation}: there is no table {table!r}: there are {', '.join(self.numbers)}", operation)
        return self.numbers[table]

    def _batch(self, operation: str, table: str, keys: Keys, values: Floats, written: bool) -> int:
        """The table's number, if keys and values are a batch of it."""
        number = self._number(table, operation)
        operand(keys, operation, False), operand(values, operation, written)
        if keys.dtype.itemsize != 8 or keys.dtype.kind not in "iu" or values.dtype != np.float32:
            raise InvalidError(f"{operation}: keys of {keys.dtype} and values of {values.dtype}, want uint64 and float32", operation)
        return number

    def start_pull(self, table: str, step: int, keys: Keys, rows: Floats, peek: bool = False) -> Work:
        """pull that goes on beside what follows; keys may be written again at once."""
        number = self._batch("pull", table, keys, rows, True)
        if rows.size != keys.size * self.tables[number].dim:
            raise InvalidError(f"pull: room for {rows.size} values, {keys.size} rows of {table} have {keys.size * self.tables[number].dim}", "pull")
        work, start = c_void_p(), library().ringo_start_peek if peek else library().ringo_start_pull
        check(start(self._open("pull"), number, step, keys.ctypes.data, keys.size, rows.ctypes.data, byref(work)), "pull")
        started = Work("pull", work, rows)
        self._unfinished.add(started)
        return started

    def pull(self, table: str, step: int, keys: Keys, peek: bool = False) -> Floats:
        """The rows of keys as they are to be for a step. peek leaves the table as it is: keys without a row get its first weights."""
        rows = np.empty((keys.size, self.tables[self._number(table, "pull")].dim), np.float32)
        self.start_pull(table, step, keys, rows, peek).wait()
        return rows

    def push(self, table: str, step: int, keys: Keys, gradients: Floats) -> None:
        """Sends gradients of keys' rows, which belong to a step. Both may be written again when it returns."""
        number = self._batch("push", table, keys, gradients, False)
        if gradients.size != keys.size * self.tables[number].dim:
            text = f"push: {gradients.size} gradients, {keys.size} rows of {table} have {keys.size * self.tables[number].dim}"
            raise InvalidError(text, "push")
        code = library().ringo_push(self._open("push"), number, step, keys.ctypes.data, keys.size, gradients.ctypes.data)
        check(code, "push")

    def clock(self, step: int, rate: float | None = None) -> None:
        """Says that this rank has pushed all that it will of a step, and what the learning rate is from the next one on, if it changes."""
        check(library().ringo_clock(self._open("clock"), step, -1.0 if rate is None else rate), "clock")

    def flush(self) -> None:
        """Waits until the servers have acknowledged everything that was pushed."""
        check(library().ringo_flush(self._open("flush")), "flush")

    def save(self, step: int, oldest: int | None = None) -> list[int]:
        """Has all servers write a checkpoint after a step, and returns its number at each. All ranks call it, and push nothing meanwhile. oldest
        is the lowest step whose checkpoints are still of use: this one, unless it is said.
        """
        numbers = (c_uint64 * self.job.servers)()
        handle = self._open("save")
        check(library().ringo_save(handle, step, step if oldest is None else oldest, numbers, len(numbers)), "save")
        return list(numbers)

    def close(self) -> None:
        """Leaves the servers in good order; so does Job.leave."""
        handle, self._handle = self._handle, None
        if handle is not None and not self.job.left:
            check(library().ringo_tables_close(handle), "tables_close")
