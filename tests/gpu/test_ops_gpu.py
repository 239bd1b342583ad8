"""Small programs on a real device, every supported op in a region: values as eager gives them, errors as errors."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

import helion_inductor.backend  # noqa: F401  (registers the backend where the package is not installed)

pytestmark = pytest.mark.gpu

OPTIONS = {"regions": "all", "on_error": "raise"}
PID_TYPES = ("flat", "persistent_blocked", "persistent_interleaved")
Inputs = Callable[[str], tuple[Any, ...]]


@dataclass(frozen=True)
class Program:
    """``fn(*inputs(device))`` is compared with eager; a tolerance of 0 asks for equal bits."""

    fn: Callable[..., Any]
    inputs: Inputs
    tolerance: float = 1e-4
    options: dict[str, Any] = field(default_factory=dict)
    in_region: bool = True
    """Whether at least one kernel of ours is expected."""


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Inputs:
    return lambda d: tuple(torch.randn(s, device=d).to(dtype) for s in shapes)


def integers(*shapes: tuple[int, ...], low: int = -1000, high: int = 1000, dtype: torch.dtype = torch.int64) -> Inputs:
    return lambda d: tuple(torch.randint(low, high, s, device=d).to(dtype) for s in shapes)


def normalised(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)) + r


def with_nans(d: str) -> tuple[Tensor]:
    x = torch.randn(30, 300, device=d)
    x[3, 17] = x[3, 200] = x[29, 299] = float("nan")
    return (x,)


def rows_and_index(d: str) -> tuple[Tensor, Tensor]:
    return torch.randn(50, 70, device=d), torch.tensor([3, -1, 0, -50, 49, 3], device=d)


def scattered(x: Tensor, index: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    wide = index[:, None].expand(-1, x.shape[1])
    return x.scatter_add(0, wide, source), x.index_put((index,), source, accumulate=True)


def scatter_inputs(d: str) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(7, 70, device=d), torch.randint(0, 7, (200,), device=d), torch.randn(200, 70, device=d)


def misaligned(d: str) -> tuple[Tensor, Tensor]:
    x, y = (torch.randn(64 * 128 + 1, device=d)[1:].view(64, 128) for _ in range(2))
    return x, y


def int_wrap(x: Tensor) -> tuple[Tensor, ...]:
    return x.to(torch.int8), (x * x).to(torch.uint8), x.to(torch.int32) * 2_000_000_011, x.to(torch.int16) * 7


LN = ((70, 1024), (1024,), (1024,), (70, 1024))
PROGRAMS: dict[str, Program] = {
    "softmax": Program(lambda x: (x.softmax(-1), x.log_softmax(0)), normal((37, 300))),
    "softmax of one and of infinities": Program(lambda x: (x[:, :1].softmax(-1), (x * float("inf")).softmax(-1)), normal((5, 12))),
    "layer_norm gelu residual": Program(normalised, normal(*LN)),
    "layer_norm gelu residual bf16": Program(normalised, normal(*LN, dtype=torch.bfloat16), 4e-2),
    "rms_norm": Program(lambda x, w: F.rms_norm(x, (640,), w), normal((33, 640), (640,))),
    "long rows": Program(lambda x: (x.softmax(-1), x.sum(-1), x.argmax(-1), x.amax(-1)), normal((20, 20000)), 1e-3),
    "long layer_norm": Program(lambda x: F.layer_norm(x, (20000,)), normal((5, 20000))),
    "long columns": Program(lambda x: (x.sum(0), x.amax(0)), normal((20000, 5)), 1e-3),
    "one long sum": Program(lambda x: (x.sum(), x.mean(), x.amin()), normal((300_001,)), 1e-2),
    "var_mean": Program(lambda x: (*torch.var_mean(x, 1), x.std(0), *torch.var_mean(x + 1000, (0, 1))), normal((60, 700)), 1e-3),
    "argmax of ties": Program(lambda x: (x.argmax(1), x.argmin(1), x.max(0)), integers((40, 500), low=0, high=3), 0),
    "argmax of NaNs": Program(lambda x: (x.argmax(1), x.argmin(1), x.amax(1), x.max(1)), with_nans, 0),
    "cumsum": Program(lambda x: (x.cumsum(1), x.cumsum(0)), normal((30, 300)), 1e-3),
    "cumprod": Program(lambda x: (1 + x / 50).cumprod(1), normal((30, 300)), 1e-3),
    "cummax": Program(lambda x: (*x.cummax(1), *x.cummin(0)), normal((30, 300)), 0),
    "logcumsumexp": Program(lambda x: x.logcumsumexp(1), normal((30, 300))),
    "cumsum of ints": Program(lambda x: x.cumsum(1), integers((30, 300)), 0),
    "cat": Program(lambda x, y: (torch.cat([x, y * 2, x], 1), torch.stack([x, x + 1])), normal((30, 40), (30, 7)), 1e-5),
    "pad": Program(lambda x: (F.pad(x + 1, (1, 2, 3, 0), value=7.0), F.pad(x, (-1, 2))), normal((30, 40)), 1e-5),
    "reflection pad": Program(lambda x: F.pad(x.sin(), (2, 3), mode="reflect"), normal((3, 5, 40)), 1e-5),
    "negative index": Program(lambda x, i: (x[i] + 1, x[:, i.clamp(-70, 49)].sum(1)), rows_and_index),
    "gather": Program(lambda x, i: x.gather(0, i[:, None].abs().clamp(max=49).expand(-1, 70)) * 2, rows_and_index),
    "embedding": Program(lambda w, i: F.embedding(i.abs() % 50, w).sum(1), lambda d: (*normal((50, 70))(d), *integers((8, 9))(d))),
    "scatter_add, index_put": Program(scattered, scatter_inputs),
    "int64": Program(lambda x: (x * 3 // 2, x % 7, x << 3, x >> 2, x.sum(), x.max(), x.bitwise_xor(5), -x.abs()), integers((555,)), 0),
    "division of ints": Program(lambda x: (x // 7, x // -7, x.remainder(-7), x.fmod(7), x / 7), integers((555,))),
    "int wrap": Program(int_wrap, integers((1000,), low=-(2**31), high=2**31), 0),
    "wide ints": Program(lambda x: (x + 2**40, x * 2**33, x > 2**35), integers((1000,), low=-(2**45), high=2**45), 0),
    "bool reductions": Program(lambda x: (x.any(1), x.all(0), (x > 0).any(), (x > -5).all(), (x > 0).sum(1)), normal((30, 300)), 0),
    "transposes": Program(lambda x, y: (x.t() + y, (x.t() * 2).contiguous(), x.t().sum(0)), normal((130, 70), (70, 130))),
    "permute": Program(lambda x: x.permute(2, 0, 1).softmax(-1), normal((6, 40, 33))),
    "expand": Program(lambda x, y: (x[:, None].expand(-1, 40) * y, y.sum(1, keepdim=True).expand(-1, 9) + 1), normal((30,), (30, 40))),
    "strided views": Program(lambda x: (x[::2, 1::3] + 1, x[5:, :-3].amax(1), x.flip(0) * 2), normal((30, 40))),
    "misaligned": Program(lambda x, y: (x + y, x.softmax(-1), (x * y).sum(0)), misaligned),
    "half casts": Program(lambda x: ((x + 1).bfloat16(), (x * 1e5).half(), x.double().half()), normal((5000,)), 0),
    "half arithmetic": Program(lambda x, y: x * y + x, normal((5000,), (5000,), dtype=torch.float16), 1e-2),
    "float8 cast": Program(lambda x: (x * 30).clamp(-440, 440).to(torch.float8_e4m3fn).float(), normal((50, 200)), 0),
    "float8 stored": Program(lambda x: (x.to(torch.float8_e4m3fn), x.amax(1)), normal((50, 200)), 0),
    "casts to int": Program(lambda x: ((x * 50).to(torch.int32), (x * 20).to(torch.int8), x.bool()), normal((5000,)), 0),
    "float64": Program(lambda x: (x.exp(), x.softmax(-1), x.cumsum(0)), normal((30, 40), dtype=torch.float64), 1e-9),
    "math": Program(
        lambda x: (x.tanh(), x.erf(), x.sigmoid(), x.abs().log1p(), x.abs().pow(0.3), x.abs().rsqrt(), x.floor(), x.round()),
        normal((5000,)),
    ),
    "special": Program(lambda x: (torch.special.i0(x), x.lgamma(), x.atan2(x + 1), x.sinh(), x.expm1()), normal((5000,)), 1e-3),
    "where and compare": Program(lambda x, y: (torch.where(x > y, x, y * 2), x.maximum(y), x.clamp(-1, 1)), normal((99,), (99,)), 1e-6),
    "zero-dimensional": Program(lambda x: (x.sum() * 2, x.sum() + x[0]), normal((40,))),
    "empty": Program(lambda x, y: (x + 1, y * 2), normal((0, 5), (3, 5)), 1e-6),
    "sort of a region": Program(lambda x: (x * 2).sort(-1)[0] + 1, normal((30, 40)), 1e-5),
    "matmul between": Program(lambda x, y: (F.relu(x + 1) @ y).softmax(-1), normal((64, 64), (64, 64)), 1e-3),
    "pooling": Program(lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3)), normal((2, 3, 32, 32))),
}


def check(program: Program, device: str, *, dynamic: bool = False, **options: Any) -> None:
    """Compile and compare, on "cuda", or on "cpu" in Triton's interpreter; raises AssertionError."""
    torch.manual_seed(0)
    inputs = program.inputs(device)
    expected = program.fn(*inputs)
    counters["helion"].clear()
    compiled = torch.compile(program.fn, backend="helion", options={**OPTIONS, **program.options, **options}, dynamic=dynamic)
    actual = compiled(*inputs)
    assert not program.in_region or counters["helion"]["kernels"] >= 1
    same(actual, expected, program.tolerance)
    same(compiled(*inputs), expected, program.tolerance)  # launched as bound by the first call


def same(actual: Any, expected: Any, tolerance: float) -> None:
    if tolerance or not isinstance(expected, Tensor | tuple):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        return
    pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    for a, e in pairs:
        if isinstance(e, tuple):
            same(a, e, tolerance)
            continue
        assert a.dtype == e.dtype
        wide = (a.float(), e.float()) if e.dtype == torch.float8_e4m3fn else (a, e)
        torch.testing.assert_close(*wide, rtol=0, atol=0, equal_nan=True)


def dropout_of(x: Tensor) -> tuple[Tensor, Tensor]:
    return F.dropout(x, 0.3), torch.rand_like(x) + x


def check_dropout(device: str) -> None:
    x = torch.ones(333, 77, device=device)
    results = []
    for settings in ({"backend": "helion", "options": OPTIONS}, {}):
        torch.compiler.reset()
        torch.manual_seed(7)
        compiled = torch.compile(dropout_of, **settings)
        results += [compiled(x), compiled(x)]
    ours, theirs = results[:2], results[2:]
    assert all(torch.equal(a, b) for o, t in zip(ours, theirs) for a, b in zip(o, t))
    assert not torch.equal(ours[0][0], ours[1][0])
    assert abs(float((ours[0][0] != 0).float().mean()) - 0.7) < 0.02


def check_in_place(device: str) -> None:
    def update(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y, alpha=0.5)
        return x.sum(-1)

    x, y = normal((64, 640), (64, 640))(device)
    other, address = x.clone(), x.data_ptr()
    compiled = torch.compile(update, backend="helion", options=OPTIONS)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, y), update(other, y))
        torch.testing.assert_close(x, other)
    assert x.data_ptr() == address


def check_optimizer(device: str, **options: Any) -> None:
    """Adam-like updates of tensors of many sizes, all in place."""

    def step(weights: list[Tensor], grads: list[Tensor], firsts: list[Tensor], seconds: list[Tensor]) -> None:
        for w, g, m, v in zip(weights, grads, firsts, seconds):
            m.lerp_(g, 0.1)
            v.mul_(0.99).addcmul_(g, g, value=0.01)
            w.mul_(0.999).addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)

    sizes = [(64, 48), (48,), (1,), (1000,), (7, 11, 13), (48, 64)]
    ours = [[torch.randn(s, device=device) for s in sizes] for _ in range(3)]
    ours.append([torch.rand(s, device=device) for s in sizes])
    other = [[t.clone() for t in group] for group in ours]
    addresses = [t.data_ptr() for group in ours for t in group]
    compiled = torch.compile(step, backend="helion", options={**OPTIONS, **options})
    for _ in range(3):
        compiled(*ours)
        step(*other)
    torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-5)
    assert addresses == [t.data_ptr() for group in ours for t in group]


def check_dynamic(device: str) -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.softmax(-1), x.sum(0), torch.cat([x, y], 1) * 2, F.layer_norm(x, (x.shape[-1],)), x.cumsum(1)

    compiled = torch.compile(fn, backend="helion", options=OPTIONS, dynamic=True)
    for rows, columns in ((5, 12), (33, 130), (7, 1024), (64, 3001), (2, 16), (1, 12), (9, 1)):
        inputs = normal((rows, columns), (rows, columns + 3))(device)
        same(compiled(*inputs), fn(*inputs), 1e-4)


def check_pid_types(device: str, shapes: tuple[tuple[int, int], ...] = ((700, 64), (400, 33)), dtype: torch.dtype = torch.float32) -> None:
    """However programs share the tiles, every tile computes the same bits."""

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.sin() + 1, y.relu().sum(-1), F.layer_norm(y, (y.shape[-1],)), x * 2 + x.exp()

    inputs = normal(*shapes, dtype=dtype)(device)
    results = {}
    for pid_type in PID_TYPES:
        torch.compiler.reset()
        counters["helion"].clear()
        results[pid_type] = torch.compile(fn, backend="helion", options={**OPTIONS, "pid_type": pid_type})(*inputs)
        assert counters["helion"]["kernels"] >= 1
    same(results["flat"], fn(*inputs), 1e-4 if dtype == torch.float32 else 4e-2)
    for pid_type in PID_TYPES[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[pid_type], results["flat"])), pid_type


def check_auto(device: str, shapes: list[tuple[int, int]]) -> None:
    """With the default options independent small loops share one kernel."""

    def fn(xs: list[Tensor]) -> list[Tensor]:
        return [F.gelu(F.layer_norm(x, (x.shape[-1],))) + x for x in xs]

    xs = [torch.randn(s, device=device) for s in shapes]
    counters["helion"].clear()
    actual = torch.compile(fn, backend="helion", dynamic=False)(xs)
    assert counters["helion"]["regions"] == 1 and counters["helion"]["kernels"] == 1 and not counters["helion"]["errors"]
    same(tuple(actual), tuple(fn(xs)), 1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(PROGRAMS[name], "cuda")


@pytest.mark.parametrize("name", ["long rows", "scatter_add, index_put", "cumsum"])
@pytest.mark.parametrize("pid_type", PID_TYPES[1:])
def test_persistent(name: str, pid_type: str) -> None:
    check(PROGRAMS[name], "cuda", pid_type=pid_type)


@pytest.mark.parametrize("name", ["layer_norm gelu residual", "transposes", "negative index", "misaligned"])
def test_dynamic_program(name: str) -> None:
    check(PROGRAMS[name], "cuda", dynamic=True)


def test_dropout_is_inductors() -> None:
    check_dropout("cuda")


def test_in_place() -> None:
    check_in_place("cuda")


@pytest.mark.parametrize("pid_type", PID_TYPES[:2])
def test_optimizer(pid_type: str) -> None:
    check_optimizer("cuda", pid_type=pid_type)


def test_dynamic_sizes() -> None:
    check_dynamic("cuda")


def test_pid_types_agree() -> None:
    check_pid_types("cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pid_types_agree_where_programs_have_many_tiles(dtype: torch.dtype) -> None:
    """More tiles than a device holds programs, and no tile divides the sizes."""
    check_pid_types("cuda", ((8191, 1111), (20011, 777)), dtype)


def test_auto_takes_many_small_loops() -> None:
    check_auto("cuda", [(16 + 7 * i, 256 + 64 * (i % 9)) for i in range(24)])


@pytest.mark.parametrize("dynamic", [False, True])
def test_offsets_beyond_two_gigabytes(dynamic: bool) -> None:
    n = 2**31 + 4096
    x = torch.zeros(n, dtype=torch.int8, device="cuda")
    x[-5:] = torch.arange(1, 6, device="cuda")
    y = torch.compile(lambda x: x * 3 + 1, backend="helion", options=OPTIONS, dynamic=dynamic)(x)
    assert torch.equal(y[-6:].cpu(), torch.tensor([1, 4, 7, 10, 13, 16], dtype=torch.int8))
    assert int((y[: n - 5] != 1).sum()) == 0


def test_changing_inputs_of_a_captured_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_INDUCTOR_OPTIONS", '{"regions": "all", "on_error": "raise"}')

    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return F.gelu(F.layer_norm(x, (256,)) * w) + x, (x @ x.t()).softmax(-1).sum(0)

    counters.clear()
    compiled = torch.compile(fn, backend="helion", mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(8):
            inputs = normal((64, 256), (256,))("cuda")
            torch.compiler.cudagraph_mark_step_begin()
            actual = [t.clone() for t in compiled(*inputs)]
            torch.testing.assert_close(tuple(actual), fn(*inputs), rtol=1e-3, atol=1e-3)
    assert counters["helion"]["kernels"] >= 1
    assert not counters["inductor"]["cudagraph_skips"]


OUT_OF_BOUNDS = """
    import torch
    import helion_inductor.backend
    fn = torch.compile(lambda x, i: x[i] * 2, backend="helion", options={"regions": "all", "on_error": "raise"})
    x = torch.randn(1000, device="cuda")
    print(fn(x, torch.tensor([5, -1000, 999], device="cuda")).shape, flush=True)
    torch.cuda.synchronize()
    print("read", fn(x, torch.tensor([5, INDEX, 7], device="cuda")).tolist(), flush=True)
"""


def test_index_out_of_bounds_is_refused() -> None:
    """In processes of their own: a failed device assertion ends the CUDA context."""
    root = Path(__file__).resolve().parents[2]
    scripts = [textwrap.dedent(OUT_OF_BOUNDS).replace("INDEX", index) for index in ("1000", "-1001")]
    pipes: dict[str, Any] = {"cwd": root, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([sys.executable, "-c", script], **pipes) for script in scripts]
    try:
        for child in children:
            output, errors = child.communicate(timeout=100)
            assert "torch.Size([3])" in output, errors[-2000:]
            assert child.returncode != 0 and "read" not in output
            assert "device-side assert" in errors, errors[-2000:]
    finally:
        for child in children:
            child.kill()
