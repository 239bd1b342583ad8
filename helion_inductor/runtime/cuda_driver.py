"""The CUDA driver's library, for the few questions that torch and triton do not ask."""

from __future__ import annotations

import ctypes
import functools

import torch

from ..errors import HelionError


@functools.cache
def cuda_driver() -> ctypes.CDLL:
    if torch.version.hip is not None:
        raise HelionError("residency cannot be queried on ROCm: run phases as separate launches (cross_loop='off')")
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise HelionError(f"residency cannot be queried: the CUDA driver library did not load ({error})") from error


class _ExecAffinity(ctypes.Structure):
    """CUexecAffinityParam: a kind (0: a number of multiprocessors) and that number."""

    _fields_ = (("kind", ctypes.c_int), ("multiprocessors", ctypes.c_uint))


def context_multiprocessors() -> int | None:
    """Multiprocessors that the current context may use where it was given a share of the device, as MPS does; else None."""
    affinity = _ExecAffinity(0, 0)
    status = cuda_driver().cuCtxGetExecAffinity(ctypes.byref(affinity), ctypes.c_int(0))
    # Most contexts have no such limit, which the driver reports as an error.
    return affinity.multiprocessors if status == 0 and affinity.multiprocessors > 0 else None
