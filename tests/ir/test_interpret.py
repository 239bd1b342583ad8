"""The interpreter against eager PyTorch, on programs written as text."""

from __future__ import annotations

import pytest
import torch

from helion_inductor.ir.interpret import interpret, reduce_tensor, scan_tensor
from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.verify import verify_program


def run(text: str, sizes: dict[str, int], **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    program = parse_program(text)
    verify_program(program)
    return interpret(program, tensors, sizes)


def test_softmax() -> None:
    x = torch.randn(5, 40)[:, :33].bfloat16()
    x = torch.empty_strided((5, 33), (40, 1), dtype=torch.bfloat16).copy_(x)
    got = run("""
        program @softmax(in x: bf16[M, K] strides(40, 1), out y: bf16[M, K]) sizes(M>=1~5, K>=1~33)
          nest @n0 parallel(m: M) reduce(k: K)
            %0: f32 = load x[40 * m + k]
            %1: f32 = reduce max(k) %0
            %2: f32 = sub(%0, %1)
            %3: f32 = exp(%2)
            %4: f32 = reduce sum(k) %3
            %5: f32 = truediv(%3, %4)
            store y[K * m + k] %5
        """, {"M": 5, "K": 33}, x=x)  # fmt: skip
    torch.testing.assert_close(got["y"], torch.softmax(x, -1))


def test_layer_norm() -> None:
    x, w, b = torch.randn(4, 6, 10), torch.randn(6, 10), torch.randn(6, 10)
    got = run("""
        program @layer_norm(in x: f32[4, 6, 10], in w: f32[6, 10], in b: f32[6, 10], out y: f32[4, 6, 10])
          nest @n0 parallel(m: 4) reduce(i: 6, j: 10)
            %0: f32 = load x[60 * m + 10 * i + j]
            %1: f32 = reduce sum(i, j) %0
            %2: f32 = const 60.0
            %3: f32 = truediv(%1, %2)
            %4: f32 = sub(%0, %3)
            %5: f32 = square(%4)
            %6: f32 = reduce sum(i, j) %5
            %7: f32 = truediv(%6, %2)
            %8: f32 = const 1e-05
            %9: f32 = add(%7, %8)
            %10: f32 = rsqrt(%9)
            %11: f32 = mul(%4, %10)
            %12: f32 = load w[10 * i + j]
            %13: f32 = load b[10 * i + j]
            %14: f32 = fma(%11, %12, %13)
            store y[60 * m + 10 * i + j] %14
        """, {}, x=x, w=w, b=b)  # fmt: skip
    torch.testing.assert_close(got["y"], torch.nn.functional.layer_norm(x, (6, 10), w, b))


GATHER = """
    program @gather(in x: f32[N, 3], in i: i64[5], out y: f32[5, 3]) sizes(N>=1~7)
      nest @n0 parallel(p: 5, q: 3)
        %0: i64 = load i[p]
        %1: i64 = const 0
        %2: bool = lt(%0, %1)
        %3: i64 = index N
        %4: i64 = add(%0, %3)
        %5: i64 = where(%2, %4, %0)
        check %5 in [0, N)
        %6: f32 = load x[3 * %5 + q]
        store y[3 * p + q] %6
    """


def test_gather_with_negative_index() -> None:
    x, i = torch.randn(7, 3), torch.tensor([0, -1, 6, -7, 3])
    assert torch.equal(run(GATHER, {"N": 7}, x=x, i=i)["y"], x[i])


@pytest.mark.parametrize("bad", [7, -8])
def test_gather_checks_its_index(bad: int) -> None:
    with pytest.raises(IndexError):
        run(GATHER, {"N": 7}, x=torch.randn(7, 3), i=torch.tensor([0, 1, 2, 3, bad]))


def test_cat_by_masks() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 5)
    got = run("""
        program @cat(in x: f32[2, 3], in y: f32[2, 5], out z: f32[2, 8])
          nest @n0 parallel(p: 2, q: 8)
            %0: i64 = index q
            %1: i64 = const 3
            %2: bool = lt(%0, %1)
            %3: f32 = load x[3 * p + q] mask %2 else 0.0
            %4: bool = logical_not(%2)
            %5: f32 = load y[5 * p + q - 3] mask %4 else nan
            %6: f32 = where(%2, %3, %5)
            store z[8 * p + q] %6
        """, {}, x=x, y=y)  # fmt: skip
    assert torch.equal(got["z"], torch.cat([x, y], 1))


def test_scatter_add() -> None:
    x, i = torch.randn(20, 4), torch.randint(0, 6, (20,))
    got = run("""
        program @scatter_add(in x: f32[20, 4], in i: i64[20], out y: f32[6, 4])
          nest @zero parallel(p: 24)
            %0: f32 = const 0
            store y[p] %0
          nest @add parallel(p: 20, q: 4)
            %0: i64 = load i[p]
            check %0 in [0, 6)
            %1: f32 = load x[4 * p + q]
            atomic add y[4 * %0 + q] %1
        """, {}, x=x, i=i)  # fmt: skip
    torch.testing.assert_close(got["y"], torch.zeros(6, 4).index_add(0, i, x))


def test_cumsum() -> None:
    x = torch.randint(-5, 5, (4, 9), dtype=torch.int32)
    got = run("""
        program @cumsum(in x: i32[4, 9], out y: i64[4, 9])
          nest @n0 parallel(p: 4) reduce(r: 9)
            %0: i32 = load x[9 * p + r]
            %1: i64 = cast(%0){i64}
            %2: i64 = scan sum(r) %1
            store y[9 * p + r] %2
        """, {}, x=x)  # fmt: skip
    assert torch.equal(got["y"], x.cumsum(1))


def test_in_place_update_of_a_transposed_input() -> None:
    x = torch.arange(12.0).reshape(3, 4).t()
    want = x * 2
    got = run("""
        program @double(in x: f32[4, 3] strides(1, 4), out y: f32[4, 3] strides(1, 4) aliases x)
          nest @n0 parallel(p: 4, q: 3)
            %0: f32 = load x[p + 4 * q]
            %1: f32 = add(%0, %0)
            store y[p + 4 * q] %1
        """, {}, x=x)  # fmt: skip
    assert got["y"] is x and torch.equal(x, want)


def test_a_value_that_does_not_vary_is_summed_for_each_point() -> None:
    got = run("""
        program @count(out y: f32[]) sizes(N>=0~3)
          nest @n0 parallel() reduce(r: N)
            %0: f32 = const 2.0
            %1: f32 = reduce sum(r) %0
            store y[0] %1
        """, {"N": 3})  # fmt: skip
    assert got["y"].item() == 6.0


def test_a_nest_of_no_points_does_nothing() -> None:
    got = run("""
        program @empty(in x: f32[N], out y: f32[N]) sizes(N>=0~3)
          nest @n0 parallel(p: N)
            %0: f32 = load x[0]
            store y[p] %0
        """, {"N": 0}, x=torch.empty(0))  # fmt: skip
    assert got["y"].shape == (0,)


@pytest.mark.parametrize(
    "access", ["%0: f32 = load x[p - 1]", "%0: f32 = load x[p + 1]", "store y[p - 1] %1", "store y[p + 1] %1"]
)
def test_an_access_outside_its_buffer_is_refused(access: str) -> None:
    with pytest.raises(IndexError, match="outside"):
        run(f"""
            program @p(in x: f32[4], out y: f32[4])
              nest @n0 parallel(p: 4)
                %1: f32 = const 0.0
                {access}
                store y[p] %1
            """, {}, x=torch.zeros(4))  # fmt: skip


def test_nests_may_run_in_another_order() -> None:
    program = parse_program("""
        program @p(out y: f32[1])
          nest @a parallel()
            %0: f32 = const 1.0
            store y[0] %0
          nest @b parallel()
            %0: f32 = const 2.0
            store y[0] %0
        """)
    assert interpret(program, {}, {})["y"].item() == 2.0
    assert interpret(program, {}, {}, order=[1, 0])["y"].item() == 1.0


@pytest.mark.parametrize(
    "dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.bool]
)
def test_copies_of_odd_dtypes(dtype: torch.dtype) -> None:
    bits = torch.arange(64, dtype=torch.uint8)
    x = (bits > 30) if dtype == torch.bool else bits.view(dtype)
    name = {torch.float8_e4m3fn: "f8e4m3fn", torch.float8_e8m0fnu: "f8e8m0fnu", torch.bool: "bool"}.get(
        dtype, f"u{dtype.itemsize * 8}"
    )
    value = "f32" if dtype.is_floating_point else name
    got = run(f"""
        program @copy(in x: {name}[N], out y: {name}[N]) sizes(N>=1~64)
          nest @n0 parallel(p: N)
            %0: {value} = load x[p]
            store y[p] %0
        """, {"N": x.numel()}, x=x)  # fmt: skip
    assert torch.equal(got["y"].view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_reductions(kind: str, dtype: torch.dtype) -> None:
    x = torch.randint(-9, 9, (3, 4, 5)).to(dtype)
    flat = x.reshape(3, 20)
    want = {"max": flat.amax, "min": flat.amin}.get(kind, getattr(flat, kind))(1).reshape(3, 1, 1)
    got = reduce_tensor(kind, x, [1, 2], torch.int64 if kind.startswith("arg") else dtype)
    assert torch.equal(got, want.to(got.dtype))


def test_reductions_of_unsigned_and_bool() -> None:
    x = torch.tensor([1, 2**64 - 1, 2**63], dtype=torch.uint64)
    found = {
        kind: reduce_tensor(kind, x, [0], torch.uint64).item()
        for kind in ("max", "min", "argmax", "argmin", "sum", "xor_sum")
    }
    assert found == {"max": 2**64 - 1, "min": 1, "argmax": 1, "argmin": 0, "sum": 2**63, "xor_sum": 2**63 - 2}
    flags = torch.tensor([[False, True], [False, False]])
    assert reduce_tensor("any", flags, [1], torch.bool).tolist() == [[True], [False]]
    assert reduce_tensor("argmax", flags, [1], torch.int64).tolist() == [[1], [0]]


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "logcumsumexp", "argmax", "argmin"])
def test_scans(kind: str) -> None:
    x = torch.randn(4, 6)
    want = {
        "sum": x.cumsum(0), "prod": x.cumprod(0), "logcumsumexp": x.logcumsumexp(0), "max": x.cummax(0).values,
        "min": x.cummin(0).values, "argmax": x.cummax(0).indices, "argmin": x.cummin(0).indices,
    }[kind]  # fmt: skip
    assert torch.equal(scan_tensor(kind, x, 0), want)
