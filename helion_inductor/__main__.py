"""``python -m helion_inductor``: the demo; ``python -m helion_inductor doctor``: what works on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import HelionError

DESCRIPTION = """demo (the default): compile Qwen3 and BERT models made from small configurations, and a training step,
compare them with eager PyTorch, and time them where there is a GPU. doctor: say what will and will not work here.
In Python, helion_inductor.explain shows what is made of a function, and helion_inductor.export writes it as a file that needs
torch and triton only."""
EPILOG = """Exit status: 0 if all is well, 1 if a result differs from eager or a check fails, 2 if something needed is
missing."""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m helion_inductor", description=DESCRIPTION, epilog=EPILOG)
    result.add_argument("command", nargs="?", choices=("demo", "doctor"), default="demo")
    result.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where the demo runs (default: the GPU if there is one)",
    )
    result.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="DIR",
        help="folder for the generated kernels (default: out/demo)",
    )
    result.add_argument("--quick", action="store_true", help="the smallest models that still show everything")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    chosen = parser().parse_args(arguments)
    if chosen.command == "doctor":
        return _doctor()
    try:
        device = _device(chosen.device)
        from .demo import run_demo

        return run_demo(device, chosen.out, chosen.quick)
    except HelionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _doctor() -> int:
    try:
        from .doctor import run_doctor
    except (ImportError, OSError) as error:
        # torch makes its cache folder while it is imported.
        print(f"[FAIL] torch and triton cannot be imported: {error}")
        print("is the folder that TORCHINDUCTOR_CACHE_DIR names writable?")
        return 1
    return run_doctor()


def _device(wanted: str) -> str:
    """Settled before anything imports triton, which decides then whether it interprets kernels."""
    import torch

    from .options import interpret_kernels

    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise HelionError("there is no CUDA device; --device cpu uses Triton's interpreter")
    device = "cuda" if wanted == "cuda" or (wanted == "auto" and available) else "cpu"
    if device == "cpu":
        interpret_kernels()
    return device


if __name__ == "__main__":
    sys.exit(main())
