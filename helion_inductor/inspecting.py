"""What the kernels of a region take once they are compiled for the device at hand, before anything is launched."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from .device import describe
from .ir.schedule_ir import KernelSchedule
from .pipeline import CompiledRegion, rescheduled
from .runtime.precompile import TARGETS, compile_offline
from .scheduling.device_model import DeviceModel
from .scheduling.regroup import Compiled, regroup
from .signatures import kernel_request


def compiled_kernels(region: CompiledRegion, device: torch.device) -> Mapping[str, Compiled]:
    """Registers of those kernels of ``region`` that several tasks share, by the name of the schedule; none for a device for
    which kernels cannot be compiled without launching them.

    Triton keeps what it compiles here in its own cache, so that the first launch finds it there.
    """
    target = "sm_{}{}".format(*describe(device).capability)
    if device.type != "cuda" or target not in TARGETS or not any(map(_shared, region.schedules)):
        return {}
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"helion_inductor_inspected_{region.key}.py"
        path.write_text(region.source.module)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for schedule, kernel in zip(region.schedules, region.source.kernels, strict=True):
            if _shared(schedule):
                r = kernel_request(region.source, region.program, schedule, kernel.name, str(path), target)
                found = compile_offline(
                    getattr(module, kernel.name), r.signature, r.constexprs, target=target, num_warps=r.num_warps,
                    num_stages=r.num_stages, divisible_by_16=r.divisible_by_16,
                )  # fmt: skip
                result[schedule.name] = Compiled(found.registers, (found.spill_stores or 0) + (found.spill_loads or 0))
    return result


def _shared(schedule: KernelSchedule) -> bool:
    """Whether a kernel could be cut in two: several tasks share its one phase."""
    return len(schedule.phases) == 1 and len(schedule.tasks()) > 1


def regrouped(region: CompiledRegion, device: torch.device, model: DeviceModel) -> CompiledRegion:
    """The region with kernels cut in two where the compiled ones turn out to lower the occupancy of most of their tasks."""
    schedules, decisions = regroup(region.schedules, region.program, compiled_kernels(region, device), model)
    return rescheduled(region, schedules, decisions) if schedules != region.schedules or decisions else region
