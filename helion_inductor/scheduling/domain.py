"""Matching iteration spaces: bring two nests onto one set of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.index import ZERO, Expr, symbol
from ..ir.simplify import exact_quotient
from ..ir.tile_ir import Axis, LoopNest


@dataclass(frozen=True)
class Split:
    """Common refinement of two axis lists: the new extents, and for each old axis the run of new ones it became."""

    extents: tuple[Expr, ...]
    left: tuple[tuple[int, ...], ...]
    right: tuple[tuple[int, ...], ...]


def refine(left: Sequence[Expr], right: Sequence[Expr]) -> Split | None:
    """Coarsest common refinement of two row-major shapes, or None when their factors do not nest."""
    a, b = list(left), list(right)
    i = j = 0
    extents: list[Expr] = []
    runs: tuple[list[list[int]], list[list[int]]] = ([[] for _ in a], [[] for _ in b])
    rest_a, rest_b = (a[0] if a else None), (b[0] if b else None)
    while i < len(a) and j < len(b):
        assert rest_a is not None and rest_b is not None
        extent, rest_a, rest_b = _outer(rest_a, rest_b)
        if extent is None:
            return None
        runs[0][i].append(len(extents))
        runs[1][j].append(len(extents))
        extents.append(extent)
        if rest_a is None:
            i += 1
            rest_a = a[i] if i < len(a) else None
        if rest_b is None:
            j += 1
            rest_b = b[j] if j < len(b) else None
    if i < len(a) or j < len(b):
        return None
    return Split(tuple(extents), tuple(map(tuple, runs[0])), tuple(map(tuple, runs[1])))


def _outer(a: Expr, b: Expr) -> tuple[Expr | None, Expr | None, Expr | None]:
    """Peel the common outer factor of two extents: (extent, what is left of a, what is left of b)."""
    if a == b:
        return a, None, None
    if (q := exact_quotient(a, b)) is not None:
        return b, q, None
    if (q := exact_quotient(b, a)) is not None:
        return a, None, q
    return None, None, None


@dataclass(frozen=True)
class Common:
    """Two nests on shared axes: per nest, old axis -> expression in new axes, and old reduce axis -> new axis names."""

    parallel: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    change: tuple[dict[str, Expr], dict[str, Expr]]
    reduced: tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]


def common_domain(a: LoopNest, b: LoopNest, b_axes: Sequence[Axis]) -> Common | None:
    """Unify ``a`` with ``b``, whose parallel axes are taken in the order ``b_axes``.

    A nest without reduce axes may run over the other's parallel x reduce space, or over its parallel space alone.
    """
    if a.reduce and b.reduce:
        x = refine(_sizes(a.parallel), _sizes(b_axes))
        r = refine(_sizes(a.reduce), _sizes(b.reduce))
        return None if x is None or r is None else _build(x, r, a.parallel, a.reduce, b_axes, b.reduce)
    if not a.reduce and not b.reduce:
        x = refine(_sizes(a.parallel), _sizes(b_axes))
        return None if x is None else _build(x, Split((), (), ()), a.parallel, (), b_axes, ())
    if a.reduce:
        return _reduced_with_pointwise(a, b_axes, flip=False)
    return _reduced_with_pointwise(b, a.parallel, flip=True, reduced_axes=b_axes)


def _reduced_with_pointwise(red: LoopNest, axes: Sequence[Axis], *, flip: bool,
                            reduced_axes: Sequence[Axis] | None = None) -> Common | None:  # fmt: skip
    outer = tuple(red.parallel if reduced_axes is None else reduced_axes)
    for cut in range(len(axes), -1, -1):
        x = refine(_sizes(outer), _sizes(axes[:cut]))
        inner = axes[cut:]
        r = refine(_sizes(red.reduce), _sizes(inner)) if inner else Split(
            tuple(_sizes(red.reduce)), tuple((k,) for k in range(len(red.reduce))), ())
        if x is None or r is None:
            continue
        if flip:
            x, r = Split(x.extents, x.right, x.left), Split(r.extents, r.right, r.left)
            return _build(x, r, axes[:cut], inner, outer, red.reduce)
        return _build(x, r, outer, red.reduce, axes[:cut], inner)
    return None


def _build(x: Split, r: Split, ax: Sequence[Axis], ar: Sequence[Axis], bx: Sequence[Axis], br: Sequence[Axis]) -> Common:
    parallel = tuple(Axis(f"p{k}", e) for k, e in enumerate(x.extents))
    reduce = tuple(Axis(f"r{k}", e) for k, e in enumerate(r.extents))
    change_a, reduced_a = _changes(((ax, x.left, parallel), (ar, r.left, reduce)))
    change_b, reduced_b = _changes(((bx, x.right, parallel), (br, r.right, reduce)))
    return Common(parallel, reduce, (change_a, change_b), (reduced_a, reduced_b))


Part = tuple[Sequence[Axis], tuple[tuple[int, ...], ...], tuple[Axis, ...]]


def _changes(parts: Sequence[Part]) -> tuple[dict[str, Expr], dict[str, tuple[str, ...]]]:
    change: dict[str, Expr] = {}
    reduced: dict[str, tuple[str, ...]] = {}
    for axes, runs, new in parts:
        for axis, run in zip(axes, runs, strict=True):
            e: Expr = ZERO
            for k in run:
                e = e * new[k].extent + symbol(new[k].name)
            change[axis.name] = e.expand()
            reduced[axis.name] = tuple(new[k].name for k in run)
    return change, reduced


def _sizes(axes: Sequence[Axis]) -> list[Expr]:
    return [a.extent for a in axes]
