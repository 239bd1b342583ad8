"""What an exported file does when it is run: compare its kernels with eager PyTorch, and time both."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .measure import differs, made, median_us

_Run = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor], Sequence[int]], None]


@dataclass(frozen=True)
class Exported:
    """A region: `run(inputs, outputs, sizes)` launches its kernels, `reference(*tensors)` computes the outputs eagerly.

    `tensors` specifies all tensors by name, as `measure.made` takes them. An output in an input's place has the input's values
    at first, and is not among `inputs`; `given` names what the reference takes.
    """

    name: str
    run: _Run
    reference: Callable[..., Sequence[torch.Tensor]]
    tensors: Mapping[str, Mapping[str, Any]]
    inputs: Sequence[str]
    outputs: Sequence[str]
    given: Sequence[str]

    def prepared(self, device: str) -> tuple[Callable[[], list[torch.Tensor]], Callable[[], Sequence[torch.Tensor]]]:
        """Calls of the kernels and of the reference, each on fresh tensors of its own."""
        ours, theirs = ({n: made(spec, device) for n, spec in self.tensors.items()} for _ in range(2))

        def kernels() -> list[torch.Tensor]:
            outputs = [ours[n] for n in self.outputs]
            self.run([ours[n] for n in self.inputs], outputs, ())
            return outputs

        def eager() -> Sequence[torch.Tensor]:
            with torch.no_grad():
                return self.reference(*(theirs[n] for n in self.given))

        return kernels, eager


def main(exported: Exported) -> int:
    """Prints the check and the times; returns 0 if all outputs agree, else 1."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.cuda.get_device_name() if device == "cuda" else "Triton's interpreter (there is no GPU)"
    print(f"{exported.name} on {where}")
    kernels, eager = exported.prepared(device)
    actual, expected = kernels(), eager()
    problem = differs(actual, expected)
    for name, a, e in zip(exported.outputs, actual, expected, strict=True):
        error = float((a.double() - e.double()).abs().nan_to_num(0.0).max()) if a.numel() else 0.0
        print(f"  {name}: {tuple(a.shape)} {a.dtype}, greatest difference from eager {error:.3g}")
    if problem is not None:
        print(f"WRONG: {problem}", file=sys.stderr)
        return 1
    print("  check: all outputs agree with eager")
    if device == "cuda":
        print(f"  time: kernels {median_us(kernels, device):.2f} us, eager {median_us(eager, device):.2f} us (replayed CUDA graphs)")
    else:
        print(f"  time: kernels {_once_us(kernels):.0f} us interpreted, eager {_once_us(eager):.0f} us on the CPU")
    return 0


def _once_us(call: Callable[[], Any]) -> float:
    """Wall time of a call in microseconds, the median of three: the interpreter is too slow for more."""
    times = []
    for _ in range(3):
        before = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - before))
    return statistics.median(times)
