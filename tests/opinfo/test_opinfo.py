"""A quick part of the OpInfo sweep: ops that between them use every kind of statement, in two dtypes each.

``expected.json`` holds the class of every (op, dtype); an op that leaves its region, or enters one, must change it:

    pytest tests/opinfo --accept -p no:xdist

``swept.json`` holds the classes of the whole database, as ``python -m tests.opinfo.sweep --save`` last wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from helion_inductor import compat
from tests.opinfo.outcome import Outcome, difference
from tests.opinfo.sweep import SWEPT, dtypes_of, op_database, read_log, run_in_child, warmed_up, worst
from tests.opinfo.table import COLUMNS, classes, table

EXPECTED = Path(__file__).parent / "expected.json"
QUICK = [
    "abs", "acos", "add", "addcmul", "all", "allclose", "amax", "aminmax", "any", "arange", "argmax", "argmin",
    "as_strided_scatter", "atan2", "bernoulli", "bitwise_and", "bitwise_left_shift", "bitwise_not",
    "bitwise_right_shift", "bucketize", "cat", "clamp", "constant_pad_nd", "copysign", "count_nonzero", "cummax",
    "cumprod", "cumsum", "diff", "digamma", "div.floor_rounding", "div.no_rounding_mode", "div.trunc_rounding",
    "empty_like", "eq", "erfinv", "exp", "expm1", "eye", "fft.fft", "flip", "float_power", "floor_divide", "fmod",
    "frexp", "full_like", "gather", "gt", "heaviside", "hypot", "igamma", "index_add", "index_copy", "index_put",
    "index_select", "isinf", "ldexp", "lerp", "lgamma", "logaddexp", "logcumsumexp", "logical_xor", "logsumexp",
    "masked_fill", "max.reduction_with_dim", "mm", "nan_to_num", "native_layer_norm", "nextafter",
    "nn.functional.avg_pool2d", "nn.functional.embedding", "nn.functional.gelu",
    "nn.functional.interpolate.bilinear", "nn.functional.interpolate.nearest", "nn.functional.max_pool2d",
    "nn.functional.nll_loss", "nn.functional.pad.circular", "nn.functional.pad.reflect", "norm", "permute", "pow",
    "prod", "rand_like", "remainder", "roll", "round.decimals_3", "rsqrt", "scatter", "scatter_add",
    "select_scatter", "sgn", "sigmoid", "sign", "signbit", "softmax", "sort", "special.airy_ai",
    "special.chebyshev_polynomial_t", "special.i1", "special.ndtri", "special.polygamma.special_polygamma_n_0",
    "special.zeta", "std_mean", "sub", "sum", "tril", "true_divide", "trunc", "unfold_copy", "var", "view", "where",
    "xlogy", "zeros_like",
]  # fmt: skip
TABLE = {(op.full_name, str(d).removeprefix("torch.")): (op, d) for op in op_database() for d in dtypes_of(op, ["float32", "second"])}
CHOSEN = [key for key in TABLE if key[0] in QUICK]


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    if not compat.interpreting():
        pytest.skip("the samples are CPU tensors: they need Triton's interpreter")
    with warmed_up():
        yield


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


def test_sweep_has_every_op_once_and_none_wrong() -> None:
    swept: dict[str, dict[str, list[str]]] = json.loads(SWEPT.read_text())
    for row, columns in swept.items():
        assert list(columns) == list(COLUMNS)
        names = [n for listed in columns.values() for n in listed]
        assert sorted(names) == sorted(op.full_name for op in op_database() if dtypes_of(op, [row])), row
        assert not columns["wrong"] and not columns["crashed"], row


def test_log_is_read_as_far_as_it_holds(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    outcome = Outcome("add", "float32", 0, "region", compared=True)
    entry = {"made_by": "this code", "op": "add", "row": "float32", "outcomes": [outcome.record()]}
    stale, cut = {**entry, "op": "sub", "made_by": "other code"}, json.dumps({**entry, "op": "mul"})[:-2]
    log.write_text(f"{json.dumps(entry)}\n{json.dumps(stale)}\n{cut}")
    done = read_log(log, "this code")
    assert list(done) == [("add", "float32")] and log.read_text().endswith("\n")
    (read,) = done["add", "float32"]
    assert (read.op, read.status, read.compared) == ("add", "region", True)


def test_table_counts_every_op_in_one_column() -> None:
    rows = {"float32": {"add": Outcome("add", "float32", 0, "region"), "mm": Outcome("mm", "float32", 0, "extern", compared=True),
                        "sort": Outcome("sort", "float32", 1, "timeout")}}  # fmt: skip
    line = table(rows).splitlines()[1].split()
    assert line == ["float32", "3", "2", "1", "0", "0", "1", "0", "0", "0", "1"]
    assert json.loads(classes(rows))["float32"]["crashed"] == ["sort"]


def test_half_results_may_be_as_far_from_the_precise_one_as_eager() -> None:
    precise = torch.tensor([100.0, 0.01])
    eager, ours, wrong = (torch.tensor(v, dtype=torch.float16) for v in ([100.5, 0.01], [100.0, 0.3], [100.0, 0.8]))
    assert not difference(ours, eager, precise)
    assert difference(wrong, eager, precise) and difference(ours, eager)
    assert difference(torch.tensor([100.0, torch.inf]).half(), eager, precise)
