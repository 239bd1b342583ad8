"""Tables of tensor addresses and integers in device memory, from which a kernel selects the members of its families.

A table is built for the addresses and integers it holds and never changes afterwards; it is built anew only when one of them
is another. The tables of one stream are used on that stream alone: allocated outside any graph's memory pool, filled by a copy
on it, and their memory is used again for a later table on the same stream. So every use is in order with the copies before and
after it.

A graph that is captured keeps the address of its table. Tables made during a capture are therefore filled at once, on a stream
of their own that is waited for, and kept as long as the `AddressTable` is.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch
from triton.runtime.driver import driver

from ..errors import HelionError
from .device_memory import allocate_apart

KEPT = 8
"""Tables kept for each stream: memory often comes back at the addresses of the last step, or of the one before it."""

_address = torch.Tensor.data_ptr
_Key = tuple[tuple[int, ...], tuple[int, ...]]
_Result = tuple[Any, ...]  # the table, then for each family whether its addresses are multiples of 16 bytes


class AddressTable:
    """The table of one kernel.

    `names` are those of the tensors that a call gives, in order. `families` holds the rows of each family one after another; a
    row is a text of cells: the name of a tensor for its address, an integer, or `$k` for the call's `values[k]`.

    `table(tensors, values)` returns the int64 tensor with all cells on the device of the tensors, to be used on the device's
    current stream, and for each family whether all its addresses are multiples of 16. Safe to call from several threads and
    under graph capture. Raises HelionError where the tensors in the table are not on one device.
    """

    def __init__(self, names: str, families: Sequence[Sequence[str]]) -> None:
        order = {name: k for k, name in enumerate(names.split())}
        cells = [[cell for row in rows for cell in row.split()] for rows in families]
        used = sorted({order[c] for family in cells for c in family if c in order})
        place = {position: k for k, position in enumerate(used)}
        self._pick = _picker(used, len(order))
        self._families = [[_source(c, place, order) for c in family] for family in cells]
        self._last: dict[tuple[int, int], tuple[_Key, _Result]] = {}
        self._recent: dict[tuple[int, int], OrderedDict[_Key, _Result]] = {}
        self._free: dict[tuple[int, int], list[torch.Tensor]] = {}
        self._captured: dict[tuple[int, _Key], _Result] = {}
        self._lock = threading.Lock()

    def __call__(self, tensors: Sequence[torch.Tensor], values: tuple[int, ...] = ()) -> _Result:
        picked = self._pick(tensors)
        key = (tuple(map(_address, picked)), values)
        index = picked[0].get_device()
        if index < 0:
            stream = 0
        else:
            active = driver.active
            if index != active.get_current_device():
                with torch.cuda.device(index):
                    return self(tensors, values)
            if torch.cuda.is_current_stream_capturing():
                return self._for_graph(index, key, picked)
            stream = active.get_current_stream(index)
        last = self._last.get((index, stream))
        if last is not None and last[0] == key:
            return last[1]
        return self._find(index, stream, key, picked)

    def _find(self, index: int, stream: int, key: _Key, picked: Sequence[torch.Tensor]) -> _Result:
        where = (index, stream)
        with self._lock:
            recent = self._recent.setdefault(where, OrderedDict())
            result = recent.get(key)
            if result is None:
                cells, aligned = self._content(key, picked)
                result = (self._filled(where, cells), *aligned)
                recent[key] = result
                if len(recent) > KEPT:
                    recent.popitem(last=False)
            recent.move_to_end(key)
            self._last[where] = (key, result)
        return result

    def _content(self, key: _Key, picked: Sequence[torch.Tensor]) -> tuple[list[int], list[bool]]:
        devices = {t.device for t in picked}
        if len(devices) > 1:
            raise HelionError(f"a kernel got tensors on different devices: {', '.join(sorted(map(str, devices)))}")
        addresses, values = key
        cells: list[int] = []
        aligned = []
        for family in self._families:
            cells += [addresses[n] if kind == "address" else values[n] if kind == "value" else n for kind, n in family]
            aligned.append(all(addresses[n] % 16 == 0 for kind, n in family if kind == "address"))
        return cells, aligned

    def _filled(self, where: tuple[int, int], cells: list[int]) -> torch.Tensor:
        """A table for one stream, or for the CPU."""
        if where[0] < 0:
            return torch.tensor(cells, dtype=torch.int64)
        free = self._free.setdefault(where, [])
        if free:
            memory = free.pop()
        else:
            memory = allocate_apart(where[0], torch.zeros(len(cells), dtype=torch.int64))
            memory.record_stream(torch.cuda.current_stream(where[0]))
        table = memory.view(-1)
        # Whoever launches with this table holds it. Afterwards the stream keeps the next copy behind the launch.
        weakref.finalize(table, free.append, memory).atexit = False
        return table.copy_(torch.tensor(cells, dtype=torch.int64, pin_memory=True), non_blocking=True)

    def _for_graph(self, index: int, key: _Key, picked: Sequence[torch.Tensor]) -> _Result:
        with self._lock:
            result = self._captured.get((index, key))
            if result is None:
                cells, aligned = self._content(key, picked)
                result = (allocate_apart(index, torch.tensor(cells, dtype=torch.int64)), *aligned)
                self._captured[index, key] = result
        return result


def _picker(used: list[int], given: int) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
    if used == list(range(given)):
        return lambda tensors: tensors
    if len(used) == 1:
        return lambda tensors: (tensors[used[0]],)
    return itemgetter(*used)


def _source(cell: str, place: dict[int, int], order: dict[str, int]) -> tuple[str, int]:
    if cell in order:
        return "address", place[order[cell]]
    return ("value", int(cell[1:])) if cell.startswith("$") else ("integer", int(cell))
