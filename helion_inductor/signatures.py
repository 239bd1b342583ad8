"""Argument types of generated kernels, for compiling them without arguments at hand."""

from __future__ import annotations

from .codegen.family_text import TABLE
from .codegen.triton_host import RegionSource
from .codegen.triton_kernel import STATE
from .ir.schedule_ir import KernelSchedule
from .ir.tile_ir import TileProgram
from .runtime.precompile import KernelRequest
from .runtime.precompiler import POINTER_TYPES


def kernel_request(source: RegionSource, program: TileProgram, schedule: KernelSchedule, name: str, path: str,
                   target: str) -> KernelRequest:  # fmt: skip
    """The typical specialisation: pointers, those in tables too, aligned to 16 bytes, sizes in 32 bits, offsets in 32 bits."""
    kernel = next(k for k in source.kernels if k.name == name)
    buffers = program.by_name()
    types = [POINTER_TYPES[buffers[b].dtype] for b in kernel.buffers]
    signature = dict(zip(kernel.buffer_pointers(), types, strict=True))
    signature |= {TABLE: "*i64"} if kernel.tables else {}
    signature |= {s: "i32" for s in kernel.sizes} | ({STATE: "*i32"} if kernel.phases > 1 else {})
    constexprs: dict[str, object] = {"WIDE": False} if kernel.takes_wide else {}
    constexprs |= {"XCDS": 8 if target.startswith("gfx") else 1} if kernel.takes_xcds else {}
    constexprs |= {t.aligned: True for t in kernel.tables}
    constexprs |= {"FIRST": 0, "LAST": kernel.phases} if kernel.phases > 1 else {}
    return KernelRequest(
        module=path, kernel=name, signature=signature, constexprs=constexprs, target=target, num_warps=schedule.num_warps,
        num_stages=schedule.num_stages, divisible_by_16=kernel.pointers(),
    )  # fmt: skip
