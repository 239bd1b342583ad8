"""The text that hands virtual pids to programs, run and compared with ``program_pids``: the same steps, written and evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helion_inductor.codegen.programs import Call, PhaseText
from helion_inductor.ir.index import integer
from helion_inductor.ir.pid_map import program_pids, remapped
from helion_inductor.ir.schedule_ir import PID_TYPES, KernelSchedule, Phase, Task, TileDim
from helion_inductor.ir.tile_ir import Axis, LoopNest, TileProgram
from helion_inductor.runtime.precompile import KernelRequest, Resources, compile_offline_many
from tests.codegen.generated import DEVICE, _imported
from tests.golden.functions import report

HEAD = """import torch
import triton
import triton.language as tl


@triton.jit
def _record(pid, first, out_ptr):
    tl.store(out_ptr + first + pid, tl.program_id(0))


"""


def recording_kernel(pid_type: str, tiles: list[int], weights: list[int], *, remap: bool) -> str:
    """A kernel that stores, for each virtual pid, the program that worked on it."""
    nests = tuple(LoopNest(f"n{k}", (Axis("p", integer(n)),), (), ()) for k, n in enumerate(tiles))
    phase = Phase(tuple(Task(f"n{k}", (TileDim("x", ("p",), 1, "parallel"),), weight=w) for k, w in enumerate(weights)))
    schedule = KernelSchedule("k", pid_type, 1, 1, (phase,), xcd_remap=remap)
    calls = [Call("_record", (str(sum(tiles[:k])), "out_ptr")) for k in range(len(tiles))]
    text = PhaseText(schedule, phase, calls, TileProgram("p", (), (), nests))
    parameters = "out_ptr, XCDS: tl.constexpr" if remap else "out_ptr"
    return HEAD + "\n".join([*text.functions(), "@triton.jit", f"def kernel({parameters}):", *text.lines()]) + "\n"


@given(
    st.sampled_from(PID_TYPES), st.lists(st.integers(0, 9), min_size=1, max_size=4), st.lists(st.integers(1, 9), min_size=4, max_size=4),
    st.integers(1, 9), st.none() | st.integers(1, 4),
)  # fmt: skip
def test_programs_run_what_they_should(pid_type: str, tiles: list[int], weights: list[int], programs: int, xcds: int | None) -> None:
    weights, total = weights[: len(tiles)], sum(tiles)
    if total == 0:
        return
    grid = total if pid_type == "flat" else programs
    module = _imported(recording_kernel(pid_type, tiles, weights, remap=xcds is not None))
    out = torch.full((total,), -1, dtype=torch.int32, device=DEVICE)
    module.kernel[(grid,)](out, *(() if xcds is None else (xcds,)))  # type: ignore[attr-defined]
    want = [-1] * total
    for program in range(grid):
        worker = program if xcds is None else remapped(program, grid, xcds)
        for pid in program_pids(pid_type, worker, grid, tiles, weights):
            want[pid] = program
    assert out.tolist() == want


@pytest.mark.parametrize("name", ["grouped_tiles", "grouped_tiles_dynamic", "two_loops_blocked"])
def test_numberings_compile_without_spills(name: str, tmp_path: Path) -> None:
    """Chiplets and 64-bit numbers included, which an H200 and small sizes do without."""
    (kernel,) = report(name).kernels
    module = tmp_path / "module.py"
    module.write_text(kernel.source, encoding="utf-8")
    plain = kernel.request(str(module))
    requests: list[KernelRequest] = [plain]
    for constant, value in (("XCDS", 8), ("WIDE", True)):
        if constant in plain.constexprs:
            requests.append(replace(plain, constexprs={**plain.constexprs, constant: value}))
    for result in compile_offline_many(requests):
        assert isinstance(result, Resources), result
        assert result.spill_stores == result.spill_loads == result.stack_bytes == 0
