"""Hypothesis strategies for anything that the grammars can say, meaningful or not."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from helion_inductor.ir.index import Expr, FloorDiv, Mod, integer, symbol
from helion_inductor.ir.printer import DTYPES, contiguous
from helion_inductor.ir.schedule_ir import KernelSchedule, Phase, PidMap, Task, TileDim
from helion_inductor.ir.tile_ir import (
    Atomic,
    Axis,
    Buffer,
    Check,
    Const,
    Index,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Size,
    Store,
    TileProgram,
)

# Words of the grammar make fine names too.
WORDS = (
    "in",
    "out",
    "temp",
    "nest",
    "load",
    "store",
    "mask",
    "reduce",
    "strides",
    "aliases",
    "sizes",
    "inf",
    "bool",
    "task",
)
names = st.one_of(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True), st.sampled_from(WORDS))
symbols = st.sampled_from(["i", "j", "r0", "s0", "M", "%0", "%31"]).map(symbol)
value_ids = st.integers(0, 200)
masks = st.none() | value_ids
dtypes = st.sampled_from(sorted(DTYPES)).map(DTYPES.__getitem__)
floats = st.floats(allow_nan=False)
literals = st.one_of(st.booleans(), st.integers(), floats)
attributes = st.one_of(dtypes, literals, st.text(max_size=8), st.text(string.punctuation, max_size=8))


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(FloorDiv, inner, st.integers(1, 9).map(integer) | symbols),
        st.builds(Mod, inner, st.integers(1, 9).map(integer) | symbols),
    )


exprs = st.recursive(st.integers(-99, 2**40).map(integer) | symbols, _grow, max_leaves=6)
shapes = st.lists(exprs, max_size=3).map(tuple)
axis_names = st.lists(names, max_size=3).map(tuple)


@st.composite
def buffers(draw: st.DrawFn) -> Buffer:
    shape = draw(shapes)
    stride = draw(st.just(contiguous(shape)) | shapes)
    kind = draw(st.sampled_from(["in", "out", "temp"]))
    return Buffer(draw(names), draw(dtypes), shape, stride, kind, draw(st.none() | names))


@st.composite
def loads(draw: st.DrawFn) -> Load:
    mask = draw(masks)
    other = 0 if mask is None else draw(literals)
    return Load(draw(value_ids), draw(dtypes), draw(names), draw(exprs), mask, other)


statements = st.one_of(
    loads(),
    st.builds(Const, value_ids, dtypes, literals),
    st.builds(Index, value_ids, dtypes, exprs),
    st.builds(
        Map,
        value_ids,
        dtypes,
        names,
        st.lists(value_ids, max_size=4).map(tuple),
        st.lists(attributes, max_size=3).map(tuple),
    ),
    st.builds(Reduce, value_ids, dtypes, names, axis_names, value_ids),
    st.builds(Scan, value_ids, dtypes, names, names, value_ids),
    st.builds(Store, names, exprs, value_ids, masks),
    st.builds(Atomic, names, exprs, value_ids, names, masks),
    st.builds(Check, value_ids, exprs, exprs, masks),
)
axes = st.lists(st.builds(Axis, names, exprs), max_size=3).map(tuple)
origins = st.lists(st.from_regex(r"[^\s]+", fullmatch=True), max_size=3).map(tuple)
nests = st.builds(LoopNest, names, axes, axes, st.lists(statements, max_size=6).map(tuple), origins)
sizes = st.builds(Size, names, st.integers(-3, 10**6), st.integers(-3, 10**6))
programs = st.builds(
    TileProgram,
    names,
    st.lists(sizes, max_size=3).map(tuple),
    st.lists(buffers(), max_size=4).map(tuple),
    st.lists(nests, max_size=3).map(tuple),
)

dims = st.builds(
    TileDim, names, axis_names, st.integers(0, 2**20), st.sampled_from(["parallel", "persistent", "looped"])
)
members = st.lists(names, max_size=3).map(tuple)


@st.composite
def _tasks(draw: st.DrawFn) -> Task:
    own = draw(st.lists(dims, max_size=4).map(tuple))
    parallel = [d.name for d in own if d.kind == "parallel"]
    order = draw(st.permutations(parallel))
    pid_map = PidMap(() if order == parallel else tuple(order), draw(st.integers(0, 2**40)))
    wide = draw(st.sampled_from([True, False, None]))
    return Task(draw(names), own, wide, pid_map, draw(members), draw(names), draw(st.integers(0, 2000)))


tasks = _tasks()
phases = st.builds(Phase, st.lists(tasks, max_size=3).map(tuple))
settings = st.integers(0, 99)
kernels = st.builds(
    KernelSchedule,
    names,
    names,
    settings,
    settings,
    st.lists(phases, max_size=3).map(tuple),
    settings,
    settings,
    st.booleans(),
)
