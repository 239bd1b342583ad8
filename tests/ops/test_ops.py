"""Every opcode's arity, result dtype and meaning against eager PyTorch, on special values of every dtype it takes."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from helion_inductor.errors import UnsupportedError
from helion_inductor.ir.ops import OPS, result_dtype
from tests.ops.op_cases import accepted, differences, operands, same
from tests.ops.references import reference

_RANDOM = ("rand", "randn", "randint64")


@pytest.mark.parametrize("op", [n for n in OPS if n not in _RANDOM])
def test_matches_eager(op: str) -> None:
    cases = list(accepted(op))
    assert cases, "no operand dtypes are accepted"
    for case in cases:
        inputs = operands(case)
        actual, expected = case.evaluate(*inputs), reference(case, *inputs)
        assert actual.dtype == case.result, f"{case} gave {actual.dtype}"
        if op in ("maximum", "minimum", "fma") and actual.is_floating_point():
            # Eager itself is of two minds about which zero is the greater; f64 fma loses the sign of what underflows.
            actual, expected = actual + 0, expected + 0
        assert same(actual, expected), f"{case}: {differences(actual, expected, inputs)}"


def test_operands_broadcast() -> None:
    for case in (c for op in OPS if op not in _RANDOM for c in accepted(op)):
        inputs = [x[:2] for x in operands(case)]
        shaped = [x.reshape([-1 if i == k else 1 for k in range(len(inputs))]) for i, x in enumerate(inputs)]
        assert case.evaluate(*shaped).shape == torch.broadcast_shapes(*(x.shape for x in shaped)), case


@pytest.mark.parametrize(
    ("op", "dtypes", "attrs", "message"),
    [
        ("nonesuch", (torch.float32,), (), "no opcode nonesuch"),
        ("add", (torch.float32,), (), "add takes 2 operands, not 1"),
        ("add", (torch.float32, torch.int32), (), "operands must have one dtype"),
        ("exp", (torch.int32,), (), "exp(int32): operands must have one of: float32, float64"),
        ("sub", (torch.bool, torch.bool), (), "operands must have one of"),
        ("exp", (torch.float16,), (), "operands must have one of"),
        ("cast", (torch.float32,), (torch.float16,), "casts between compute dtypes"),
        ("cast", (torch.float32,), (), "takes 1 attribute"),
        ("round_to", (torch.float64,), (torch.float16,), "rounds f32 to a shorter float"),
        ("bitcast", (torch.float32,), (torch.float32, torch.int16), "one width"),
        ("where", (torch.int32, torch.int32, torch.int32), (), "condition must be bool"),
        ("rand", (torch.int32, torch.int32), (), "int64 seed"),
    ],
)
def test_refuses(op: str, dtypes: tuple[torch.dtype, ...], attrs: tuple[object, ...], message: str) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        result_dtype(op, dtypes, attrs)
    assert message in str(refusal.value)


def test_table_is_sealed() -> None:
    with pytest.raises(TypeError):
        OPS["add"] = OPS["sub"]  # type: ignore[index]
    assert all(name == op.name for name, op in OPS.items())


_UINT64 = st.integers(0, 2**64 - 1)


@given(_UINT64, _UINT64.filter(bool), st.integers(0, 64))
def test_uint64_division(a: int, b: int, shift: int) -> None:
    x, y = torch.tensor([a], dtype=torch.uint64), torch.tensor([b >> shift or 1], dtype=torch.uint64)
    b = int(y.item())
    dtypes = (torch.uint64, torch.uint64)
    assert OPS["floordiv"].evaluate(x, y, dtype=result_dtype("floordiv", dtypes)).item() == a // b
    assert OPS["remainder"].evaluate(x, y, dtype=result_dtype("remainder", dtypes)).item() == a % b


def test_philox_known_answers() -> None:
    from helion_inductor.random_math import philox

    # The published test vectors of Philox4x32-10 whose counter has three zero words.
    words = philox(torch.tensor([0]), torch.tensor([0]))
    assert [int(w.item()) for w in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_random_ranges() -> None:
    seed, offset = torch.tensor([1234567890123]), torch.arange(4096)
    uniform = OPS["rand"].evaluate(seed, offset, dtype=torch.float32)
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    normal = OPS["randn"].evaluate(seed, offset, dtype=torch.float32)
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05
    bounds = torch.tensor([-7]), torch.tensor([9])
    whole = OPS["randint64"].evaluate(seed, offset, *bounds, dtype=torch.int64)
    assert set(whole.tolist()) == set(range(-7, 9))


def test_lanes_take_all_words_of_a_counter() -> None:
    seed, offset = torch.tensor([99]), torch.arange(64)
    for op in ("rand", "randn"):
        lanes = OPS[op].evaluate(seed, offset, attrs=(4,), dtype=torch.float32)
        first = OPS[op].evaluate(seed, offset[:16], dtype=torch.float32)
        assert torch.equal(lanes[::4], first)
        assert len(set(lanes.tolist())) == 64
