"""The kernels made from `emit` and the device functions, run: under the interpreter, or on a GPU where there is one."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from helion_inductor.codegen import expressions
from helion_inductor.errors import UnsupportedError
from helion_inductor.ir.ops import OPS
from helion_inductor.scalar_math import narrow
from tests.ops import kernel_source as kernels
from tests.ops.kernel_source import Kernel
from tests.ops.op_cases import LOW, close, differences, name_of, operands, same, special_values

# Where torch's vector code, its scalar code and the GPU differ in the last bits (sqrt: in torch's f64 vector code).
INEXACT = frozenset(
    """acos acosh airy_ai asin asinh atan atan2 atanh bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t
    chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w cos cosh digamma erf erfc erfcx erfinv exp
    exp2 expm1 floordiv fma hermite_polynomial_h hermite_polynomial_he hypot i0 i0e i1 i1e laguerre_polynomial_l
    legendre_polynomial_p lgamma log log10 log1p log2 log_ndtr modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
    modified_bessel_k1 ndtr ndtri polygamma pow randn rsqrt scaled_modified_bessel_k0 scaled_modified_bessel_k1
    shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
    shifted_chebyshev_polynomial_w sigmoid sin sinh spherical_bessel_j0 sqrt tan tanh truncdiv zeta""".split()  # noqa: SIM905
)
# Where the GPU may in addition flush denormals to zero, or has no digits left for huge operands, or eager's formula has few.
GPU_LOOSE = frozenset(
    """airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 cosh erfinv exp exp2 floordiv fmod i0 i1 lgamma log_ndtr mod
    modified_bessel_i0 modified_bessel_i1 mul_rn ndtr ndtri polygamma pow remainder rsqrt sinh tan truncdiv""".split()  # noqa: SIM905
)
KERNELS = kernels.kernels_by_signature()
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy's, about overflow and division by zero, must not show


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    _, text = kernels.everything()
    return kernels.load(text, tmp_path_factory.mktemp("kernels"), "generated_op_kernels")


def _padded(columns: list[torch.Tensor]) -> list[torch.Tensor]:
    count = max(128, 1 << (len(columns[0]) - 1).bit_length())
    return [torch.cat([c, c[:1].expand(count - len(c))]) for c in columns]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_kernel_computes_what_the_table_says(kernel: Kernel, module: ModuleType, device: str) -> None:
    # Conversions from float leave some values undefined, so the operands depend on the case.
    groups: dict[tuple[float, ...], list[int]] = {}
    inputs = [_padded(operands(c)) for c in kernel.cases]
    for k, columns in enumerate(inputs):
        groups.setdefault(tuple(map(repr, (c.tolist() for c in columns))), []).append(k)
    failures = []
    for members in groups.values():
        columns = inputs[members[0]]
        results = _run(module, kernel, columns, device)
        for k in members:
            case, actual = kernel.cases[k], results[k].cpu()
            expected = case.evaluate(*columns)
            good = same(actual, expected)
            wrong = torch.ones(len(actual), dtype=torch.bool)
            if not good and (case.op in INEXACT or device == "cuda"):
                wrong = ~_nearly(case.op, columns, actual, expected, device)
                loose = device == "cuda" and case.op in GPU_LOOSE
                good = bool(wrong.float().mean() < 0.2) if loose else not wrong.any()
            if not good:
                failures.append(f"{case}: {differences(actual[wrong], expected[wrong], [c[wrong] for c in columns])}")
    assert not failures, "\n".join(failures)


def _run(module: ModuleType, kernel: Kernel, columns: list[torch.Tensor], device: str) -> list[torch.Tensor]:
    outputs = kernels.outputs(kernel.outputs, len(columns[0]), device)
    block = 128 if device == "cuda" else len(columns[0])
    grid = (len(columns[0]) // block,)
    getattr(module, kernel.name)[grid](*(c.to(device) for c in columns), *outputs, BLOCK=block)
    return outputs


def _nearly(op: str, columns: list[torch.Tensor], actual: torch.Tensor, expected: torch.Tensor, device: str) -> torch.Tensor:
    """Which elements are close enough; on a GPU also those where a denormal may have been taken for zero, and NaNs of any bits."""
    tolerance = 1e-12 if expected.dtype == torch.float64 else 2e-6 if device == "cpu" else 2e-5
    right = close(actual, expected, tolerance)
    if device == "cuda":
        for x in (*columns, expected):
            if x.dtype == torch.float32:
                right |= (x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)
        if op == "bitcast" and columns[0].is_floating_point():
            right |= columns[0].isnan()
    return right


def test_constants_keep_value_and_width(module: ModuleType, device: str) -> None:
    kernel, _ = kernels.constants_kernel()
    outputs = kernels.outputs(kernel.outputs, 128, device)
    module.constants[(1,)](*outputs, BLOCK=128)
    for (value, dtype), out in zip(kernels.CONSTANTS, outputs):
        if dtype.is_floating_point:
            expected = torch.tensor(value, dtype=dtype)
        else:
            expected = torch.tensor(int(value) % 2**64, dtype=torch.uint64).view(torch.int64).to(dtype)
        assert same(out.cpu(), expected.expand(128)), f"{value} as {dtype}: {out[0].item()}"


def test_constant_text() -> None:
    assert expressions.constant(0.1, torch.float64) == "tl.full([], 0.1, tl.float64)"
    assert expressions.constant(-1, torch.uint8) == "tl.full([], 255, tl.uint8)"
    assert expressions.constant(2**40, torch.int64) == "tl.full([], 1099511627776, tl.int64)"
    negative_zero = "tl.full([], 0x80000000, tl.uint32).to(tl.float32, bitcast=True)"
    assert expressions.constant(-0.0, torch.float32) == negative_zero
    with pytest.raises(OverflowError):
        expressions.constant(torch.inf, torch.int32)
    with pytest.raises(UnsupportedError, match="complex64"):
        expressions.constant(1, torch.complex64)


def test_operands_get_the_parentheses_they_need() -> None:
    two = (torch.float32, torch.float32)
    assert expressions.emit("sub", ["a", "b - c"], two, torch.float32) == "a - (b - c)"
    assert expressions.emit("sub", ["f(a)", "b.to(tl.float32)"], two, torch.float32) == "f(a) - b.to(tl.float32)"
    assert expressions.emit("pow", ["a", "b - c"], two, torch.float32) == "dl.pow(a, b - c)"
    with pytest.raises(UnsupportedError, match="no kernel code for igamma"):
        expressions.emit("igamma", ["a", "b"], two, torch.float32)


def test_supported_ops_are_ops() -> None:
    assert set(OPS) > expressions.SUPPORTED


@pytest.mark.parametrize("low", LOW, ids=name_of)
def test_memory_dtypes(low: torch.dtype, module: ModuleType, device: str) -> None:
    bits = torch.arange(2 ** (8 * low.itemsize)).to(torch.uint8 if low.itemsize == 1 else torch.uint16).view(low)
    wide = bits.float()
    near = torch.cat([wide, torch.nextafter(wide, torch.tensor(torch.inf)), wide * 1.03, wide * 1.0625])
    (values,) = _padded([torch.cat([near, special_values(torch.float32), torch.tensor([61439.0, 61440.0, 65519.0])])])
    (stored,) = _padded([bits])
    stored = torch.cat([stored, stored.new_zeros(len(values) - len(stored))])
    kernel, _ = kernels.memory_kernel(low)
    narrowed, widened = _run(module, kernel, [values, stored], device)
    assert same(narrowed.cpu().float(), narrow(values, low).float())
    assert same(widened.cpu(), stored.float())


def test_index_arithmetic_takes_scalars_and_negative_numbers(module: ModuleType, device: str) -> None:
    x = torch.arange(-300, 300, 5)[:64].to(device)
    first, second = torch.zeros(64, dtype=torch.int32, device=device), torch.zeros(64, dtype=torch.int64, device=device)
    module.index_arithmetic[(1,)](x, first, second, BLOCK=64)
    at = range(64)
    assert first.tolist() == [(i - 7) // 4 * 100 + (i - 7) % 4 + -9 // 4 for i in at]
    assert second.tolist() == [v // (i + 1) + i % 3 for i, v in zip(at, x.tolist())]


def test_random_numbers_are_triton_s(module: ModuleType, device: str) -> None:
    seed = torch.tensor([0x1234567890ABCDEF])
    offset = torch.cat([torch.arange(-4, 120), torch.tensor([2**31 - 1, -(2**31), 77, 78])]).to(torch.int32)
    uniform, normal, bits = _run(module, _named("random_numbers"), [seed.expand(128), offset], device)
    assert torch.equal(uniform.cpu(), OPS["rand"].evaluate(seed, offset, dtype=torch.float32))
    assert close(normal.cpu(), OPS["randn"].evaluate(seed, offset, dtype=torch.float32), 1e-4).all()
    low, high = torch.tensor([-5]), torch.tensor([2**40])
    whole = OPS["randint64"].evaluate(seed, offset, low, high, dtype=torch.int64)
    assert [b % 2**64 % (2**40 + 5) - 5 for b in bits.tolist()] == whole.tolist()


def _named(name: str) -> Kernel:
    return next(k for k in kernels.HAND_WRITTEN_KERNELS if k.name == name)


def test_joining_two_stretches(module: ModuleType, device: str) -> None:
    nan, inf = torch.nan, torch.inf
    a = torch.tensor([1.0, 2.0, nan, 1.0, nan, -inf, inf, 3.0]).repeat(16)
    b = torch.tensor([1.0, 1.0, 1.0, nan, nan, -inf, inf, 5.0]).repeat(16)
    best, where, least, several = (t.cpu() for t in _run(module, _named("combined"), [a, b], device))
    assert same(best, torch.maximum(a, b))
    takes_first = torch.tensor([True, True, True, False, True, True, True, False]).repeat(16)
    assert where.tolist() == torch.where(takes_first, torch.arange(128), torch.arange(128, 256)).tolist()
    assert same(least, torch.minimum(a, b))
    assert close(several, torch.maximum(a, b) + (a + b) + a * b + torch.logaddexp(a, b), 1e-5).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a failed assertion would end the GPU's context")
def test_device_assert(module: ModuleType) -> None:
    x, out = torch.arange(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    module.asserted[(1,)](x, out, BLOCK=128)
    assert torch.equal(out, x)
    with pytest.raises(Exception, match="negative input"):
        module.asserted[(1,)](x - 1, out, BLOCK=128)


def _axis_values(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if not dtype.is_floating_point:
        x = torch.randint(-3, 4, (4, 64), generator=generator)
        x[1, 5] = x[1, 9] = 7
        return x.to(dtype)
    x = torch.randn(4, 64, generator=generator, dtype=torch.float64) * 0.5 + 1
    x[1, 5] = x[1, 9] = x[3, 9] = 4.0
    x[2, 20] = x[2, 30] = x[0, 30] = torch.nan
    x[3, 40], x[3, 41], x[3, 50] = torch.inf, -torch.inf, torch.inf
    return x.to(dtype)


def _axis_reference(name: str, x: torch.Tensor, axis: int) -> list[torch.Tensor]:
    """Eager's result in the dtype of `x`, or Python's for integers that torch does not take."""
    if name == "any":
        return [(x != 0).any(axis)]
    if name == "xor_sum":
        total = torch.zeros_like(x.select(axis, 0))
        for line in x.unbind(axis):
            total = total ^ line
        return [total]
    if name in ("sum", "prod", "cumsum", "cumprod"):
        if x.dtype.is_floating_point:
            return [getattr(x, name)(axis)]
        return [getattr(x.to(torch.int64), name)(axis).to(x.dtype)]
    if name == "logcumsumexp":
        return [x.logcumsumexp(axis)]
    order = x if x.dtype.is_floating_point else x.to(torch.int64)
    kind = name.removesuffix("_pair")
    if name in ("max", "min"):
        return [getattr(order, f"a{name}")(axis).to(x.dtype)]
    if name.startswith("cum"):
        values, index = getattr(order, name)(axis)
        return [values.to(x.dtype), index]
    index = getattr(order, kind)(axis)
    return [index] if kind == name else [order.gather(axis, index.unsqueeze(axis)).squeeze(axis).to(x.dtype), index]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", kernels.AXIS_DTYPES, ids=name_of)
def test_reductions_and_scans(dtype: torch.dtype, axis: int, module: ModuleType, device: str) -> None:
    x = _axis_values(dtype)
    kernel, _ = kernels.axis_kernel(dtype, axis)
    outputs = kernels.outputs(kernel.outputs, 4 * 64, device)
    getattr(module, kernel.name)[(1,)](x.to(device), *outputs, ROWS=4, COLUMNS=64)
    results = iter(outputs)
    for name in kernels.axis_functions(dtype):
        for expected in _axis_reference(name, x, axis):
            actual = next(results).cpu()[: expected.numel()].reshape(expected.shape)
            tolerance = 1e-4 if dtype == torch.float32 else 1e-12
            assert close(actual, expected, tolerance).all(), f"{name}: {actual} is not {expected}"
