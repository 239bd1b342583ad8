"""Hypothesis strategy for small PyTorch functions, written as the lines of Python that they are.

A function takes a few tensors of random layouts, runs a chain of ops that may read anything made before, overwrites
some of its inputs perhaps, and returns some of the results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16)
DTYPES = (torch.float32, torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool)
LAYOUTS = ("", "", "transposed", "expanded", "sliced", "special")


@dataclass(frozen=True)
class Var:
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def floating(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def boolean(self) -> bool:
        return self.dtype == torch.bool


@dataclass(frozen=True)
class Program:
    """``inputs``: one Python expression each; ``lines``: statements; ``results``: what is returned."""

    inputs: tuple[str, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]

    def text(self) -> str:
        """Lines to paste: they define ``f`` and ``inputs()``."""
        names = ", ".join(f"x{k}" for k in range(len(self.inputs)))
        body = "".join(f"    {line}\n" for line in self.lines)
        made = "".join(f"        {e},\n" for e in self.inputs)
        return (
            f"import torch\n\ndef f({names}):\n{body}    return ({', '.join(self.results)},)\n\n"
            f"def inputs():\n    g = torch.Generator().manual_seed(0)\n    return [\n{made}    ]\n"
        )

    def load(self) -> tuple[Any, Any]:
        """(f, inputs) of the text."""
        names: dict[str, Any] = {}
        exec(self.text(), names)
        return names["f"], names["inputs"]

    def __repr__(self) -> str:
        return self.text()


def _input(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[str, bool]:
    """An expression that makes a tensor, and whether its elements may be overwritten one by one."""
    layout = draw(st.sampled_from(LAYOUTS))
    size = list(shape)
    if layout == "transposed" and len(size) > 1:
        size[0], size[-1] = size[-1], size[0]
    if layout == "expanded" and size:
        size[0] = 1
    if layout == "sliced" and size:
        size[-1] = 2 * size[-1] + 1
    if dtype == torch.bool:
        made = f"torch.randint(0, 2, {tuple(size)}, generator=g).bool()"
    elif dtype.is_floating_point:
        made = f"torch.randn({tuple(size)}, generator=g).to({dtype})"
    else:
        made = f"torch.randint(-9, 10, {tuple(size)}, generator=g, dtype={dtype})"
    if layout == "transposed" and len(size) > 1:
        made += ".transpose(0, -1)"
    if layout == "expanded" and size:
        made += f".expand{shape}"
    if layout == "sliced" and size:
        made += "[..., 1::2]"
    if layout == "special" and dtype.is_floating_point and size:
        size_ = tuple(size)
        values = f"torch.tensor([float('nan'), float('inf'), -float('inf'), -0.0], dtype={dtype})"
        some = f"{values}[torch.randint(0, 4, {size_}, generator=g)]"
        made = f"torch.where(torch.rand({size_}, generator=g) < 0.9, {made}, {some})"
    return made, layout != "expanded"


@dataclass
class _Writer:
    draw: st.DrawFn
    vars: list[Var] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    writable: list[Var] = field(default_factory=list)

    def new_input(self, shape: tuple[int, ...], dtype: torch.dtype) -> Var:
        text, writable = _input(self.draw, shape, dtype)
        v = Var(f"x{len(self.inputs)}", shape, dtype)
        self.inputs.append(text)
        self.vars.append(v)
        if writable:
            self.writable.append(v)
        return v

    def pick(self, *, floating: bool | None = None, ranked: bool = False) -> Var:
        fits = [v for v in self.vars if floating in (None, v.floating) and (v.shape or not ranked)]
        if not fits:
            return self.new_input((self.draw(st.sampled_from(EXTENTS)), 4), torch.float32 if floating else torch.int64)
        return fits[-1 - min(self.draw(st.integers(0, 4)), len(fits) - 1)]

    def let(self, text: str, like: Var) -> None:
        """Another line; its shape and dtype are those that eager gives for tensors like the ones it names."""
        made = {v.name: torch.zeros(v.shape, dtype=v.dtype) for v in self.vars}
        value = eval(text, {"torch": torch}, made)
        v = Var(f"v{len(self.lines)}", tuple(value.shape), value.dtype)
        self.lines.append(f"{v.name} = {text}")
        self.vars.append(v)

    def partner(self, v: Var) -> Var:
        """Something that broadcasts with ``v`` to its shape."""
        fits = [w for w in self.vars if _broadcasts(w.shape, v.shape)]
        if self.draw(st.integers(0, 2)) and fits:
            return self.draw(st.sampled_from(fits))
        shape = tuple(n if self.draw(st.booleans()) else 1 for n in v.shape)
        return self.new_input(shape, self.draw(st.sampled_from(DTYPES)))


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    tail = large[len(large) - len(small) :] if len(small) <= len(large) else None
    return tail is not None and all(a in (1, b) for a, b in zip(small, tail))


def _unary(w: _Writer) -> None:
    v = w.pick()
    if v.floating:
        ops = ["torch.tanh({0})", "torch.sigmoid({0})", "torch.relu({0})", "-{0}", "torch.abs({0})", "torch.sin({0})",
               "{0}.square()", "torch.exp(-{0}.abs())", "torch.nn.functional.gelu({0})", "torch.sign({0})", "torch.isnan({0})",
               "{0}.clamp(-1, 1)"]  # fmt: skip
    elif v.boolean:
        ops = ["~{0}", "torch.logical_not({0})"]
    else:
        ops = ["-{0}", "{0}.abs()", "~{0}", "{0} // 3", "{0} % 5", "torch.sign({0})", "{0}.clamp(-4, 4)", "{0} / 4"]
    w.let(w.draw(st.sampled_from(ops)).format(v.name), v)


def _binary(w: _Writer) -> None:
    v = w.pick()
    u = w.partner(v)
    ops = ["{0} == {1}", "{0} != {1}", "{0} < {1}", "{0} >= {1}", "torch.logical_and({0}, {1})", "torch.where({1} != 0, {0}, 2)",
           "{0} * {1}", "torch.maximum({0}, {1})", "torch.minimum({0}, {1})"]  # fmt: skip
    if not (v.boolean and u.boolean):
        ops += ["{0} + {1}", "{0} - {1}"] if not v.boolean and not u.boolean else ["{0} + {1}"]
    w.let(w.draw(st.sampled_from(ops)).format(v.name, u.name), v)


def _view(w: _Writer) -> None:
    v = w.pick(ranked=True)
    n = v.shape[-1]
    ops = ["{0}.transpose(0, -1)", "{0}.reshape(-1)", "{0}.unsqueeze(0)", "{0}[..., :1]", "{0}[..., 1:]", "{0}.flip(-1)",
           "torch.roll({0}, 1, -1)", "{0}[..., ::2]", "{0}[0]", "torch.nn.functional.pad({0}, (1, 2))", "{0}.contiguous()"]  # fmt: skip
    if len(v.shape) > 3:
        ops.remove("{0}.unsqueeze(0)")
    if n == 1:
        ops.remove("{0}[..., 1:]")
    if v.boolean:
        ops.remove("torch.nn.functional.pad({0}, (1, 2))")
    w.let(w.draw(st.sampled_from(ops)).format(v.name), v)


def _reduce(w: _Writer) -> None:
    v = w.pick(ranked=True)
    d = w.draw(st.integers(-len(v.shape), len(v.shape) - 1))
    keep = w.draw(st.booleans())
    ops = [f"{{0}}.amax({d}, keepdim={keep})", f"{{0}}.any({d}, keepdim={keep})"]
    if not v.boolean:
        ops += [f"{{0}}.sum({d}, keepdim={keep})", "{0}.sum()", f"{{0}}.amin({d})", f"{{0}}.argmax({d})", f"{{0}}.cumsum({d})"]
    if v.floating:
        ops += [f"torch.softmax({{0}}, {d})", f"{{0}}.mean({d}, keepdim={keep})", f"torch.logsumexp({{0}}, {d})",
                f"{{0}}.var({d}, correction=0)", "torch.nn.functional.layer_norm({0}, {0}.shape[-1:])"]  # fmt: skip
    w.let(w.draw(st.sampled_from(ops)).format(v.name), v)


def _gather(w: _Writer) -> None:
    v = w.pick(ranked=True)
    n = v.shape[0]
    size = w.draw(st.sampled_from(EXTENTS))
    index = Var(f"x{len(w.inputs)}", (size,), torch.int64)
    w.inputs.append(f"torch.randint({-n}, {n}, ({size},), generator=g)")
    w.vars.append(index)
    w.let(w.draw(st.sampled_from([f"{v.name}[{index.name}]", f"{v.name}.index_select(0, {index.name} % {n})"])), v)


def _cat(w: _Writer) -> None:
    v = w.pick(ranked=True)
    u = w.draw(st.sampled_from([x for x in w.vars if x.shape[1:] == v.shape[1:] and x.shape]))
    ops = ["torch.cat([{0}, {1}])", "torch.cat([{1}, {0}, {0}])"]
    if u.shape == v.shape and len(v.shape) < 4:
        ops += ["torch.stack([{0}, {1}], -1)"]
    w.let(w.draw(st.sampled_from(ops)).format(v.name, u.name), v)


def _cast(w: _Writer) -> None:
    v = w.pick()
    # Where a float has no integer of its value, the result of the cast is not defined: only what is small is cast.
    to = w.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.bool]))
    text = f"{v.name}.nan_to_num(0, 9, -9).clamp(-9, 9).round()" if v.floating and not to.is_floating_point and to != torch.bool else v.name
    w.let(f"{text}.to({to})", v)


def _update(w: _Writer) -> None:
    targets = [v for v in w.writable if not v.boolean]
    if not targets:
        return _binary(w)
    t = w.draw(st.sampled_from(targets))
    ops = ["{0}.mul_(2)", "{0}.add_(1)", "{0}.zero_()"] + (["{0}[..., 0] = 3"] if t.shape else [])
    fits = [v for v in w.vars if _broadcasts(v.shape, t.shape) and torch.can_cast(v.dtype, t.dtype) and v != t]
    ops += [f"{{0}}.add_({v.name})" for v in fits[-2:]] + [f"{{0}}.copy_({v.name})" for v in fits[-1:]]
    w.lines.append(w.draw(st.sampled_from(ops)).format(t.name))
    return None


@st.composite
def programs(draw: st.DrawFn, *, most: int = 12) -> Program:
    """Functions of 1 to ``most`` ops."""
    w = _Writer(draw)
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.sampled_from(EXTENTS if rank < 3 else EXTENTS[:6])) for _ in range(rank))
    w.new_input(shape, draw(st.sampled_from(DTYPES)))
    kinds = [_unary, _unary, _binary, _binary, _view, _reduce, _gather, _cat, _cast, _update]
    for _ in range(draw(st.integers(1, most))):
        if max(torch.Size(v.shape).numel() for v in w.vars) > 20000:
            break
        draw(st.sampled_from(kinds))(w)
    made = [v.name for v in w.vars if v.name.startswith("v")]
    if not made:
        w.let(f"{w.vars[0].name} * 1", w.vars[0])
        made = [w.vars[-1].name]
    count = draw(st.integers(1, min(3, len(made))))
    return Program(tuple(w.inputs), tuple(w.lines), tuple(dict.fromkeys(made[-count:])))
