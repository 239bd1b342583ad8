"""Join nests that can share one iteration space, so that intermediates stay in registers.

Before::

    nest @a parallel(p0: M) reduce(r0: K)   store s[p0] = reduce sum x[K*p0 + r0]
    nest @b parallel(p0: M, p1: K)          store y[K*p0 + p1] = x[K*p0 + p1] / s[p0]

After: one nest over ``parallel(p0: M) reduce(r0: K)``; the load of ``s`` is the reduced value itself.

Legal when every element that the later nest reads of the earlier one's stores was produced at the same point of the shared
axes (or can be recomputed there), and when moving the later nest up (or the earlier one down) crosses no dependence.
Refused when it would serialise: a large pointwise nest is not run inside a reduction that has only a few rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..ir.body import flow, remap
from ..ir.index import Expr, names_in, product, symbol, values_in
from ..ir.rewrite import cse, dce, next_value, reaxis, shift_values
from ..ir.simplify import Ranges
from ..ir.tile_ir import (
    Atomic,
    Axis,
    Buffer,
    Load,
    LoopNest,
    Scan,
    Stmt,
    Store,
    TileProgram,
    is_value,
    operands,
)
from .dependence import storage
from .domain import Common, common_domain
from .hints import evaluate_size
from .inline import MAX_BODY, as_loaded, digits, drop_dead, instantiate, invert
from .repeat import repeated

FEW_ROWS = 64
LONG_ROW = 4096
RECOMPUTE_BUDGET = 40


@dataclass(frozen=True)
class FusionDecision:
    """One pair tried: names of the two nests, whether they were joined, and why not."""

    first: str
    second: str
    joined: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.first} + {self.second}: {'joined' if self.joined else 'apart: ' + self.reason}"


@dataclass(frozen=True)
class _Refused:
    reason: str


def fuse_vertical(program: TileProgram) -> tuple[TileProgram, tuple[FusionDecision, ...]]:
    """Join nests greedily in program order; see the module docstring."""
    line = _Line(program)
    decisions: list[FusionDecision] = []
    failed: dict[tuple[int, int], tuple[LoopNest, LoopNest]] = {}  # holds the nests, so that an id is not used twice
    position = 1
    while position < len(line.nests):
        for candidate in line.candidates(position) if line.is_open(position) else ():
            first, second = pair = (line.nests[candidate], line.nests[position])
            if (id(first), id(second)) in failed:
                continue
            result = join(first, second, program, line.private(candidate, position))
            place = line.place(candidate, position) if isinstance(result, LoopNest) else None
            reason = result.reason if isinstance(result, _Refused) else "" if place is not None else "a nest between depends on both"
            decisions.append(FusionDecision(first.name, second.name, place is not None, reason))
            if place is not None and isinstance(result, LoopNest):
                line.replace(candidate, position, result, place)
                position = max(candidate - 1, 0)
                break
            failed[id(first), id(second)] = pair
        else:
            line.close(position)
        position += 1
    cleaned = drop_dead(line.nests, program.by_name())
    return replace(program, nests=tuple(dce(cse(n)) for n in cleaned)), tuple(decisions)


@dataclass(frozen=True)
class _Facts:
    """Buffers that a nest reads, writes, and reads over all its axes; storages that it reads and writes."""

    nest: LoopNest
    reads: frozenset[str]
    writes: frozenset[str]
    wide_reads: frozenset[str]
    uses: frozenset[str]
    changes: frozenset[str]

    def depends_on(self, earlier: _Facts) -> bool:
        return bool(earlier.changes & (self.uses | self.changes) or self.changes & earlier.uses)


class _Line:
    """The nests in order, with what is known of each, and which are open: may find a partner that was not tried."""

    def __init__(self, program: TileProgram) -> None:
        self.storages = storage(program)
        self.temporary = {b.name for b in program.buffers if b.kind == "temp"}
        self.nests = list(program.nests)
        self.facts = [self._facts(n) for n in self.nests]
        self.open = set(map(id, self.facts))
        self.writers: dict[str, dict[int, _Facts]] = {}
        self.wide_readers: dict[str, dict[int, _Facts]] = {}
        self.readers: dict[str, dict[int, _Facts]] = {}
        for f in self.facts:
            self._enter(f)
        self._number()

    def _facts(self, nest: LoopNest) -> _Facts:
        reads, writes, names = frozenset(nest.reads()), frozenset(nest.writes()), set(nest.extents())
        wide = frozenset(s.buffer for s in nest.body if isinstance(s, Load) and names and names_in(s.index) >= names)
        return _Facts(nest, reads, writes, wide, *(frozenset(self.storages[b] for b in bs) for bs in (reads, writes)))

    def _users(self, facts: _Facts) -> list[tuple[dict[str, dict[int, _Facts]], frozenset[str]]]:
        return [(self.writers, facts.writes), (self.wide_readers, facts.wide_reads), (self.readers, facts.reads)]

    def _enter(self, facts: _Facts) -> None:
        for users, buffers in self._users(facts):
            for b in buffers:
                users.setdefault(b, {})[id(facts)] = facts

    def _number(self) -> None:
        self.at = {id(f): k for k, f in enumerate(self.facts)}

    def is_open(self, position: int) -> bool:
        return id(self.facts[position]) in self.open

    def close(self, position: int) -> None:
        self.open.discard(id(self.facts[position]))

    def candidates(self, position: int) -> list[int]:
        """Earlier nests that ``position`` reads from, nearest first, then a few that read, over all axes, what it reads so: a
        whole pass over memory is saved."""
        mine = self.facts[position]

        def before(users: Mapping[str, Mapping[int, _Facts]], buffers: frozenset[str]) -> list[int]:
            found = {self.at[f] for b in buffers for f in users.get(b, ())}
            return sorted((k for k in found if k < position), reverse=True)

        producers = before(self.writers, mine.reads)
        siblings = [k for k in before(self.wide_readers, mine.wide_reads) if k not in producers]
        return producers + siblings[:4]

    def private(self, first: int, second: int) -> frozenset[str]:
        """Temporaries that only ``first`` writes and only ``second`` reads."""
        only = {id(self.facts[first])}, {id(self.facts[second])}
        written = self.facts[first].writes & self.temporary
        return frozenset(b for b in written if (set(self.writers[b]), set(self.readers.get(b, ()))) == only)

    def place(self, first: int, second: int) -> int | None:
        """Where both can stand as one: at the first, unless the second depends on a nest between, or at the second."""
        between = self.facts[first + 1 : second]
        if not any(self.facts[second].depends_on(f) for f in between):
            return first
        if not any(f.depends_on(self.facts[first]) for f in between):
            return second
        return None

    def replace(self, first: int, second: int, nest: LoopNest, place: int) -> None:
        """Put ``nest`` in the place of one of the two, and open whatever it may be a partner of."""
        for k in (second, first):
            old = self.facts.pop(k)
            del self.nests[k]
            self.open.discard(id(old))
            for users, buffers in self._users(old):
                for b in buffers:
                    del users[b][id(old)]
        facts = self._facts(nest)
        at = place if place == first else place - 1
        self.nests.insert(at, nest)
        self.facts.insert(at, facts)
        self._enter(facts)
        self._number()
        near = [(self.readers, facts.writes), (self.wide_readers, facts.wide_reads)]
        self.open |= {id(facts), *(f for users, buffers in near for b in buffers for f in users.get(b, ()))}


def join(a: LoopNest, b: LoopNest, program: TileProgram, private: frozenset[str] = frozenset()) -> LoopNest | _Refused:
    """Nests ``a`` then ``b`` as one, or the reason why not; ``private``: temporaries by which only ``b`` depends on ``a``."""
    if len(a.body) + len(b.body) > MAX_BODY:
        return _Refused(f"the body would pass {MAX_BODY} statements")
    if any(isinstance(s, Atomic) for s in (*a.body, *b.body)):
        return _Refused("atomic updates are not reordered with other work")
    if set(b.writes()) & (set(a.reads()) | set(a.writes())):
        return _Refused("the later nest overwrites what the earlier one uses")
    result = join_on_axes(a, b, program)
    if isinstance(result, _Refused) and (copies := repeated(a, b, private)) is not None:
        result = join_on_axes(copies, b, program)
        if isinstance(result, LoopNest):
            result = replace(result, body=tuple(s for s in result.body if not (isinstance(s, Store) and s.buffer in private)))
    return result


def join_on_axes(a: LoopNest, b: LoopNest, program: TileProgram) -> LoopNest | _Refused:
    """Nests ``a`` then ``b`` as one over axes that both have, whatever else they depend on."""
    buffers = program.by_name()
    written = {s.buffer for s in a.body if isinstance(s, Store)}
    reason: _Refused = _Refused("iteration spaces do not match")
    for order in _axis_orders(a, b):
        common = common_domain(a, b, order)
        if common is None:
            continue
        if (serial := _serialises(a, b, common, program)) is not None:
            reason = serial
            continue
        moved = [
            reaxis(n, common.parallel, common.reduce, change, reduced, program.lower())
            for n, change, reduced in zip((a, b), common.change, common.reduced, strict=True)
            if all(len(reduced[s.axis]) == 1 for s in n.body if isinstance(s, Scan))
        ]
        if len(moved) < 2:
            continue
        result = _connect(moved[0], moved[1], written, buffers, program.lower())
        if isinstance(result, LoopNest):
            return result
        reason = result
    return reason


def _axis_orders(a: LoopNest, b: LoopNest) -> list[tuple[Axis, ...]]:
    """Orders of ``b``'s parallel axes worth trying: as they are, and with those first by which it reads ``a``'s stores."""
    orders = [b.parallel]
    written = set(a.writes())
    for s in b.body:
        if isinstance(s, Load) and s.buffer in written:
            mine = [x for x in b.parallel if symbol(x.name) in s.index.free_symbols]
            radix = [(x, s.index.expand().coeff(symbol(x.name))) for x in mine]
            if all(c.is_Integer for _, c in radix):
                mine = [x for x, _ in sorted(radix, key=lambda pair: -int(pair[1]))]
            rest = [x for x in b.parallel if x not in mine]
            for order in (tuple(mine + rest), tuple(rest + mine)):
                if order not in orders:
                    orders.append(order)
    return orders


def _serialises(a: LoopNest, b: LoopNest, common: Common, program: TileProgram) -> _Refused | None:
    """Refuses a nest without reductions that would walk long rows, of which there are few, where it had a program for each tile."""
    hints = program.hints()
    rows = evaluate_size(product(x.extent for x in common.parallel), hints)
    length = evaluate_size(product(x.extent for x in common.reduce), hints)
    along = {x.name for x in common.reduce}
    walks = any(not n.reduce and any(along & names_in(e) for e in change.values()) for n, change in zip((a, b), common.change, strict=True))
    if rows < FEW_ROWS and length > LONG_ROW and walks:
        return _Refused(f"{rows} rows of {length} would run on {rows} programs")
    return None


def _connect(a: LoopNest, b: LoopNest, written: set[str], buffers: Mapping[str, Buffer], lower: Mapping[str, int]) -> LoopNest | _Refused:
    """Join two nests on equal axes: loads of ``b`` from ``a``'s stores become values."""
    ranges = Ranges(a.extents(), lower)
    stores = {s.buffer: s for s in a.body if isinstance(s, Store)}
    fresh = next_value(a.body) + next_value(b.body)
    if len(stores) != sum(isinstance(s, Store) for s in a.body):
        return _Refused("a buffer is stored twice")
    body: list[Stmt] = list(a.body)
    rename: dict[int, int] = {}
    for old in shift_values(b.body, next_value(a.body)):
        if is_value(old):
            rename[old.id] = old.id  # type: ignore[union-attr]
        stmt = remap(old, rename)
        if isinstance(stmt, Load) and stmt.buffer in written:
            got = _forward(stmt, stores[stmt.buffer], a, buffers[stmt.buffer], ranges, max(fresh, next_value(body)))
            if isinstance(got, _Refused):
                return got
            new, value = got
            body += new
            rename[stmt.id] = value
            continue
        body.append(stmt)
    compact = {s.id: k for k, s in enumerate(x for x in body if is_value(x))}  # type: ignore[union-attr]
    return replace(a, body=tuple(remap(s, compact) for s in body), origins=tuple(dict.fromkeys((*a.origins, *b.origins))))


def _forward(load: Load, store: Store, a: LoopNest, buffer: Buffer, ranges: Ranges, first: int) -> tuple[list[Stmt], int] | _Refused:
    """Statements and value that stand for ``load`` of what ``store`` wrote."""
    if store.mask is not None:
        return _Refused(f"{buffer.name} is stored under a mask")
    out: list[Stmt] = []
    value = store.value
    if load.index != store.index:
        recomputed = _recompute(load, store, a, ranges, first)
        if isinstance(recomputed, _Refused):
            return recomputed
        out, value = recomputed
    more, value = as_loaded(load, buffer, value, max(first, next_value(out)))
    return out + more, value


def _recompute(load: Load, store: Store, a: LoopNest, ranges: Ranges, first: int) -> tuple[list[Stmt], int] | _Refused:
    """The stored value at another element of the same row: possible when only pointwise work depends on what changed."""
    whole = replace(a, parallel=(*a.parallel, *a.reduce), reduce=())
    used = {n for n in names_in(store.index) if n in whole.extents()}
    over = replace(whole, parallel=tuple(x for x in whole.parallel if x.name in used))
    radix = digits(store.index, over)
    if radix is None or values_in(load.index):
        return _Refused("read at other elements than those produced here")
    change = invert(radix, load.index, ranges)
    moving = {n for n, e in change.items() if e != symbol(n)}
    if any(x.name in moving for x in a.parallel):
        return _Refused("reads elements of another row")
    known = flow(a)
    needed, total = {store.value}, 0
    by_id = {s.id: s for s in a.body if is_value(s)}  # type: ignore[union-attr]
    fixed: set[int] = set()
    order = [store.value]
    while order:
        v = order.pop()
        if not (known.axes[v] & moving):
            fixed.add(v)
            continue
        stmt = by_id[v]
        total += 1
        if known.depth[v] > max((known.depth[o] for o in operands(stmt)), default=0) or isinstance(stmt, Scan):
            return _Refused("reads reduced values of other elements")
        for o in operands(stmt):
            if o not in needed:
                needed.add(o)
                order.append(o)
    if total > RECOMPUTE_BUDGET:
        return _Refused(f"recomputing would take {total} statements")
    return _clone(a, store.value, change, fixed, load.mask, first, ranges)


def _clone(a: LoopNest, value: int, change: Mapping[str, Expr], fixed: set[int], mask: int | None, first: int,
           ranges: Ranges) -> tuple[list[Stmt], int]:  # fmt: skip
    body = tuple(s for s in a.body if not (is_value(s) and s.id in fixed))  # type: ignore[union-attr]
    clones, result = instantiate(body, value, change, mask, first, ranges) if value not in fixed else ([], value)
    return clones, result

