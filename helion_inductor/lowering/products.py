"""Matrix products and attention, written out in ops that have loops: for shapes where they are bound by memory, not by arithmetic.

A product ``[M, K] @ [K, N]`` is ``sum over k of a[m, k] * b[k, n]``, one loop that multiplies and sums in float32 (float64 for
float64; int64 for integers, of which the low bits are kept). With few rows each element of the larger operand is needed once or
twice: such a product reads memory as any reduction does, and like one it can take in what comes before and after it.

Attention over few query rows is three loops: scores; their maximum and the sum of their exponentials, row by row; and the
average of the values that the exponentials weigh. The scores are kept in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from ..errors import Unsupported
from .writing import Rule, Writer

aten = torch.ops.aten
MOST_ROWS = 2
MOST_HALF_ROWS = 128  # where units that multiply halves take them: above, a library's kernels are faster
_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_INTS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What products are summed in."""
    if dtype in _INTS:
        return torch.int64
    return torch.float64 if dtype == torch.float64 else torch.float32


def _sum_of_products(w: Writer, a: fx.Node, b: fx.Node) -> fx.Node:
    """``a @ b`` of tensors with equal leading dimensions, not rounded yet; ``a`` may have one dimension, as may ``b``."""
    a, b = _factor(w, a), _factor(w, b)
    if _rank(a) == _rank(b) == 1:
        return w.call(aten.sum.default, w.call(aten.mul.Tensor, a, b))
    if _rank(b) == 1:  # [M, K] @ [K]
        return w.call(aten.sum.dim_IntList, w.call(aten.mul.Tensor, a, b), [-1])
    rows, columns = w.call(aten.unsqueeze.default, a, -1), w.call(aten.unsqueeze.default, b, -3)
    return w.row_major(w.call(aten.sum.dim_IntList, w.call(aten.mul.Tensor, rows, columns), [-2]))


def _factor(w: Writer, x: fx.Node) -> fx.Node:
    """``x`` as it is multiplied: rounded to its dtype, where what makes it is computed in the same loop, and then widened."""
    dtype = w.dtype(x)
    wide = w.to(x, _wide(dtype))
    return wide if wide is x else w.to(w.to(wide, dtype), w.dtype(wide))


def _rank(node: fx.Node) -> int:
    return node.meta["val"].dim()  # type: ignore[no-any-return]


def _product(w: Writer, a: fx.Node, b: fx.Node) -> fx.Node:
    return w.to(_sum_of_products(w, a, b), w.dtype(a))


def _scaled(w: Writer, x: fx.Node, by: float) -> fx.Node:
    return x if by == 1 else w.call(aten.mul.Scalar, x, by)


def _sum_and_product(w: Writer, added: fx.Node, a: fx.Node, b: fx.Node, beta: float = 1, alpha: float = 1) -> fx.Node:
    """``beta * added + alpha * (a @ b)``; with a ``beta`` of 0 nothing of ``added`` counts, not even a NaN."""
    result = w.dtype(a)
    total = _scaled(w, _sum_of_products(w, a, b), alpha)
    if beta != 0:
        total = w.call(aten.add.Tensor, total, _scaled(w, w.to(added, w.dtype(total)), beta))
    return w.to(total, result)


def _where(w: Writer, condition: fx.Node, x: fx.Node, other: float) -> fx.Node:
    return w.call(aten.where.self, condition, x, w.create(aten.full.default, x, (), other, dtype=w.dtype(x)))


def _count(w: Writer, like: fx.Node, length: int) -> fx.Node:
    return w.create(torch.ops.prims.iota.default, like, length, start=0, step=1, dtype=torch.int64, requires_grad=False)


def _for_each_head(w: Writer, x: fx.Node, heads: int) -> fx.Node:
    """``x`` [batch, heads of keys, keys, width], each of whose heads serves as many neighbouring heads of queries."""
    batch, own, keys, width = x.meta["val"].shape
    if own == heads:
        return x
    many = w.call(aten.expand.default, w.call(aten.unsqueeze.default, x, 2), [batch, own, heads // own, keys, width])
    return w.call(aten.reshape.default, w.call(aten.clone.default, many), [batch, heads, keys, width])


def _attention(w: Writer, query: fx.Node, key: fx.Node, value: fx.Node, mask: fx.Node | None, causal: bool, scale: float | None) -> fx.Node:
    """The first result of scaled dot-product attention; a row of which everything is masked is 0."""
    rows, keys, width = query.meta["val"].shape[-2], key.meta["val"].shape[-2], query.meta["val"].shape[-1]
    result = w.dtype(query)
    key, value = (_for_each_head(w, t, query.meta["val"].shape[1]) for t in (key, value))
    scores = _sum_of_products(w, query, w.call(aten.permute.default, key, [0, 1, 3, 2]))
    scores = w.call(aten.mul.Scalar, scores, 1 / math.sqrt(width) if scale is None else scale)
    if mask is not None and w.dtype(mask) == torch.bool:
        scores = _where(w, mask, scores, -math.inf)
    elif mask is not None:
        scores = w.call(aten.add.Tensor, scores, w.to(mask, w.dtype(scores)))
    if causal:
        at, row = _count(w, query, keys), w.call(aten.unsqueeze.default, _count(w, query, rows), -1)
        scores = _where(w, w.call(aten.le.Tensor, at, row), scores, -math.inf)
    scores = w.done(w.row_major(scores))
    top = w.call(aten.amax.default, scores, [-1], True)
    top = w.done(_where(w, w.call(aten.ne.Scalar, top, -math.inf), top, 0.0))
    weights = w.call(aten.exp.default, w.call(aten.sub.Tensor, scores, top))
    total = w.done(w.call(aten.sum.dim_IntList, weights, [-1], True))
    # Weights are rounded as the values are where units that multiply halves are to take them, as in fused kernels for attention.
    weights = w.to(weights, w.dtype(value)) if rows > MOST_ROWS else weights
    average = w.call(aten.div.Tensor, _sum_of_products(w, weights, w.to(value, w.dtype(weights))), total)
    return w.to(_where(w, w.call(aten.ne.Scalar, total, 0.0), average, 0.0), result)


_PRODUCTS: Mapping[object, Rule] = {
    aten.mm.default: _product, aten.bmm.default: _product, aten.mv.default: _product, aten.dot.default: _product,
    aten.addmm.default: _sum_and_product, aten.baddbmm.default: _sum_and_product, aten.addmv.default: _sum_and_product,
}  # fmt: skip
_ATTENTIONS = frozenset({
    aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_cudnn_attention.default, aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_fused_attention_overrideable.default,
})  # fmt: skip


def written_out(target: object) -> Rule | None:
    """How to write out a product or attention; None for any other op."""
    if target in _PRODUCTS:
        return _PRODUCTS[target]
    if target not in _ATTENTIONS:
        return None
    names = [a.name for a in target._schema.arguments]  # type: ignore[attr-defined]

    def write(w: Writer, *args: Any) -> fx.Node:
        given = dict(zip(names, args, strict=True))
        mask = given.get("attn_bias", given.get("attn_mask"))
        return _attention(w, given["query"], given["key"], given["value"], mask, given["is_causal"], given["scale"])

    return write


def refusal(node: fx.Node, *, opted_in: bool) -> Unsupported | None:
    """Why a product or attention is not written out; ``opted_in``: whether many rows are no reason."""
    if written_out(node.target) is None:
        return Unsupported("family", f"no rule writes out {node.target}")
    values = [a.meta["val"] for a in node.all_input_nodes]
    kind = "attention" if node.target in _ATTENTIONS else "product"
    known = _FLOATS | ({torch.bool} if kind == "attention" else _INTS)
    if any(v.dtype not in known for v in values):
        return Unsupported(f"{kind}-dtype", f"{kind}s of {', '.join(sorted({str(v.dtype) for v in values}))} are not written out")
    if any(not isinstance(n, int) for v in values for n in v.shape):
        return Unsupported(f"{kind}-sizes", f"a {kind} of sizes that are not known yet")
    if kind == "attention":
        if node.args and (why := _attention_refusal(node)) is not None:
            return Unsupported("attention-form", why)
        rows = values[0].shape[-2]
    else:
        rows = _rows(node)
    most = MOST_HALF_ROWS if all(v.dtype.itemsize == 2 for v in values if v.dtype != torch.bool) else MOST_ROWS
    if rows > most and not opted_in:
        return Unsupported(f"{kind}-rows", f"a {kind} of {rows} rows, more than {most}, is bound by arithmetic")
    return None


def _rows(node: fx.Node) -> int:
    """Rows of the smaller side: how often each element of the larger operand is used."""
    result = node.meta["val"]
    return min(result.shape[-2:], default=1) if result.dim() >= 2 else 1


def _attention_refusal(node: fx.Node) -> str | None:
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    if given.get("dropout_p", 0.0) != 0.0:
        return "attention with dropout draws random numbers of its own"
    if any(u.args[1] != 0 for u in node.users if u.users):
        return "more than the first result is read"
    query, key, value = (given[n].meta["val"] for n in ("query", "key", "value"))
    if query.dim() != 4 or query.shape[0] != key.shape[0] or query.shape[1] % key.shape[1] or key.shape[:-1] != value.shape[:-1]:
        return f"query, key and value of shapes {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
    return None
