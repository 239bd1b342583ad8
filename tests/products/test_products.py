"""Matrix products in regions: values, special cases of their arguments, and what is left to Inductor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import helion_inductor

from .comparing import HALVES, OPTIONS, assert_as_exact, run


def tensors(device: str, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=g).to(device, dtype) for shape in shapes]


FORMS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(2, 40), (40, 33)]),
    "mm of one row": (lambda x, w: x @ w.t(), [(1, 40), (33, 40)]),
    "mm of one column": (torch.mm, [(30, 40), (40, 1)]),
    "mv": (torch.mv, [(33, 40), (40,)]),
    "dot": (torch.dot, [(40,), (40,)]),
    "linear with a bias": (F.linear, [(1, 40), (33, 40), (33,)]),
    "addmm": (lambda a, x, w: torch.addmm(a, x, w, beta=0.5, alpha=-2.0), [(2, 33), (2, 40), (40, 33)]),
    "bmm": (torch.bmm, [(3, 2, 40), (3, 40, 17)]),
    "baddbmm": (torch.baddbmm, [(3, 2, 17), (3, 2, 40), (3, 40, 17)]),
    "transposed": (lambda x, w: (w @ x.t()).t().contiguous(), [(2, 40), (33, 40)]),
    "norm, product, gelu": (lambda x, w, b: F.gelu(F.linear(F.rms_norm(x, (40,)), w, b)), [(2, 40), (33, 40), (33,)]),
    "gate": (lambda x, w, v: F.silu(x @ w.t()) * (x @ v.t()), [(1, 40), (33, 40), (33, 40)]),
    "one after another": (lambda x, w, v: torch.relu(x @ w.t()) @ v, [(2, 40), (33, 40), (33, 12)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", FORMS)
def test_few_rows(device: str, name: str, dtype: torch.dtype) -> None:
    fn, shapes = FORMS[name]
    args = tensors(device, dtype, *shapes)
    report = helion_inductor.explain(fn, *args, options=OPTIONS)
    assert report.regions and not [r for r in report.refusals if "product" in r.code]
    assert_as_exact(fn, run(fn, *args), *args)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [3, 16, 70])
def test_many_rows_of_halves(device: str, rows: int, dtype: torch.dtype) -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
        h = F.layer_norm(x, (48,))
        return x + F.gelu(F.linear(h, w, b)) @ v

    args = tensors(device, dtype, (rows, 48), (72, 48), (72,), (72, 48))
    report = helion_inductor.explain(fn, *args, options=OPTIONS)
    assert "  dot" in str(report.regions[0].compiled.schedules[0])
    for gpu_tiles in (False, True):
        assert_as_exact(fn, run(fn, *args, gpu_tiles=gpu_tiles), *args)


def test_a_beta_of_zero_hides_what_is_added(device: str) -> None:
    a, x, w = tensors(device, torch.float32, (2, 5), (2, 8), (8, 5))
    a[0, 0], a[1, 1] = float("nan"), float("inf")
    got = run(lambda a, x, w: torch.addmm(a, x, w, beta=0), a, x, w)
    torch.testing.assert_close(got, x @ w)


def test_nan_and_infinity_reach_their_row_only(device: str) -> None:
    x, w = tensors(device, torch.bfloat16, (5, 20), (20, 9))
    x[1, 3], x[3, 2] = float("nan"), float("inf")
    got, want = run(torch.mm, x, w), x @ w
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.isinf(), want.isinf())


def test_sums_of_products_that_are_no_halves_are_not_rounded(device: str) -> None:
    """Written by hand in float32: the units for halves would lose digits."""
    x, w = tensors(device, torch.float32, (20, 40), (24, 40))

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return (x[:, None] * w[None]).sum(-1)

    report = helion_inductor.explain(fn, x, w, options=OPTIONS)
    assert not any(t.dot for r in report.regions for s in r.compiled.schedules for t in s.tasks())
    torch.testing.assert_close(run(fn, x, w), fn(x, w), rtol=1e-5, atol=1e-5)


def test_what_goes_into_a_product_is_rounded_as_in_eager(device: str) -> None:
    """A factor that is computed in the same loop has the digits that it would have in memory."""
    x, w = tensors(device, torch.bfloat16, (1, 64), (8, 64))
    eye = torch.eye(64, dtype=torch.bfloat16, device=device)[:8]
    got = run(lambda x, w: (x * 1.01) @ w.t(), x, eye)
    assert torch.equal(got, (x * 1.01)[:, :8])


@pytest.mark.parametrize(("rows", "dtype", "code"), [
    (3, torch.float32, "product-rows"), (129, torch.bfloat16, "product-rows"),
])  # fmt: skip
def test_left_to_inductor_with_a_reason(rows: int, dtype: torch.dtype, code: str) -> None:
    x, w = torch.ones(rows, 40, dtype=dtype), torch.ones(40, 200, dtype=dtype)
    report = helion_inductor.explain(torch.mm, x, w, options=OPTIONS)
    assert [r.code for r in report.refusals] == [code]


def test_opted_in_whatever_its_rows(device: str) -> None:
    x, w = tensors(device, torch.float32, (40, 24), (24, 36))
    report = helion_inductor.explain(torch.mm, x, w, options={**OPTIONS, "ops": {"matmul": True}})
    assert not report.refusals
    torch.testing.assert_close(run(torch.mm, x, w, ops={"matmul": True}), x @ w, rtol=1e-5, atol=1e-5)


def test_opted_out(device: str) -> None:
    x, w = tensors(device, torch.float32, (1, 24), (24, 36))
    report = helion_inductor.explain(torch.mm, x, w, options={**OPTIONS, "ops": {"aten.mm": False}})
    assert [r.code for r in report.refusals] == ["not-opted-in"]
    torch.testing.assert_close(run(torch.mm, x, w, ops={"aten.mm": False}), x @ w)


def test_unknown_sizes_stay_with_inductor() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).relu()

    x, w = torch.randn(2, 40), torch.randn(40, 33)
    torch._dynamo.mark_dynamic(w, 1)
    report = helion_inductor.explain(fn, x, w, options=OPTIONS)
    assert "product-sizes" in {r.code for r in report.refusals}


def test_gradients_through_a_product(device: str) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(F.rms_norm(x, (24,)) @ w.t()).square().sum()

    x, w = (t.requires_grad_() for t in tensors(device, torch.float32, (2, 24), (12, 24)))
    want = torch.autograd.grad(fn(x, w), (x, w))
    got = torch.autograd.grad(run(fn, x, w), (x, w))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
