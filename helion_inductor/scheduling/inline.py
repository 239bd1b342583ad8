"""Pull pointwise producers into their consumers.

Before::

    nest @a parallel(p0: M, p1: K)     store t[K*p0 + p1] = f(x[K*p0 + p1])
    nest @b parallel(p0: M) reduce(r0: K)   ... load t[K*p0 + r0] ...

After: ``@b`` computes ``f(x[K*p0 + r0])`` where it loaded ``t``, and ``@a`` is gone once nobody reads ``t``.

Legal when the producer is one unmasked store of a value without reductions into a dense buffer that nothing else writes, and
no buffer it reads is written between producer and consumer. Worth it when it does not move more memory than the store and the
loads it replaces, and recomputes little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from ..ir.body import remap
from ..ir.index import ONE, Expr, FloorDiv, Mod, product, symbol, values_in
from ..ir.rewrite import cse, dce, next_value, with_indices
from ..ir.simplify import Ranges, simplify
from ..ir.tile_ir import (
    Atomic,
    Buffer,
    Check,
    Const,
    Index,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Stmt,
    Store,
    TileProgram,
    is_value,
    operands,
)
from .hints import evaluate_size
from .known import where_loaded
from .tile_sizes import is_product

MAX_BODY = 240
MULTI_USE_COST = 24
MANY_COLUMNS = 8
MANY_ROWS = 8  # above, products work on tiles of rows
FEW_STEPS = 3  # a load, an index, and a conversion or product
_FREE = frozenset({"cast", "round_to", "identity", "bitcast", "where", "logical_and"})
_COSTLY = frozenset({
    "exp", "log", "tanh", "erf", "sin", "cos", "pow", "sigmoid", "rsqrt", "sqrt", "truediv", "log1p", "expm1", "rand", "randn",
})  # fmt: skip
_SERIES = ("bessel", "polynomial", "gamma", "zeta", "airy", "ndtri", "erfinv")  # in names of functions that take dozens of steps
_DEAR = frozenset({"sin", "cos", "tan", "pow", "erfinv", "rand", "randn"})
_FP8 = frozenset(d for d in vars(torch).values() if isinstance(d, torch.dtype) and d.is_floating_point and d.itemsize == 1)


@dataclass(frozen=True)
class Producer:
    """A nest that only stores one pointwise value: its position, the store, and its axes by falling stride."""

    position: int
    nest: LoopNest
    store: Store
    radix: tuple[tuple[str, Expr, Expr], ...]


def digits(store_index: Expr, nest: LoopNest) -> tuple[tuple[str, Expr, Expr], ...] | None:
    """(axis, stride, extent) by falling stride when ``store_index`` is a dense mixed-radix number of all axes; else None."""
    left = {a.name: a.extent for a in nest.parallel}
    expanded = store_index.expand()
    found: list[tuple[str, Expr, Expr]] = []
    stride: Expr = ONE
    terms = {name: expanded.coeff(symbol(name)) for name in left}
    if (expanded - sum(c * symbol(n) for n, c in terms.items())).expand() != 0:
        return None
    while left:
        name = next((n for n in left if (terms[n] - stride).expand() == 0), None)
        if name is None:
            return None
        extent = left.pop(name)
        found.append((name, stride, extent))
        stride = (stride * extent).expand()
    return tuple(reversed(found))


def producer(position: int, nest: LoopNest) -> Producer | None:
    """``nest`` as a candidate for inlining, or None."""
    stores = [s for s in nest.body if isinstance(s, (Store, Atomic))]
    if nest.reduce or len(stores) != 1 or not isinstance(stores[0], Store) or stores[0].mask is not None:
        return None
    if any(isinstance(s, (Reduce, Scan)) for s in nest.body) or values_in(stores[0].index):
        return None
    radix = digits(stores[0].index, nest)
    return None if radix is None else Producer(position, nest, stores[0], radix)


def invert(radix: tuple[tuple[str, Expr, Expr], ...], index: Expr, ranges: Ranges) -> dict[str, Expr]:
    """Axis values of the element that lies at ``index``; the outermost digit needs no modulus, for accesses are in bounds."""
    result = {}
    for place, (name, stride, extent) in enumerate(radix):
        digit = FloorDiv(index, stride)
        result[name] = simplify(digit if place == 0 else Mod(digit, extent), ranges)
    return result


def instantiate(body: tuple[Stmt, ...], value: int, change: Mapping[str, Expr], mask: int | None, first: int,
                ranges: Ranges) -> tuple[list[Stmt], int]:  # fmt: skip
    """Clone what ``value`` needs, with axes substituted, every load and check under ``mask``; ids start at ``first``."""
    needed = {value}
    picked: list[Stmt] = []
    for stmt in reversed(body):
        if is_value(stmt) and stmt.id in needed:  # type: ignore[union-attr]
            picked.append(stmt)
            needed.update(operands(stmt))
        elif isinstance(stmt, Check) and stmt.value in needed:
            picked.append(stmt)
            needed.update(operands(stmt))
    symbols = {symbol(name): e for name, e in change.items()}
    made = {s.id for s in picked if is_value(s)}  # type: ignore[union-attr]
    rename = {v: v for s in picked for v in operands(s) if v not in made}
    out: list[Stmt] = []
    for stmt in reversed(picked):
        if is_value(stmt):
            rename[stmt.id] = first  # type: ignore[union-attr]
            first += 1
        stmt = with_indices(remap(stmt, rename), symbols, ranges)
        if mask is not None and isinstance(stmt, (Load, Check)):
            if stmt.mask is None:
                stmt = replace(stmt, mask=mask)
            else:
                both = Map(first, torch.bool, "logical_and", (mask, stmt.mask))
                first += 1
                out.append(both)
                stmt = replace(stmt, mask=both.id)
        out.append(stmt)
    return out, rename[value]


def through_memory(value: int, buffer: Buffer, first: int) -> tuple[list[Stmt], int]:
    """What loading ``buffer`` after storing ``value`` gives: 8-bit floats round, wider ones keep f32 (the default numerics)."""
    if buffer.dtype in _FP8:
        return [Map(first, torch.float32, "round_to", (value,), (buffer.dtype,))], first
    return [], value


def under_mask(load: Load, value: int, first: int) -> tuple[list[Stmt], int]:
    """``value`` where the mask of ``load`` holds, its ``other`` elsewhere."""
    if load.mask is None:
        return [], value
    other = Const(first, load.dtype, load.other)
    return [other, Map(first + 1, load.dtype, "where", (load.mask, value, first))], first + 1


def as_loaded(load: Load, buffer: Buffer, value: int, first: int) -> tuple[list[Stmt], int]:
    """What ``load`` gives of ``value`` after it was stored in ``buffer``; new ids start at ``first``."""
    rounded, value = through_memory(value, buffer, first)
    masked, value = under_mask(load, value, first + len(rounded))
    return rounded + masked, value


def inline_load(consumer: LoopNest, load: Load, source: Producer, buffer: Buffer, lower: Mapping[str, int]) -> LoopNest:
    """``consumer`` with ``load`` replaced by the expression that ``source`` stored there."""
    ranges = where_loaded(load, consumer, lower)
    change = invert(source.radix, load.index, ranges)
    at = consumer.body.index(load)
    first = next_value(consumer.body)
    new, value = instantiate(source.nest.body, source.store.value, change, load.mask, first, ranges)
    more, value = as_loaded(load, buffer, value, next_value([*consumer.body, *new]))
    new += more
    rename = {s.id: s.id for s in (*consumer.body, *new) if is_value(s)}  # type: ignore[union-attr]
    rename[load.id] = value
    after = tuple(remap(s, rename) for s in consumer.body[at + 1 :])
    origins = tuple(dict.fromkeys((*source.nest.origins, *consumer.origins)))
    return replace(consumer, body=(*consumer.body[:at], *new, *after), origins=origins)


def cost(nest: LoopNest) -> int:
    """Rough scalar work of a body; index arithmetic with divisions counts."""
    total = 0
    for s in nest.body:
        if isinstance(s, Map):
            total += 40 if any(word in s.op for word in _SERIES) else 0 if s.op in _FREE else 4 if s.op in _COSTLY else 1
        elif isinstance(s, (Load, Index)):
            total += 1
    return total


def _full_loads(nest: LoopNest) -> int:
    names = {a.name for a in nest.parallel}
    return sum(1 for s in nest.body if isinstance(s, Load) and (values_in(s.index) or {n.name for n in s.index.free_symbols} >= names))


def _worth(source: Producer, uses: int, stays: bool) -> bool:
    work, loads = cost(source.nest), _full_loads(source.nest)
    if stays:
        return loads <= 1 and work <= MULTI_USE_COST
    return uses == 1 or (work <= MULTI_USE_COST and loads * uses <= loads + 1 + uses)


def _better_once(source: Producer, reader: LoopNest, load: Load, uses: int, nests: list[LoopNest], writes: Mapping[str, list[int]],
                 program: TileProgram) -> bool:  # fmt: skip
    """Whether a value is computed once rather than by all that read it: because it can be had at the end of the product of matrices
    that it is made of, or because it is dear and ``reader`` needs it for many columns alike."""
    ends_product = _ends_product(source.nest, source.store, nests, writes)
    if ends_product and uses > 1:
        return True
    if not reader.reduce or values_in(load.index):
        return False
    mentioned = {s.name for s in load.index.free_symbols}
    columns = evaluate_size(product(a.extent for a in reader.parallel if a.name not in mentioned), program.hints())
    if columns < MANY_COLUMNS:
        return False
    rows = evaluate_size(product(a.extent for a in reader.parallel if a.name in mentioned), program.hints())
    if rows >= MANY_ROWS and is_product(reader) and cost(source.nest) > FEW_STEPS:
        return True  # each tile of columns would compute the rows anew, and keep them from going straight to the unit that multiplies
    dear = any(isinstance(s, Map) and (s.op in _DEAR or any(word in s.op for word in _SERIES)) for s in source.nest.body)
    return dear or ends_product


def _ends_product(nest: LoopNest, store: Store, nests: list[LoopNest], writes: Mapping[str, list[int]]) -> bool:
    """Whether a nest without reductions can be had at the end of a product: it reads its result, or what is made of that alike, at
    the elements that it stores."""
    here = [s.buffer for s in nest.body if isinstance(s, Load) and s.index == store.index]
    for writer in (nests[p] for b in here for p in writes.get(b, ())):
        last = next((s for s in writer.body if isinstance(s, Store)), None)
        if is_product(writer) or (not writer.reduce and last is not None and _ends_product(writer, last, nests, writes)):
            return True
    return False


def inline_producers(program: TileProgram) -> TileProgram:
    """One sweep in program order; see the module docstring."""
    buffers, lower = program.by_name(), program.lower()
    nests = list(program.nests)
    writes: dict[str, list[int]] = {}
    uses: dict[str, int] = {}
    for position, nest in enumerate(program.nests):
        for b in nest.writes():
            writes.setdefault(b, []).append(position)
        for b in nest.reads():
            uses[b] = uses.get(b, 0) + 1
    for position, nest in enumerate(program.nests):
        changed = True
        refused: set[str] = set()
        while changed:
            changed = False
            for load in [s for s in nest.body if isinstance(s, Load)]:
                source = None if load.buffer in refused else _source(load.buffer, position, nests, writes, buffers)
                stays = buffers[load.buffer].kind == "out"
                fits = source is not None and len(nest.body) + len(source.nest.body) <= MAX_BODY
                use = uses.get(load.buffer, 1)
                worth = source is not None and _worth(source, use, stays)
                if source is None or not fits or not worth or _better_once(source, nest, load, use, nests, writes, program):
                    refused.add(load.buffer)
                    continue
                nest = inline_load(nest, load, source, buffers[load.buffer], lower)
                changed = True
                break
        nests[position] = dce(cse(nest))
    return replace(program, nests=drop_dead(nests, buffers))


def _source(buffer: str, position: int, nests: list[LoopNest], writes: Mapping[str, list[int]],
            buffers: Mapping[str, Buffer]) -> Producer | None:  # fmt: skip
    at = writes.get(buffer, [])
    if len(at) != 1 or at[0] >= position or buffers[buffer].kind == "in":
        return None
    source = producer(at[0], nests[at[0]])
    if source is None or any(at[0] < w < position for b in source.nest.reads() for w in writes.get(b, ())):
        return None
    return source


def drop_dead(nests: list[LoopNest], buffers: Mapping[str, Buffer]) -> tuple[LoopNest, ...]:
    """Remove stores that nobody reads, from the last nest to the first, and nests left without stores.

    A check guards the loads of its nest; what was inlined took its checks along.
    """
    live = {b.name for b in buffers.values() if b.kind == "out"}
    kept: list[LoopNest] = []
    for nest in reversed(nests):
        dead = frozenset(b for b in nest.writes() if b not in live)
        if dead:
            nest = dce(nest, dead)
        if any(isinstance(s, (Store, Atomic)) for s in nest.body):
            kept.append(nest)
            live.update(nest.reads())
    return tuple(reversed(kept))
