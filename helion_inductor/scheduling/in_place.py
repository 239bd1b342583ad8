"""Decide which outputs may be written straight onto the input they will be copied to.

An output ``y`` that ends in ``copy_(x, y)`` can live in ``x``'s storage when no nest still needs the old ``x`` after ``y``'s
element has been stored: every load of ``x`` is in an earlier nest, or in the storing nest at the very element it stores, in no
later pass over it; there the store moves behind the loads. Where a later nest reads ``x``, the storing nest is moved behind it
if nothing stands in the way: another kernel at worst, where the copy would be one for each such output. An output that starts as a
copy of the input and is then overwritten in part, as a key-value cache, is updated where it lies: the copy goes. What fails the
test keeps its own storage, and the copy stays with the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir.body import effect_depth, flow
from ..ir.tile_ir import Atomic, Load, LoopNest, Store, TileProgram
from .dependence import storage


@dataclass(frozen=True)
class InPlaceDecision:
    """Output, the input it was to overwrite, whether it does, and why not."""

    output: str
    target: str
    granted: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.output} onto {self.target}: {'in place' if self.granted else 'copied: ' + self.reason}"


def grant_in_place(program: TileProgram, wanted: Sequence[tuple[str, str]]) -> tuple[TileProgram, tuple[InPlaceDecision, ...]]:
    """``wanted`` pairs (output, input). Granted outputs alias their input, and loads of that input name the output."""
    order = _Order(program)
    decisions = []
    for output, target in wanted:
        reason = order.share(output, target)
        decisions.append(InPlaceDecision(output, target, reason is None, reason or ""))
    return order.program(), tuple(decisions)


class _Order:
    """The nests of a program in an order that changes, with who reads and writes what."""

    def __init__(self, program: TileProgram) -> None:
        self._program = program
        self._buffers = dict(program.by_name())
        self._nests = list(program.nests)
        self._place = {n.name: k for k, n in enumerate(self._nests)}
        self._storage = storage(program)
        self._readers: dict[str, list[LoopNest]] = {}
        self._writers: dict[str, list[LoopNest]] = {}
        for nest in self._nests:
            for users, buffers in ((self._readers, nest.reads()), (self._writers, nest.writes())):
                for b in dict.fromkeys(self._storage[b] for b in buffers):
                    users.setdefault(b, []).append(nest)

    def program(self) -> TileProgram:
        return replace(self._program, buffers=tuple(self._buffers.values()), nests=tuple(self._nests))

    def share(self, output: str, target: str) -> str | None:
        """Let ``output`` live in ``target``; the reason where that cannot be, and nothing changes."""
        out, old = self._buffers[output], self._buffers[target]
        if (out.dtype, out.shape, out.stride) != (old.dtype, old.shape, old.stride):
            return "dtype, shape or strides differ"
        if old.aliases is not None or out.aliases is not None or self._writers.get(target):
            return "the input is overwritten twice"
        writers = self._writers.get(output, [])
        if writers and _is_copy(writers[0], output, target):
            return self._update(output, target, writers[0], writers[1:])
        if len(writers) != 1:
            return "the output is written by several nests"
        readers = self._readers.get(target, [])
        last = max((self._place[n.name] for n in readers), default=-1)
        if last > self._place[writers[0].name] and not self._may_move(writers[0], last):
            return "the old value is read later"
        if (reason := _same_element(writers[0], output, target)) is not None:
            return reason
        if last > self._place[writers[0].name]:
            self._move(writers[0], last)
        at = self._place[writers[0].name]
        self._nests[at] = _store_last(self._nests[at], output, target)
        self._alias(output, target)
        return None

    def _update(self, output: str, target: str, copy: LoopNest, others: Sequence[LoopNest]) -> str | None:
        """Let ``output`` live in ``target``, of which it is a ``copy`` before ``others`` write to parts of it: nothing is to be
        copied then."""
        first = min((self._place[n.name] for n in others), default=len(self._nests))
        if any(self._place[n.name] >= first for n in self._readers.get(target, [])):
            return "the old value is read later"
        self._readers[target].remove(copy)
        self._writers[output].remove(copy)
        self._nests.remove(copy)
        self._place = {n.name: k for k, n in enumerate(self._nests)}
        self._alias(output, target)
        return None

    def _alias(self, output: str, target: str) -> None:
        self._buffers[output] = replace(self._buffers[output], aliases=target)
        self._storage[output] = target
        self._writers[target] = self._writers.pop(output)
        self._readers[target] = [*self._readers.get(target, []), *self._readers.pop(output, [])]

    def _may_move(self, nest: LoopNest, last: int) -> bool:
        """Whether no nest up to position ``last`` depends on ``nest``."""
        reads, writes = ({self._storage[b] for b in names} for names in (nest.reads(), nest.writes()))
        after = [n for b in writes for n in (*self._readers.get(b, ()), *self._writers.get(b, ()))]
        after += [n for b in reads for n in self._writers.get(b, ())]
        return not any(self._place[nest.name] < self._place[n.name] <= last for n in after)

    def _move(self, nest: LoopNest, last: int) -> None:
        first = self._place[nest.name]
        self._nests.insert(last, self._nests.pop(first))
        for k in range(first, last + 1):
            self._place[self._nests[k].name] = k


def _store_last(nest: LoopNest, output: str, target: str) -> LoopNest:
    """The nest with its store of ``output`` behind every load of ``target``: statements run in their order, and a program that
    has stored an element would load the new value."""
    (store,) = (s for s in nest.body if isinstance(s, Store) and s.buffer == output)
    rest = [s for s in nest.body if s is not store]
    loads = [k for k, s in enumerate(rest) if isinstance(s, Load) and s.buffer == target]
    place = max(nest.body.index(store), loads[-1] + 1 if loads else 0)
    return replace(nest, body=(*rest[:place], store, *rest[place:]))


def _is_copy(nest: LoopNest, output: str, target: str) -> bool:
    """Whether ``nest`` does nothing but fill ``output`` with the elements of ``target`` at the same places."""
    if len(nest.body) != 2 or nest.reduce:
        return False
    load, store = nest.body
    if not isinstance(load, Load) or not isinstance(store, Store) or load.mask is not None or store.mask is not None:
        return False
    return (load.buffer, store.buffer, store.value) == (target, output, load.id) and load.index == store.index


def _same_element(nest: LoopNest, output: str, target: str) -> str | None:
    stores = [s for s in nest.body if isinstance(s, (Store, Atomic)) and s.buffer == output]
    loads = [s for s in nest.body if isinstance(s, Load) and s.buffer == target]
    if len(stores) != 1 or not isinstance(stores[0], Store):
        return "the output is not one plain store"
    if not loads:
        return None
    if any(s.index != stores[0].index for s in loads):
        return "the storing nest reads other elements of the input"
    known = flow(nest)
    if effect_depth(stores[0], known) < max(known.depth.values(), default=0):
        return "the input is read again in a later pass"
    return None
