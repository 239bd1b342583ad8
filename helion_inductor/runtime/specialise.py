"""What Triton specialises a kernel on, as a key: launches with equal keys run the same compiled kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
import triton.language as tl

from ..errors import HelionError

NO_DEVICE = -2
CPU = -1  # what Tensor.get_device() says of CPU tensors
_PLAIN_CONSTEXPRS = frozenset((int, bool, str, type(None), tl.dtype))


class Parameters(Protocol):
    """A kernel's name, and for each of its parameters whether it is a constexpr."""

    name: str
    is_constexpr: tuple[bool, ...]


def specialise(
    kernel: Parameters, args: Sequence[Any], constexprs: Mapping[str, Any]
) -> tuple[tuple[Any, ...] | None, int, list[Any]]:
    """What Triton's specialisation depends on, the device of the tensors, and the arguments with tensors as addresses.

    The key is None where an argument is of a kind whose specialisation is Triton's business alone: such launches always
    go through its JIT. Runs on every launch, hence one flat loop.
    """
    flags = kernel.is_constexpr
    if len(args) > len(flags):
        raise TypeError(f"{kernel.name} takes {len(flags)} arguments, got {len(args)}")
    key: list[Any] = [0, len(args)]
    values: list[Any] = []
    index = NO_DEVICE
    plain = torch.version.hip is None  # on ROCm the specialisation also depends on the size of the storage
    for value, fixed in zip(args, flags, strict=False):
        kind = value.__class__
        if fixed:
            plain = _add_constexpr(key, kind, value) and plain
        elif isinstance(value, torch.Tensor):
            device = value.get_device()
            if device != index:
                if index != NO_DEVICE:
                    raise HelionError(f"{kernel.name} got tensors on different devices: {_devices(args)}")
                index = device
            key.append(value.dtype)
            value = value.data_ptr()
            key.append(value & 15 == 0)
        elif kind is int:
            key.append(int_class(value))
        elif kind is float or kind is bool or value is None:
            key.append(kind)
        else:
            plain = False
        values.append(value)
    for parameter, value in constexprs.items():
        key.append(parameter)
        plain = _add_constexpr(key, value.__class__, value) and plain
    key[0] = index
    return (tuple(key) if plain and index != NO_DEVICE else None), index, values


def _add_constexpr(key: list[Any], kind: type, value: Any) -> bool:
    """Adds the value of a constexpr with its type (True and 1 are different kernels). False for unknown types."""
    if kind is float:
        value = value.hex()  # tells 0.0 from -0.0, and nan equals itself
    elif kind not in _PLAIN_CONSTEXPRS:
        return False
    key.append(kind)
    key.append(value)
    return True


def int_class(value: int) -> int:
    """Triton specialises ints on being 1, on divisibility by 16, and on the width it passes them in."""
    if value == 1:
        return 8
    if -(2**31) <= value < 2**31:
        return value & 15 == 0
    return (value & 15 == 0) + (4 if value >= 2**63 else 2)


def _devices(args: Sequence[Any]) -> str:
    return ", ".join(f"argument {i} on {a.device}" for i, a in enumerate(args) if isinstance(a, torch.Tensor))
