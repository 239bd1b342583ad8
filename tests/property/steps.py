"""The kinds of lines that random functions are made of, and the strategy that puts functions together."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from tests.property.programs import DTYPES, EXTENTS, FLOATS, INTS, Program, Writer, broadcasts, overlaps

F = "torch.nn.functional"
_SMOOTH = ["torch.tanh({0})", "torch.sigmoid({0})", "torch.sin({0})", "torch.cos({0})", "{0}.square()", "torch.exp(-{0}.abs())",
           f"{F}.gelu({{0}})", f"{F}.silu({{0}})", "{0}.abs().sqrt()", "torch.rsqrt({0}.abs() + 0.5)", "torch.log1p({0}.abs())",
           "torch.erf({0})", "torch.expm1(-{0}.abs())", "torch.atan({0})", f"{F}.softplus({{0}})", "{0} / 3", "{0} * 1.5", "1 - {0}",
           "{0} + 0.25", "{0}.pow(3)", "{0}.abs().pow(0.5)", "torch.reciprocal({0}.abs() + 1)", f"{F}.elu({{0}})"]  # fmt: skip
_EXACT = ["torch.relu({0})", "-{0}", "torch.abs({0})", "{0}.clamp(-1, 1)", "{0}.clone()", "torch.nan_to_num({0}, 0.5, 2, -2)",
          "{0}.clamp(min=0)", f"{F}.hardtanh({{0}})", "{0} * 2", "{0}.detach()", "torch.nn.functional.relu6({0})"]  # fmt: skip
_TURNING = ["torch.sign({0})", "torch.isnan({0})", "torch.floor({0})", "torch.ceil({0})", "torch.round({0})", "torch.trunc({0})",
            "torch.signbit({0})", "torch.isfinite({0})", "torch.isinf({0})", "torch.logical_not({0})", "{0} > 0", "{0} == 0",
            "{0} // 2", "{0} % 3", "torch.fmod({0}, 3)", "torch.heaviside({0}, {0}.new_ones(()))", "torch.frac({0})"]  # fmt: skip
_BOOLS = ["~{0}", "torch.logical_not({0})", "{0}.float()", "{0} * 3", "{0} + 0.5", "{0}.to(torch.int8)"]
_WHOLE = ["-{0}", "{0}.abs()", "~{0}", "{0} // 3", "{0} % 5", "torch.sign({0})", "{0}.clamp(-4, 4)", "{0} & 6", "{0} | 9", "{0} ^ 5",
          "{0} * 3", "{0} + 2147483647", "{0} << 2", "{0} >> 1", "{0} == 3", "{0}.bitwise_not()", "torch.remainder({0}, -3)",
          "torch.div({0}, 3, rounding_mode='trunc')", "torch.fmod({0}, 3)", "{0}.square()", "{0} * 1"]  # fmt: skip
_WHOLE_TO_FLOAT = ["{0} / 4", "{0} * 0.5", "torch.sqrt({0}.abs())", "torch.sigmoid({0})", "{0}.float().tanh()"]
_CHOOSING = ["torch.maximum({0}, {1})", "torch.minimum({0}, {1})", "torch.where({1} != 0, {0}, 2)", "torch.fmax({0}, {1})"]
_COMPARING = ["{0} == {1}", "{0} != {1}", "{0} < {1}", "{0} >= {1}", "torch.logical_and({0}, {1})", "torch.logical_xor({0}, {1})",
              "torch.where({0} > {1}, {0}, {1})", "{0}.masked_fill({1} > 0, -1)", "torch.isclose({0}, {1})"]  # fmt: skip
_COMBINING = ["{0} + {1}", "{0} - {1}", "{0} * {1}", "torch.add({0}, {1}, alpha=3)", "{1} - {0} * 2", "torch.rsub({0}, {1})",
              "torch.lerp({0}, {1}, 0.25)", "torch.addcmul({0}, {1}, {0})", "torch.atan2({0}, {1})", "{0} / ({1}.abs() + 1)",
              "torch.hypot({0}, {1})", "torch.copysign({0}, {1})"]  # fmt: skip
_VIEWS = ["{0}.transpose(0, -1)", "{0}.reshape(-1)", "{0}.unsqueeze(0)", "{0}[..., :1]", "{0}[..., 1:]", "{0}.flip(-1)", "{0}.mT",
          "torch.roll({0}, 1, -1)", "{0}[..., ::2]", "{0}[0]", f"{F}.pad({{0}}, (1, 2))", "{0}.contiguous()", "{0}[..., -1]",
          "{0}.squeeze()", "{0}.unsqueeze(-1)", "{0}.view(-1)", "{0}[1:]", "{0}[-2:]", "{0}.movedim(0, -1)", "{0}.tril()", "{0}.triu(1)",
          "{0}[..., :0]", "{0}.expand(2, *{0}.shape)", "{0}.repeat(2, *[1] * ({0}.dim() - 1))", "{0}.diagonal()",
          f"{F}.pad({{0}}, (-1, 1))",
          "{0}.unfold(-1, 2, 1)", "{0}.flatten()", "{0}.narrow(0, 0, 1)", "{0}.as_strided((2,), (1,))"]  # fmt: skip
_CASTS = (*FLOATS, *INTS, torch.bool)


def one(w: Writer, ops: list[str]) -> str:
    return w.draw(st.sampled_from(ops))


def unary(w: Writer) -> None:
    v = w.pick()
    if v.boolean:
        w.let(one(w, _BOOLS).format(v.name), v, rounds=False)
    elif not v.floating:
        text = one(w, _WHOLE + _WHOLE_TO_FLOAT)
        w.let(text.format(v.name), v, rounds=text in _WHOLE_TO_FLOAT)
    else:
        text = one(w, _SMOOTH + _EXACT + (_TURNING if w.exact(v) else []))
        w.let(text.format(v.name), v, rounds=text not in _EXACT + _TURNING)


def binary(w: Writer) -> None:
    v = w.pick()
    u = w.partner(v)
    both = w.exact(v) and w.exact(u)
    text = one(w, _COMBINING + (_CHOOSING if w.exact(u) or v.floating else []) + (_COMPARING if both else []))
    if text in _CHOOSING and not both:
        text = text.replace("{1} != 0", "{1} == {1}")
    mixed = v.dtype != u.dtype
    w.let(text.format(v.name, u.name), v, u, rounds=mixed or text in _COMBINING)


def view(w: Writer) -> None:
    v = w.pick(ranked=True)
    if len(v.shape) < 5:
        w.let(one(w, _VIEWS).format(v.name), v, rounds=False)


def reduce(w: Writer) -> None:
    v = w.pick(ranked=True)
    d, keep = w.draw(st.integers(-len(v.shape), len(v.shape) - 1)), w.draw(st.booleans())
    ops = [f"{{0}}.amax({d}, keepdim={keep})", f"{{0}}.amin({d}, keepdim={keep})", "torch.aminmax({0})", "{0}.max()"]
    rounding = []
    if w.exact(v):
        ops += [f"{{0}}.any({d}, keepdim={keep})", f"{{0}}.all({d})", f"{{0}}.argmax({d})", f"{{0}}.argmin({d}, keepdim={keep})",
                f"{{0}}.max({d})", "(({0} != 0).sum(), {0}.any())", f"{{0}}.cummax({d})", f"{{0}}.count_nonzero({d})"]  # fmt: skip
    if not v.boolean:
        rounding += [f"{{0}}.sum({d}, keepdim={keep})", "{0}.sum()", f"{{0}}.cumsum({d})", f"{{0}}.prod({d})", f"{{0}}.cumprod({d})"]
    if v.floating:
        rounding += [f"torch.softmax({{0}}, {d})", f"{{0}}.mean({d}, keepdim={keep})", f"torch.logsumexp({{0}}, {d})",
                     f"{{0}}.var({d}, correction=0)", f"{F}.layer_norm({{0}}, {{0}}.shape[-1:], eps=0.1)",
                     f"torch.var_mean({{0}}.nan_to_num(0, 1, -1), {d})",
                     f"{{0}}.norm(dim={d})", f"torch.log_softmax({{0}}, {d})", "{0}.std()", f"{{0}}.logcumsumexp({d})",
                     f"{F}.rms_norm({{0}}, {{0}}.shape[-1:], eps=0.1)", f"{{0}}.nansum({d})", f"{F}.normalize({{0}}, dim={d})"]  # fmt: skip
    text = one(w, ops + rounding)
    w.let(text.format(v.name), v, rounds=text in rounding)


def gather(w: Writer) -> None:
    v = w.pick(ranked=True)
    n, size = v.shape[0], w.draw(st.sampled_from(EXTENTS))
    if n == 0:
        return
    i = w.new_input((), torch.int64, f"torch.randint({-n}, {n}, ({size},), generator=g)")
    ops = ["{0}[{1}]", "{0}.index_select(0, {1} % {2})", "{0}.take({1} % {0}.numel())", "{0}[{1}, ..., :1]",
           f"{F}.embedding({{1}} % {{2}}, {{0}})", "{0}[{1}[:, None], {1} * 0]",
           "{0}.gather(0, ({1} % {2}).view(-1, *[1] * ({0}.dim() - 1)).expand(-1, *{0}.shape[1:]))"]  # fmt: skip
    w.let(one(w, ops).format(v.name, i.name, n), v, rounds=False)


def scatter(w: Writer) -> None:
    """Additions at random places; plain stores only at places that differ, for the last of several is anyone's."""
    v = w.pick(ranked=True)
    n = v.shape[0]
    if n == 0:
        return
    i = w.new_input((), torch.int64, f"torch.randint({-n}, {n}, ({n},), generator=g)")
    p = w.new_input((), torch.int64, f"torch.randperm({n}, generator=g)")
    ops = ["{0}.index_copy(0, {2}, {0})", "{0}.index_put(({2},), {0})", "{0}.index_fill(0, {2}[:1], 3)"]
    if v.dtype.itemsize >= 4:
        # Shorter sums stay with Inductor, which is wrong where a tensor is added to itself.
        ops += ["{0}.index_add(0, {1} % {3}, {0})", "{0}.index_put(({1},), {0}, accumulate=True)",
                "{0}.scatter_add(0, ({1} % {3}).view(-1, *[1] * ({0}.dim() - 1)).expand({0}.shape), {0})"]  # fmt: skip
    w.let(one(w, ops).format(v.name, i.name, p.name, n), v)


def join(w: Writer) -> None:
    v = w.pick(ranked=True)
    u = one(w, [x for x in w.vars if x.shape[1:] == v.shape[1:] and x.shape])  # type: ignore[arg-type]
    ops = ["torch.cat([{0}, {1}])", "torch.cat([{1}, {0}, {0}])", "torch.stack([{0}, {1}], -1)", "torch.cat([{0}, {0}], -1)",
           "torch.block_diag({0}, {1})", "torch.stack([{0}, {0} + 1])"]  # fmt: skip
    w.let(one(w, ops).format(v.name, u.name), v, u)  # type: ignore[attr-defined]


def split(w: Writer) -> None:
    v = w.pick(ranked=True)
    w.let(one(w, ["{0}.chunk(2)", "{0}.split(2, -1)[:2]", "{0}.unbind()[:3]", "{0}.tensor_split(2, -1)"]).format(v.name), v, rounds=False)


def multiply(w: Writer) -> None:
    v = w.pick(floating=True, ranked=True)
    if len(v.shape) > 1:
        w.let(one(w, ["{0} @ {0}.mT", "{0}.mT @ {0}", "({0} * 0.5) @ {0}.mT + 1", f"{F}.linear({{0}}, {{0}})"]).format(v.name), v)
        return
    u = w.new_input((w.draw(st.sampled_from(EXTENTS)), v.shape[-1]), v.dtype)
    w.let(one(w, [f"{F}.linear({{0}}, {{1}})", "{1} @ {0}", "({0} * 2) @ {1}.mT", "{0}.dot({0})"]).format(v.name, u.name), v, u)


def attend(w: Writer) -> None:
    """Attention of a row, or of all, over the rows of something; written out or by its own op."""
    v = w.pick(floating=True, ranked=True)
    if len(v.shape) < 2 or v.dtype == torch.float64:
        return
    few = one(w, ["{0}[..., :1, :]", "{0}[..., -1:, :]", "{0}"]).format(v.name)
    ops = [f"{F}.scaled_dot_product_attention({{1}}, {{0}}, {{0}})", "torch.softmax({1} @ {0}.mT, -1) @ {0}",
           f"{F}.scaled_dot_product_attention({{1}}, {{0}}, {{0}} * 2, scale=0.3)"]  # fmt: skip
    w.let(one(w, ops).format(v.name, few), v)


def repeat(w: Writer) -> None:
    """A stretch of lines several times over, each on what the one before gave: the layers of a model."""
    v = w.pick(floating=True, ranked=True)
    u = w.new_input((v.shape[-1],), v.dtype)
    norm = one(w, [f"{F}.layer_norm({{0}}, {{0}}.shape[-1:], eps=0.1)", f"{F}.rms_norm({{0}}, {{0}}.shape[-1:], eps=0.1)",
                   "torch.softmax({0}, -1)", "{0} / (1 + {0}.abs().amax(-1, keepdim=True))"])  # fmt: skip
    step = one(w, ["{0} * {1} + {2}", "torch.tanh({0}) + {2}", "{0} - {0}.mean(0, keepdim=True)", "({0} @ {0}.mT) @ {0} / 8 + {2}"])
    for _ in range(w.draw(st.integers(2, 3))):
        before = v
        for text in (norm, step):
            if not w.let(text.format(v.name, u.name, before.name), v, u):
                return
            v = w.vars[-1]


def cast(w: Writer) -> None:
    v = w.pick(exact=True)
    # Where a float has no integer of its value, the result of the cast is not defined: only what is small is cast.
    to = w.draw(st.sampled_from(_CASTS))
    whole = not to.is_floating_point and to != torch.bool
    low = 0 if to == torch.uint8 else -9
    text = f"{v.name}.nan_to_num(0, 9, {low}).clamp({low}, 9).round()" if v.floating and whole else v.name
    w.let(f"{text}.to({to})", v)


def update(w: Writer) -> None:
    """Something made or given, or a part of it, is overwritten."""
    t = w.pick()
    # Before our seam: the trace forgets updates of float64 inputs of no dimensions, which it takes for numbers.
    if overlaps(t.value) or (t.dtype == torch.float64 and not t.shape):
        return
    part = one(w, ["{0}", "{0}"] + ["{0}[..., 1:]", "{0}.view(-1)[:3]", "{0}.mT", "{0}[0]", "{0}[..., ::2]"] * bool(t.shape)).format(t.name)
    ops = ["{0}.mul_(2)", "{0}.add_(1)", "{0}.zero_()", "{0}.fill_(3)", "{0}.neg_()"]
    ops += ["{0}[..., 0] = 3", "{0}[..., -1:] += 1"] * bool(t.shape) + ["{0}[{0} > 0] = 2"] * w.exact(t)
    fits = [v for v in w.vars if broadcasts(v.shape, t.shape) and torch.can_cast(v.dtype, t.dtype)]
    # What overlaps with its target is refused by eager, or copied in an order that nobody promises.
    here = t.value.untyped_storage().data_ptr()
    fits = [v for v in fits[-4:] if v.value.untyped_storage().data_ptr() != here and (v.floating == t.floating or not v.floating)]
    named = [one(w, ["{0}.add_({1})", "{0}.copy_({1})", "{0}.mul_({1})", "{0}.sub_({1}, alpha=2)"]).format("{0}", v.name) for v in fits]
    text = one(w, ops + named)
    w.update(text.format(part if "[..." not in text else t.name), t, *(v for v in fits if v.name in text))


def alias(w: Writer) -> None:
    """An argument that is a view of another argument."""
    given = [v for v in w.vars if v.name.startswith("x") and v.shape and v.value.numel()]
    if given:
        v = w.draw(st.sampled_from(given))
        # Before our seam: of two matrices with gaps between their rows AOTAutograd takes whole rows of one for none of the other's.
        gaps = len(v.shape) == 2 and v.value.stride(1) == 1 and v.value.stride(0) > v.shape[1]
        parts = ["{0}[..., :1]", "{0}.transpose(0, -1)", "{0}.detach()"] + ["{0}[1:]"] * (not gaps)
        w.new_input((), v.dtype, one(w, parts).format(v.name))


KINDS = [unary, unary, unary, binary, binary, binary, view, view, reduce, reduce, gather, scatter, join, split, multiply, attend, repeat,
         cast, update]  # fmt: skip


@st.composite
def programs(draw: st.DrawFn, *, most: int = 12, updates: bool = True, differentiable: bool = False) -> Program:
    """Functions of 1 to ``most`` ops; ``differentiable`` ones start from floats."""
    w = Writer(draw)
    rank = draw(st.integers(0, 4))
    extents = EXTENTS if rank < 3 else EXTENTS[:6]
    shape = tuple(0 if draw(st.integers(0, 40)) == 40 else draw(st.sampled_from(extents)) for _ in range(rank))
    w.new_input(shape, draw(st.sampled_from(FLOATS if differentiable else DTYPES)))
    if updates and draw(st.integers(0, 9)) == 9:
        alias(w)
    kinds = [k for k in KINDS if updates or k is not update]
    for _ in range(draw(st.integers(1, most))):
        draw(st.sampled_from(kinds + [update] * (2 * updates)))(w)
    made = [v.name for v in w.vars if v.name.startswith("v")] or [w.vars[0].name]
    count = draw(st.integers(1, min(3, len(made))))
    results = list(dict.fromkeys(made[-count:]))
    if draw(st.integers(0, 5)) == 5:
        results.append(draw(st.sampled_from([v.name for v in w.vars])))
    return w.program(results)
