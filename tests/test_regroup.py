"""Kernels whose compiled registers lower the occupancy of most of their tasks are cut in two."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from helion_inductor import explain, inspecting
from helion_inductor.ir.schedule_ir import KernelSchedule
from helion_inductor.ir.tile_ir import TileProgram
from helion_inductor.ir.verify_schedule import verify_schedules
from helion_inductor.pipeline import CompiledRegion
from helion_inductor.scheduling.device_model import H200_MODEL
from helion_inductor.scheduling.regroup import Compiled, regroup
from helion_inductor.scheduling.resources import resources_of
from tests.measured_programs import NORM, POINTWISE, independent, side_by_side, together


def mixed() -> tuple[TileProgram, KernelSchedule]:
    """Many light loops, and a layer norm whose rows take many registers, @n24, in one kernel."""
    program = side_by_side([*[(POINTWISE, 2048, 1024)] * 24, (NORM, 64, 4096)])
    (schedule,) = together(program)
    return program, schedule


def test_as_expected_nothing_changes() -> None:
    program, schedule = mixed()
    estimate = resources_of(schedule, program)
    assert regroup([schedule], program, {"k0": Compiled(estimate.registers)}) == ((schedule,), ())
    assert regroup([schedule], program, {}) == ((schedule,), ())


def test_the_hungry_task_gets_a_kernel_of_its_own() -> None:
    program, schedule = mixed()
    kernels, (decision,) = regroup([schedule], program, {"k0": Compiled(255, 64)})
    verify_schedules(kernels, program)
    assert [k.name for k in kernels] == ["k0", "k1"]
    assert [t.nest for t in kernels[1].tasks()] == ["n24"] and len(kernels[0].tasks()) == 24
    assert not decision.joined and "255 registers a thread and 64 bytes spilled" in decision.reason


def test_tasks_that_are_alike_stay_together() -> None:
    program = independent(POINTWISE, [(64, 1024)] * 8)
    (schedule,) = together(program)
    kernels, (decision,) = regroup([schedule], program, {"k0": Compiled(255)})
    assert kernels == (schedule,) and decision.joined and "no less apart" in decision.reason


def test_later_kernels_are_numbered_anew() -> None:
    program, schedule = mixed()
    other = replace(schedule, name="k1")
    kernels, _ = regroup([schedule, other], program, {"k0": Compiled(255)})
    assert [k.name for k in kernels] == ["k0", "k1", "k2"]


def region() -> CompiledRegion:
    """Loops of two forms that the estimates put into one kernel."""
    light, heavy = [torch.empty(256, 1024) for _ in range(24)], torch.empty(64, 4096)
    report = explain(lambda xs, y: ([x.tanh() for x in xs], y.softmax(-1)), light, heavy, options={"regions": "all"})
    return report.regions[0].compiled


def test_a_device_that_kernels_cannot_be_compiled_for_is_left_alone() -> None:
    assert inspecting.compiled_kernels(region(), torch.device("cpu")) == {}


def test_a_region_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's word is made up here: no kernel of these two loops takes so many registers."""
    before = region()
    assert [len(s.tasks()) for s in before.schedules] == [2]
    monkeypatch.setattr(inspecting, "compiled_kernels", lambda region, device: {"k0": Compiled(255)})
    after = inspecting.regrouped(before, torch.device("cpu"), replace(H200_MODEL, launch_us=0.0))
    assert [[len(t.nests()) for t in s.tasks()] for s in after.schedules] == [[24], [1]]
    assert after.key != before.key and "_launch_k1" in after.source.module
    assert "compiled to 255 registers" in str(after.decisions[-1])
