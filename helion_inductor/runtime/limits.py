"""Launches that no device takes: grids out of range, kernels that need more than one multiprocessor gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.errors import OutOfResources

from ..errors import HelionError, LaunchRejected

MAX_GRID_X = 2**31 - 1
MAX_GRID_YZ = 65535


def is_empty(name: str, blocks: tuple[int, ...]) -> bool:
    """True for an empty grid; raises LaunchRejected for one that no device takes."""
    if min(blocks) < 0:
        raise LaunchRejected(f"{name} has a negative grid {blocks}", required=min(blocks), available=MAX_GRID_X)
    if min(blocks) == 0:
        return True
    smaller = ("use larger tiles", "use pid_type='persistent_interleaved': its grid does not grow with sizes")
    for axis, size, limit in zip("xyz", blocks, (MAX_GRID_X, MAX_GRID_YZ, MAX_GRID_YZ), strict=True):
        if size > limit:
            raise LaunchRejected(
                f"{name} asks for {size} programs along grid dimension {axis}, the limit is {limit}",
                required=size,
                available=limit,
                hints=smaller if axis == "x" else ("put the tiles of all axes on grid dimension x", *smaller),
            )
    total = blocks[0] * blocks[1] * blocks[2]
    # Triton multiplies the dimensions as 32-bit ints and silently launches nothing where that overflows.
    raise LaunchRejected(
        f"{name} asks for {blocks[0]} x {blocks[1]} x {blocks[2]} = {total} programs, the limit is {MAX_GRID_X}",
        required=total,
        available=MAX_GRID_X,
        hints=smaller,
    )


def out_of_resources(name: str, error: OutOfResources) -> LaunchRejected:
    return LaunchRejected(
        f"{name} needs more {error.name} than one multiprocessor gives a program",
        required=error.required,
        available=error.limit,
        shared_memory=error.required if error.name == "shared memory" else None,
        hints=("use smaller tiles", "use fewer stages (num_stages) or warps (num_warps)"),
    )


def refusal_reported(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`run` with the driver's refusal of a cooperative grid as LaunchRejected; nothing was launched then."""

    def launch(*args: Any, **options: Any) -> Any:
        try:
            return run(*args, **options)
        except RuntimeError as error:
            if "cooperative" not in str(error):
                raise
            raise refused(name, error) from error

    return launch


def refused(name: str, error: RuntimeError) -> HelionError:
    """Residency was asked and found sufficient before; so the stream has less than its device."""
    return HelionError(
        f"the driver refused the cooperative grid of {name} ({error}), which would fit the device: the stream may belong to a "
        "green context, or the process share the device. Leave more room with reserved_sms, or run the phases as separate "
        "launches (cross_loop='off')"
    )
