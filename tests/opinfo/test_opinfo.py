"""A quick part of the OpInfo sweep: ops that between them use every kind of statement, in two dtypes each.

``expected.json`` holds the class of every (op, dtype); an op that leaves its region, or enters one, must change it:

    pytest tests/opinfo --accept -p no:xdist
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helion_inductor import compat
from tests.opinfo.sweep import dtypes_of, op_database, run_in_child, warm_up, worst

EXPECTED = Path(__file__).parent / "expected.json"
QUICK = [
    "abs", "acos", "add", "addcmul", "all", "allclose", "amax", "aminmax", "any", "arange", "argmax", "argmin",
    "as_strided_scatter", "atan2", "bernoulli", "bitwise_and", "bitwise_left_shift", "bitwise_not",
    "bitwise_right_shift", "bucketize", "cat", "clamp", "constant_pad_nd", "copysign", "count_nonzero", "cummax",
    "cumprod", "cumsum", "diff", "div.floor_rounding", "div.no_rounding_mode", "div.trunc_rounding", "empty_like",
    "eq", "erfinv", "exp", "expm1", "eye", "fft.fft", "flip", "float_power", "floor_divide", "fmod", "frexp",
    "full_like", "gather", "gt", "heaviside", "hypot", "index_add", "index_copy", "index_put", "index_select",
    "isinf", "ldexp", "lerp", "lgamma", "logaddexp", "logcumsumexp", "logical_xor", "logsumexp", "masked_fill",
    "max.reduction_with_dim", "mm", "nan_to_num", "native_layer_norm", "nextafter", "nn.functional.avg_pool2d",
    "nn.functional.embedding", "nn.functional.gelu", "nn.functional.interpolate.bilinear",
    "nn.functional.interpolate.nearest", "nn.functional.max_pool2d", "nn.functional.nll_loss",
    "nn.functional.pad.circular", "nn.functional.pad.reflect", "norm", "permute", "pow", "prod", "rand_like",
    "remainder", "roll", "round.decimals_3", "rsqrt", "scatter", "scatter_add", "select_scatter", "sgn", "sigmoid",
    "sign", "signbit", "softmax", "sort", "special.i1", "special.ndtri", "special.polygamma.special_polygamma_n_0",
    "std_mean", "sub", "sum", "tril", "true_divide", "trunc", "unfold_copy", "var", "view", "where", "xlogy",
    "zeros_like",
]  # fmt: skip
TABLE = {(op.full_name, str(d).removeprefix("torch.")): (op, d) for op in op_database() for d in dtypes_of(op, ["float32", "second"])}
CHOSEN = [key for key in TABLE if key[0] in QUICK]


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    if not compat.interpreting():
        pytest.skip("the samples are CPU tensors: they need Triton's interpreter")
    warm_up()


@pytest.mark.parametrize("key", CHOSEN, ids="-".join)
def test_op(key: tuple[str, str], request: pytest.FixtureRequest) -> None:
    op, dtype = TABLE[key]
    outcome = worst(run_in_child(op, dtype, 1, partial=False, timeout=300))
    assert outcome.status not in ("crash", "timeout", "wrong"), "\n".join(outcome.reasons)
    expected: dict[str, Any] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    name = " ".join(key)
    if request.config.getoption("--accept"):
        EXPECTED.write_text(json.dumps(dict(sorted((expected | {name: outcome.status}).items())), indent=1) + "\n")
    else:
        again = "if this is right: pytest tests/opinfo --accept -p no:xdist"
        assert outcome.status == expected.get(name), f"{name}: {outcome.reasons}; {again}"


def test_expected_names_just_the_quick_part() -> None:
    assert set(json.loads(EXPECTED.read_text())) == {" ".join(key) for key in CHOSEN}
    assert {name for name, _ in CHOSEN} == set(QUICK)
