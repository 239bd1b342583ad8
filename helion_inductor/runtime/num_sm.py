"""How many workers a persistent kernel may count on, and on how many chiplets they are."""

from __future__ import annotations

import functools

import torch

from ..errors import HelionError


def get_num_sm(device: torch.device | str, *, reserved_sms: int = 0) -> int:
    """Units of `device` that run programs side by side, less `reserved_sms`, and never less than 1.

    Streaming multiprocessors on cuda (compute units on ROCm), subslices on xpu, cores on mps, grid slots on mtia, and
    1 on cpu: Triton's interpreter runs programs one after another. Raises HelionError for other device kinds and
    ValueError for a negative reservation.
    """
    if reserved_sms < 0:
        raise ValueError(f"reserved_sms must not be negative, got {reserved_sms}")
    device = torch.device(device)
    index = device.index
    if index is None and device.type in ("cuda", "xpu"):
        index = torch.get_device_module(device).current_device()
    return max(1, _count(device.type, index) - reserved_sms)


@functools.cache
def _count(kind: str, index: int | None) -> int:
    if kind == "cpu":
        return 1
    if kind == "cuda":
        return torch.cuda.get_device_properties(index).multi_processor_count
    if kind == "xpu":
        return torch.xpu.get_device_properties(index).gpu_subslice_count
    if kind == "mps":
        return torch.backends.mps.get_core_count()
    if kind == "mtia":
        properties = torch.mtia.get_device_properties(index)
        return properties["max_grid_height"] * properties["max_grid_width"]
    raise HelionError(f"cannot count the workers of a {kind} device; known kinds: cuda, xpu, mps, mtia, cpu")


COMPUTE_UNITS_PER_XCD = {"gfx942": 38, "gfx950": 32, "gfx951": 32}
"""Compute units of one accelerator die (XCD) of AMD's MI300X, MI325X and MI300A, and of the MI350 series."""


def get_num_xcd(device: torch.device | str) -> int:
    """Chiplets of `device` to which consecutive programs go in turn, each with an L2 cache of its own.

    Worked out from the compute units that the device says it has, whole or partitioned: the nearest number of dies, if it is off by a
    quarter of a die at most. 1, with which nothing is remapped, on NVIDIA and on parts that are not known.
    """
    device = torch.device(device)
    if device.type != "cuda" or torch.version.hip is None:
        return 1
    return _xcds(torch.cuda.current_device() if device.index is None else device.index)


@functools.cache
def _xcds(index: int) -> int:
    properties = torch.cuda.get_device_properties(index)
    units = properties.multi_processor_count
    each = COMPUTE_UNITS_PER_XCD.get(properties.gcnArchName.split(":")[0])
    if each is None:
        return 1
    dies = (2 * units + each) // (2 * each)
    return dies if dies > 0 and 4 * abs(units - dies * each) <= each else 1
