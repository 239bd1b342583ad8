"""The GPU code of the special functions that libdevice lacks, against eager in f64 (Airy's: mpmath) over wide ranges and at edge points.

On a GPU the kernel is compiled. In Triton's interpreter, where torch formulas stand in for device functions, the GPU code itself
is run all the same, with torch in libdevice's place.
"""

from __future__ import annotations

import types
from types import ModuleType

import mpmath
import pytest
import torch
from torch import Tensor

from helion_inductor import compat
from helion_inductor.runtime import (
    device_bessel,
    device_gamma,
    device_lib,  # noqa: F401  (corrects the interpreter)
    device_math,
    device_polynomials,
)
from tests.ops import kernel_source as kernels
from tests.ops.op_cases import name_of

DTYPES = (torch.float32, torch.float64)
EXACT = {torch.float32: 3e-6, torch.float64: 1e-13}
UNARY = {
    "airy_ai": device_bessel, "i0e": device_bessel, "i1e": device_bessel, "modified_bessel_k0": device_bessel,
    "modified_bessel_k1": device_bessel, "scaled_modified_bessel_k0": device_bessel, "scaled_modified_bessel_k1": device_bessel,
    "spherical_bessel_j0": device_bessel, "digamma": device_gamma,
}  # fmt: skip
POLYNOMIALS = tuple(n for n in vars(device_polynomials) if "polynomial" in n)
BINARY = {"zeta": device_gamma, "polygamma": device_gamma, **dict.fromkeys(POLYNOMIALS, device_polynomials)}
LIBDEVICE = {
    "acos": torch.acos, "cos": torch.cos, "cyl_bessel_i0": torch.special.i0, "cyl_bessel_i1": torch.special.i1, "exp": torch.exp,
    "log": torch.log, "nearbyint": torch.round, "pow": torch.pow, "rsqrt": torch.rsqrt, "sin": torch.sin, "tan": torch.tan,
    "tgamma": lambda x: torch.exp(torch.lgamma(x.double())).to(x.dtype), "trunc": torch.trunc,
}  # fmt: skip


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """`run_NAME` for every function, on blocks of 256."""
    text = "import triton\nimport triton.language as tl\n\n"
    text += "from helion_inductor.runtime import device_bessel, device_gamma, device_polynomials\n"
    for name, home in {**UNARY, **BINARY}.items():
        operands = "tl.load(X + at), tl.load(Y + at)" if name in BINARY else "tl.load(X + at)"
        text += f"""

@triton.jit
def run_{name}(X, Y, OUT, SCALAR, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + at, {home.__name__.split(".")[-1]}.{name}({operands}))
    at = tl.program_id(0)
    tl.store(SCALAR + at, {home.__name__.split(".")[-1]}.{name}({operands}))
"""
    return kernels.load(text, tmp_path_factory.mktemp("special"), "special_function_kernels")


@pytest.fixture(autouse=True)
def _libdevice(monkeypatch: pytest.MonkeyPatch) -> None:
    if not compat.interpreting():
        return
    from helion_inductor.runtime.device_interpret import lift

    stand_in = types.SimpleNamespace(**{name: lift(fn) for name, fn in LIBDEVICE.items()})
    for home in (device_bessel, device_gamma, device_math, device_polynomials):
        monkeypatch.setattr(home, "libdevice", stand_in)


def run(module: ModuleType, name: str, device: str, *operands: Tensor) -> Tensor:
    """The function on operands of one length; the first element of each block is computed as a scalar as well."""
    count = len(operands[0])
    blocks = -(-count // 256)
    padded = [torch.cat([x, x[-1:].expand(256 * blocks - count)]).to(device) for x in (*operands, operands[0])[:2]]
    out, scalar = torch.zeros_like(padded[0]), torch.zeros_like(padded[0])
    getattr(module, f"run_{name}")[(blocks,)](*padded, out, scalar, BLOCK=256)
    return torch.cat([out[:count], scalar[:1]]).cpu()


def check(actual: Tensor, expected: Tensor, inputs: list[Tensor], relative: float, absolute: float = 0.0) -> None:
    """Close to an f64 result, or past the greatest or least number of the dtype where that is."""
    assert actual.dtype == inputs[0].dtype
    want = torch.cat([expected, expected[:1]])
    limit = torch.finfo(actual.dtype)
    rounded = want.to(actual.dtype)
    small = (want.abs() < 16 * limit.tiny) & (actual.abs() < 32 * limit.tiny)
    near = (actual.double() - want).abs() <= relative * want.abs() + absolute
    great = (want.abs() > limit.max * (1 - relative)) & (actual.abs() > limit.max * (1 - relative)) & (actual.sign() == want.sign())
    good = near | small | great | (actual == rounded) | (actual.isnan() & want.isnan())
    at = (~good).nonzero().flatten().tolist()
    shown = [f"{[x[k % len(x)].item() for x in inputs]}: {actual[k].item()}, not {want[k].item()}" for k in at[:6]]
    assert not at, f"{len(at)} of {len(good)}: " + "; ".join(shown)


def eager(name: str, *operands: Tensor) -> Tensor:
    return getattr(torch.special, name)(*(x.double() for x in operands))


def spread(low: float, high: float, dtype: torch.dtype, count: int = 300) -> Tensor:
    """Numbers whose magnitudes, from `low` to `high`, are evenly spread on a logarithmic scale."""
    generator = torch.Generator().manual_seed(0)
    span = torch.tensor([low, high], dtype=torch.float64).log()
    return (span[0] + (span[1] - span[0]) * torch.rand(count, generator=generator, dtype=torch.float64)).exp().to(dtype)


def edges(dtype: torch.dtype, *numbers: float) -> Tensor:
    return torch.tensor([*numbers, 0.0, -0.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)


both = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)


@both
@pytest.mark.parametrize("name", ["i0e", "i1e"])
def test_scaled_bessel_of_the_first_kind(name: str, dtype: torch.dtype, module: ModuleType, device: str) -> None:
    positive = torch.cat([spread(1e-30, 1e30, dtype), torch.linspace(0, 20, 300, dtype=dtype)])
    x = torch.cat([positive, -positive, edges(dtype, 8.0, -8.0)])
    check(run(module, name, device, x), eager(name, x), [x], EXACT[dtype])


@both
@pytest.mark.parametrize("name", [n for n in UNARY if "_k" in n])
def test_bessel_of_the_second_kind(name: str, dtype: torch.dtype, module: ModuleType, device: str) -> None:
    top = 1e30 if name.startswith("scaled") else 80.0
    x = torch.cat([spread(1e-30, top, dtype), torch.linspace(0, 10, 300, dtype=dtype), edges(dtype, 2.0, -1.0, -1e-3, -100.0)])
    check(run(module, name, device, x), eager(name, x), [x], 20 * EXACT[dtype] if top == 80.0 else EXACT[dtype])


@both
def test_spherical_bessel(dtype: torch.dtype, module: ModuleType, device: str) -> None:
    x = torch.cat([spread(1e-40, 0.1, dtype), torch.linspace(-30, 30, 700, dtype=dtype), edges(dtype, 0.5, 1e30, 0.005)])
    check(run(module, "spherical_bessel_j0", device, x), eager("spherical_bessel_j0", x), [x], EXACT[dtype], EXACT[dtype] / 100)


def airy(x: Tensor) -> Tensor:
    """Ai by mpmath: eager's own, even in f64, has five digits only around -2.1, and twelve around -4.5."""
    return torch.tensor([float(mpmath.airyai(v)) if abs(v) < torch.inf else torch.nan for v in x.tolist()], dtype=torch.float64)


@both
def test_airy(dtype: torch.dtype, module: ModuleType, device: str) -> None:
    x = torch.cat([torch.linspace(-30, 10, 900, dtype=dtype), edges(dtype, -4.0, 1.5, 1.4999, -4.0001, 300.0)])
    actual = run(module, "airy_ai", device, x)
    check(actual, airy(x), [x], 20 * EXACT[dtype], EXACT[dtype])  # beside a zero only the absolute error is small
    check(actual, eager("airy_ai", x), [x], 1e-4, 1e-5)
    far = -spread(30, 1000, dtype)
    check(run(module, "airy_ai", device, far), airy(far), [far], 0, 1e-7 if dtype == torch.float32 else 1e-12)


@both
def test_digamma(dtype: torch.dtype, module: ModuleType, device: str) -> None:
    positive = torch.cat([spread(1e-30, 1e30, dtype), torch.linspace(0.01, 20, 300, dtype=dtype)])
    x = torch.cat([positive, -positive[positive < 1000], edges(dtype, 10.0, 1.4616321, -1.0, -2.0, -10.0, -1e9)])
    # Beside a zero only the absolute error is small.
    check(run(module, "digamma", device, x), eager("digamma", x), [x], 2 * EXACT[dtype], 10 * EXACT[dtype])
    zero = run(module, "digamma", device, torch.tensor([0.0, -0.0], dtype=dtype))
    assert zero.tolist() == [-torch.inf, torch.inf, -torch.inf]


@both
def test_zeta(dtype: torch.dtype, module: ModuleType, device: str) -> None:
    s, q = torch.cartesian_prod(
        torch.cat([torch.tensor([1.0, 0.5, -2.0, 1.0001, 2.0, 3.0, 10.0, 25.0]), spread(1.1, 60, dtype, 20)]).to(dtype),
        torch.cat([spread(1e-3, 1e5, dtype, 60), torch.arange(-3.0, 12.0), torch.tensor([9.0, 1e-30, torch.nan])]).to(dtype),
    ).unbind(1)
    loose = 20 * EXACT[dtype]  # a power's error grows with its exponent
    check(run(module, "zeta", device, s, q), eager("zeta", s, q), [s, q], loose)
    s, q = torch.cartesian_prod(torch.tensor([2.0, 3.0, 6.0, 7.0, 2.5], dtype=dtype), -spread(0.01, 50, dtype, 60)).unbind(1)
    check(run(module, "zeta", device, s, q), eager("zeta", s, q), [s, q], loose, loose)
    outside = torch.tensor([torch.inf, 1e-20], dtype=dtype)
    assert run(module, "zeta", device, torch.full_like(outside, 2), outside)[0].isnan()  # as in eager


@both
def test_polygamma(dtype: torch.dtype, module: ModuleType, device: str) -> None:
    points = torch.cat([spread(0.05, 1e4, dtype, 100), -spread(0.05, 9, dtype, 60), torch.tensor([0.5, 1.0, 10.0, torch.nan]).to(dtype)])
    for order in (0, 1, 2, 3, 4, 9):
        n = torch.full_like(points, order)
        expected = torch.special.polygamma(order, points.double())
        # Eager's own trigamma has 10 digits only.
        loose = 5e-9 if order == 1 and dtype == torch.float64 else 20 * EXACT[dtype]
        check(run(module, "polygamma", device, n, points), expected, [n, points], loose, loose)
    poles = torch.tensor([0.0, -1.0, -7.0], dtype=dtype)
    assert run(module, "polygamma", device, torch.ones_like(poles), poles).tolist() == [torch.inf] * 4
    assert run(module, "polygamma", device, -torch.ones_like(poles), poles).isnan().all()


@both
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str, dtype: torch.dtype, module: ModuleType, device: str) -> None:
    x, n = torch.cartesian_prod(
        torch.cat([torch.linspace(-2.5, 2.5, 61), torch.tensor([0.0, 1.0, -1.0, 0.999, -0.999, 1e-3, torch.nan])]).to(dtype),
        torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.7, 1.0, 2.0, 3.9, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 20.0, torch.nan], dtype=dtype),
    ).unbind(1)
    expected = eager(name, x, n)
    # Values alternate around zeros: the error is measured by how large the polynomial gets nearby.
    scale = expected.nan_to_num().abs().reshape(68, 16).amax(0).clamp(max=30.0).repeat(68)
    actual = run(module, name, device, x, n)
    loose = torch.cat([scale, scale[:1]]) * 40 * EXACT[dtype]
    check(actual, expected, [x, n], 100 * EXACT[dtype], loose)


@both
def test_high_degrees(dtype: torch.dtype, module: ModuleType, device: str) -> None:
    x, n = torch.cartesian_prod(torch.tensor([-1.5, -1.0, 0.3, 1.0, 1.5]), torch.tensor([127.0, 129.0, 600.0, 1e5])).to(dtype).unbind(1)
    for name in POLYNOMIALS:
        if name.startswith(("laguerre", "legendre", "shifted")):
            continue  # steps 1e5 times
        actual, expected = run(module, name, device, x, n)[:-1], getattr(torch.special, name)(x, n)
        assert torch.equal(actual.isnan(), expected.isnan()), f"{name}: {actual} is not {expected}"
