"""Kernels generated from `emit`: every case of one operand signature in one kernel, each with an output of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from helion_inductor.codegen.expressions import SUPPORTED, constant, emit
from helion_inductor.ir.ops import OPS
from tests.ops.op_cases import LOW, Case, accepted, degrees, name_of

HEADER = """import triton
import triton.language as tl

from helion_inductor.runtime import device_lib as dl
"""
POINTERS = {
    torch.bool: "*i1",
    torch.int8: "*i8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
    torch.uint16: "*u16",
    torch.uint32: "*u32",
    torch.uint64: "*u64",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.float8_e4m3fn: "*fp8e4nv",
}
CONSTANTS: tuple[tuple[bool | int | float, torch.dtype], ...] = (
    *((v, d) for d in (torch.float32, torch.float64) for v in (0.0, -0.0, 0.1, 1e-42, 1e300, -torch.inf, torch.nan, 3)),
    *((v, d) for d in (torch.int8, torch.uint8, torch.int32, torch.uint64) for v in (0, -1, 127, 2**31, 2**63, 2.0)),
    *((v, torch.int64) for v in (2**63 - 1, -(2**63), 2**31, -(2**31) - 1, 5)),
    (True, torch.bool),
    (False, torch.bool),
)


@dataclass(frozen=True)
class Kernel:
    """A kernel's name, the dtypes of its pointer arguments (inputs, then outputs) and the cases it computes."""

    name: str
    inputs: tuple[torch.dtype, ...]
    outputs: tuple[torch.dtype, ...]
    cases: tuple[Case, ...]

    def signature(self) -> dict[str, str]:
        names = [*(f"in{k}" for k in range(len(self.inputs))), *(f"out{k}" for k in range(len(self.outputs)))]
        return {n: POINTERS[d] for n, d in zip(names, (*self.inputs, *self.outputs))}


def kernels_by_signature() -> list[Kernel]:
    """All supported cases; no kernel has more than 40, so that each compiles in seconds, nor cases whose operands another
    one could step through for hours."""
    groups: dict[tuple[tuple[torch.dtype, ...], str], list[Case]] = {}
    for op in OPS:
        for case in accepted(op) if op in SUPPORTED else ():
            limited = degrees(case)
            groups.setdefault((case.dtypes, "" if limited is None else f"degree{limited[0]}"), []).append(case)
    kernels = []
    for (dtypes, kind), cases in groups.items():
        for part, first in enumerate(range(0, len(cases), 40)):
            some = tuple(cases[first : first + 40])
            name = "_".join(["ops", *map(name_of, dtypes), kind + str(part)])
            kernels.append(Kernel(name, dtypes, tuple(c.result for c in some), some))
    return kernels


def source(kernel: Kernel) -> str:
    """The kernel's text: element i of every output is the case applied to element i of the inputs."""
    lines = [
        "@triton.jit",
        f"def {kernel.name}({', '.join(kernel.signature())}, BLOCK: tl.constexpr):",
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    ]
    for k, dtype in enumerate(kernel.inputs):
        to_bool = ".to(tl.int1)" if dtype == torch.bool else ""
        lines.append(f"    x{k} = tl.load(in{k} + at){to_bool}")
    for k, case in enumerate(kernel.cases):
        text = emit(case.op, [f"x{j}" for j in range(len(case.dtypes))], case.dtypes, case.result, case.attrs)
        lines.append(f"    tl.store(out{k} + at, {text})")
    return "\n".join(lines) + "\n"


def constants_kernel() -> tuple[Kernel, str]:
    """A kernel that stores each constant over its output, and its text."""
    kernel = Kernel("constants", (), tuple(d for _, d in CONSTANTS), ())
    lines = ["@triton.jit", f"def constants({', '.join(kernel.signature())}, BLOCK: tl.constexpr):"]
    lines.append("    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
    for k, (value, dtype) in enumerate(CONSTANTS):
        lines += [f"    c{k} = {constant(value, dtype)}", f"    tl.store(out{k} + at, c{k})"]
    return kernel, "\n".join(lines) + "\n"


_SMALL = (torch.int8, torch.uint8, torch.int16)
_REDUCTIONS = ("sum", "prod", "max", "min", "any", "xor_sum")
_PAIRED = ("argmax", "argmin", "argmax_pair", "argmin_pair", "cummax", "cummin")
_SCANS = ("cumsum", "cumprod", "logcumsumexp")
AXIS_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint32, torch.bool, *_SMALL)


def axis_functions(dtype: torch.dtype) -> list[str]:
    """The reductions and scans that take `dtype`."""
    floats, bools = dtype.is_floating_point, dtype == torch.bool
    names = [n for n in _REDUCTIONS if not (floats and n == "xor_sum") and not (bools and n in ("sum", "prod"))]
    return [*names, *_PAIRED, *(n for n in _SCANS if not bools and (floats or n != "logcumsumexp"))]


def axis_kernel(dtype: torch.dtype, axis: int) -> tuple[Kernel, str]:
    """Every reduction and scan of a [ROWS, COLUMNS] block along `axis`, with int64 indices; pairs have two outputs."""
    outputs: list[torch.dtype] = []
    body = []
    for name in axis_functions(dtype):
        argument = "x, index" if name in _PAIRED else "x"
        scan = name.startswith(("cum", "log"))
        place = "at" if scan else ("tl.arange(0, COLUMNS)" if axis == 0 else "tl.arange(0, ROWS)")
        value = torch.bool if name == "any" else dtype
        kinds = [torch.int64] if name in ("argmax", "argmin") else [value, torch.int64] if name in _PAIRED else [value]
        targets = [f"r{len(outputs) + k}" for k in range(len(kinds))]
        body.append(f"    {', '.join(targets)} = dl.{name}({argument}, {axis})")
        body += [f"    tl.store(out{len(outputs) + k} + {place}, {t})" for k, t in enumerate(targets)]
        outputs += kinds
    kernel = Kernel(f"axis{axis}_{name_of(dtype)}", (dtype,), tuple(outputs), ())
    parameters = [*kernel.signature(), "ROWS: tl.constexpr", "COLUMNS: tl.constexpr"]
    lines = ["@triton.jit", f"def {kernel.name}({', '.join(parameters)}):"]
    lines.append("    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]")
    lines.append(f"    x = tl.load(in0 + at){'.to(tl.int1)' if dtype == torch.bool else ''}")
    lines.append(f"    index = tl.arange(0, {'ROWS' if axis == 0 else 'COLUMNS'}).to(tl.int64)")
    lines.append(f"    index = index[{':, None' if axis == 0 else 'None, :'}]")
    return kernel, "\n".join([*lines, *body]) + "\n"


def memory_kernel(low: torch.dtype) -> tuple[Kernel, str]:
    """f32 to a shorter dtype of memory and back."""
    from helion_inductor.codegen.expressions import from_memory, to_memory

    name = f"memory_{name_of(low)}"
    kernel = Kernel(name, (torch.float32, low), (low, torch.float32), ())
    text = f"""@triton.jit
def {name}(in0, in1, out0, out1, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x0 = tl.load(in0 + at)
    x1 = tl.load(in1 + at)
    tl.store(out0 + at, {to_memory("x0", low)})
    tl.store(out1 + at, {from_memory("x1", low)})
"""
    return kernel, text


HAND_WRITTEN = """@triton.jit
def index_arithmetic(in0, out0, out1, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(in0 + at)
    scalar = dl.floor_div(tl.program_id(0) - 9, 4)
    tl.store(out0 + at, dl.floor_div(at - 7, 4) * 100 + dl.floor_mod(at - 7, 4) + scalar)
    tl.store(out1 + at, dl.floor_div(x, at + 1) + dl.floor_mod(at, 3))


@triton.jit
def random_numbers(in0, in1, out0, out1, out2, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    seed = tl.load(in0)
    offset = tl.load(in1 + at)
    tl.store(out0 + at, tl.rand(seed, offset.to(tl.uint32)))
    tl.store(out1 + at, tl.randn(seed, offset.to(tl.uint32)))
    r0, r1, _, _ = tl.randint4x(seed, offset.to(tl.uint32))
    tl.store(out2 + at, (r0.to(tl.uint64) | (r1.to(tl.uint64) << 32)).to(tl.int64, bitcast=True))


@triton.jit
def combined(in0, in1, out0, out1, out2, out3, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(in0 + at)
    b = tl.load(in1 + at)
    value, index = dl.argmax_combine(a, at, b, at + BLOCK)
    tl.store(out0 + at, value)
    tl.store(out1 + at, index)
    value, index = dl.cummin_combine(a, at, b, at + BLOCK)
    tl.store(out2 + at, value)
    several = dl.max_combine(a, b) + dl.sum_combine(a, b) + dl.prod_combine(a, b)
    tl.store(out3 + at, several + dl.logcumsumexp_combine(a, b))


@triton.jit
def asserted(in0, out0, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(in0 + at)
    dl.device_assert(x >= 0, "negative input")
    tl.store(out0 + at, x)
"""
_F32, _I64 = torch.float32, torch.int64
HAND_WRITTEN_KERNELS = (
    Kernel("index_arithmetic", (_I64,), (torch.int32, _I64), ()),
    Kernel("random_numbers", (_I64, torch.int32), (_F32, _F32, _I64), ()),
    Kernel("combined", (_F32, _F32), (_F32, torch.int32, _F32, _F32), ()),
    Kernel("asserted", (torch.int32,), (torch.int32,), ()),
)


def everything() -> tuple[list[tuple[Kernel, dict[str, int]]], str]:
    """Every kernel of these tests with its constexpr arguments, and the text of the module that holds them."""
    block = {"BLOCK": 128}
    kernels: list[tuple[Kernel, dict[str, int]]] = []
    texts = [HEADER, HAND_WRITTEN]
    for kernel in kernels_by_signature():
        kernels.append((kernel, block))
        texts.append(source(kernel))
    for kernel, text in (constants_kernel(), *map(memory_kernel, LOW)):
        kernels.append((kernel, block))
        texts.append(text)
    for kernel, text in (axis_kernel(d, axis) for d in AXIS_DTYPES for axis in (0, 1)):
        kernels.append((kernel, {"ROWS": 4, "COLUMNS": 64}))
        texts.append(text)
    kernels += [(kernel, block) for kernel in HAND_WRITTEN_KERNELS]
    return kernels, "\n\n".join(texts)


def load(text: str, folder: Path, name: str) -> ModuleType:
    """Write a module's text to `folder` and import it; kernels need a file that their source is read from."""
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def outputs(dtypes: Iterable[torch.dtype], count: int, device: str) -> list[torch.Tensor]:
    return [torch.zeros(count, dtype=d, device=device) for d in dtypes]
