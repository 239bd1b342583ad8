"""Hypothesis strategy for small PyTorch functions, written as the lines of Python that they are.

A function takes a few tensors of random layouts, some of them views of others, runs a chain of ops that may read anything made
before, overwrites some of what it has, inputs and views of them included, and returns some of the results. Each line is run
when it is drawn, so that shapes and dtypes are eager's own and no line raises; what nothing reads is left out at the end.

Values are tracked as *exact* while no op has rounded them: only such values go to ops that turn over at the last bit (comparisons,
roundings, argmax, conversions to integers), for the answer must not hang on how close to a tie a sum came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 31)
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (torch.float32, torch.float32, torch.float32, *FLOATS[1:], *INTS, torch.bool)
LAYOUTS = ("", "", "transposed", "expanded", "sliced", "offset", "channels_last")
MOST_ELEMENTS = 5000


@dataclass(frozen=True)
class Var:
    name: str
    value: torch.Tensor = field(repr=False, compare=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def floating(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def boolean(self) -> bool:
        return self.dtype == torch.bool


@dataclass(frozen=True)
class Program:
    """``inputs``: statements that make the arguments, each named; ``lines``: statements; ``results``: what is returned."""

    inputs: tuple[str, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]

    def text(self) -> str:
        """Lines to paste: they define ``f`` and ``inputs()``, and show what eager and what the compiled function give."""
        names = ", ".join(line.partition(" = ")[0] for line in self.inputs)
        body = "".join(f"    {line}\n" for line in self.lines)
        made = "".join(f"    {line}\n" for line in self.inputs)
        return (
            f"import torch\n\ndef f({names}):\n{body}    return ({', '.join(self.results)},)\n\n"
            f"def inputs():\n    g = torch.Generator().manual_seed(0)\n{made}    return [{names}]\n\n"
            'if __name__ == "__main__":\n    x, y = inputs(), inputs()\n    print(f(*x), x)\n'
            '    print(torch.compile(f, backend="helion", options={"regions": "all"})(*y), y)\n'
        )

    def load(self) -> tuple[Any, Any]:
        """(f, inputs) of the text."""
        names: dict[str, Any] = {"__name__": "pasted"}
        exec(self.text(), names)
        return names["f"], names["inputs"]

    def __repr__(self) -> str:
        return self.text()


def _random_values(draw: st.DrawFn, size: tuple[int, ...], dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return f"torch.randint(0, 2, {size}, generator=g).bool()"
    special = draw(st.integers(0, 4)) == 0
    if dtype.is_floating_point:
        made = f"torch.randn({size}, generator=g).to({dtype})"
        odd = f"[float('nan'), float('inf'), -float('inf'), -0.0, {torch.finfo(dtype).tiny / 4}]"
    else:
        low = 0 if dtype == torch.uint8 else -9
        made = f"torch.randint({low}, 10, {size}, generator=g, dtype={dtype})"
        odd = f"[{torch.iinfo(dtype).min}, {torch.iinfo(dtype).max}, 0, -1, 1]".replace("-1,", "-1," if low else "3,")
    if not special:
        return made
    some = f"torch.tensor({odd}, dtype={dtype})[torch.randint(0, 5, {size}, generator=g)]"
    return f"torch.where(torch.rand({size}, generator=g) < 0.8, {made}, {some})"


def input_text(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype) -> str:
    """An expression that makes a tensor of ``shape`` in some layout, from the generator ``g``."""
    layout = draw(st.sampled_from(LAYOUTS))
    if layout == "channels_last" and len(shape) == 4:
        return f"{_random_values(draw, shape, dtype)}.to(memory_format=torch.channels_last)"
    if not shape or layout in ("", "channels_last"):
        return _random_values(draw, shape, dtype)
    size = list(shape)
    if layout == "transposed":
        size[0], size[-1] = size[-1], size[0]
        return f"{_random_values(draw, tuple(size), dtype)}.transpose(0, -1)"
    if layout == "expanded":
        size[draw(st.integers(0, len(size) - 1))] = 1
        return f"{_random_values(draw, tuple(size), dtype)}.expand({shape})"
    size[-1] = 2 * size[-1] + 1 if layout == "sliced" else size[-1] + 1
    return f"{_random_values(draw, tuple(size), dtype)}[..., 1::{2 if layout == 'sliced' else 1}]"


def _storage(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


@dataclass
class Writer:
    """A program in the making: ``names`` holds the values of what has been written so far."""

    draw: st.DrawFn
    vars: list[Var] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=lambda: {"torch": torch, "g": torch.Generator().manual_seed(0)})
    rounded: set[int] = field(default_factory=set)

    def exact(self, v: Var) -> bool:
        return not v.floating or _storage(v.value) not in self.rounded

    def new_input(self, shape: tuple[int, ...], dtype: torch.dtype, text: str = "") -> Var:
        """One more argument, of random values unless ``text`` says which."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(f"{name} = {text or input_text(self.draw, shape, dtype)}")
        exec(self.inputs[-1], self.names)
        self.vars.append(Var(name, self.names[name]))
        return self.vars[-1]

    def pick(self, *, floating: bool | None = None, ranked: bool = False, exact: bool = False) -> Var:
        """One of the latest values that fit, or a new input."""
        fits = [v for v in self.vars if floating in (None, v.floating) and (v.shape or not ranked) and (self.exact(v) or not exact)]
        if not fits:
            return self.new_input((self.draw(st.sampled_from(EXTENTS)), 4), torch.int64 if floating is False else torch.float32)
        return fits[-1 - min(self.draw(st.integers(0, 4)), len(fits) - 1)]

    def let(self, text: str, *sources: Var, rounds: bool = True) -> bool:
        """Another line, or two for a pair; False where eager refuses it or it would be large."""
        try:
            value = eval(text, dict(self.names))
        except (RuntimeError, IndexError, TypeError):
            return False
        values = value if isinstance(value, tuple) else (value,)
        if any(v.numel() > MOST_ELEMENTS or v.dtype.is_complex for v in values):
            return False
        if not values:
            return False
        made = [f"v{sum(v.name.startswith('v') for v in self.vars) + k}" for k in range(len(values))]
        self.lines.append(f"{', '.join(made)}{',' * (isinstance(value, tuple) and len(made) == 1)} = {text}")
        for name, v in zip(made, values):
            self.names[name] = v
            self.vars.append(Var(name, v))
            if rounds or not all(self.exact(s) for s in sources):
                self.rounded.add(_storage(v))
        return True

    def update(self, text: str, target: Var, *sources: Var, rounds: bool = True) -> bool:
        """A statement that overwrites what ``target`` lives in; False where eager refuses it."""
        try:
            exec(text, dict(self.names))
        except (RuntimeError, IndexError, TypeError):
            return False
        self.lines.append(text)
        if rounds or not all(self.exact(s) for s in sources):
            self.rounded.add(_storage(target.value))
        return True

    def partner(self, v: Var, *, exact: bool = False) -> Var:
        """Something that broadcasts with ``v`` to its shape."""
        fits = [w for w in self.vars if broadcasts(w.shape, v.shape) and (self.exact(w) or not exact)]
        if self.draw(st.integers(0, 2)) and fits:
            return self.draw(st.sampled_from(fits))
        shape = tuple(n if self.draw(st.booleans()) else 1 for n in v.shape)
        return self.new_input(shape, self.draw(st.sampled_from(DTYPES)))

    def program(self, results: list[str]) -> Program:
        """What was written, without what neither the results nor any update need."""
        needed = set(results)
        kept: list[str] = []
        for line in reversed(self.lines):
            made, is_let = re.findall(r"v\d+", line.partition(" = ")[0]), bool(re.match(r"v\d+(, v\d+)*,? = ", line))
            if not is_let or needed & set(made):
                kept.append(line)
                needed |= set(re.findall(r"\b[vx]\d+\b", line))
        inputs: list[str] = []
        for line in reversed(self.inputs):
            if line.partition(" = ")[0] in needed:
                inputs.append(line)
                needed |= set(re.findall(r"\bx\d+\b", line))
        return Program(tuple(reversed(inputs)), tuple(reversed(kept)), tuple(results))


def broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    tail = large[len(large) - len(small) :] if len(small) <= len(large) else None
    return tail is not None and all(a in (1, b) for a, b in zip(small, tail))


def overlaps(t: torch.Tensor) -> bool:
    """Whether two elements of ``t`` share memory: nobody promises what writing to such a tensor does."""
    places = torch.arange(t.untyped_storage().nbytes() // t.element_size()).as_strided(t.shape, t.stride(), t.storage_offset())
    return places.unique().numel() < t.numel()
