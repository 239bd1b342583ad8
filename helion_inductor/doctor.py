"""The doctor: what is installed here, what works, shown by trying it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import __version__, compat
from .backend import cpp_compiler, helion, kernel_store
from .device import describe
from .errors import HelionError
from .explaining import explain

CHECK_SECONDS = 300


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``state`` is "ok", "note" (worth knowing, nothing broken), "fail" or "info"."""

    what: str
    state: str
    text: str

    def __str__(self) -> str:
        mark = {"ok": "[ok]  ", "note": "[note]", "fail": "[FAIL]", "info": "      "}[self.state]
        first, *more = self.text.splitlines() or [""]
        return "\n".join([f"{mark} {self.what:<18} {first}", *(f"{'':26}{line}" for line in more)])


def run_doctor() -> int:
    """Print every finding, then what will and will not work. Returns 0 if no check failed, else 1."""
    findings: list[Finding] = []
    for check in CHECKS:
        for finding in check():
            print(finding, flush=True)
            findings.append(finding)
    print("", *conclusions(findings), sep="\n")
    return 1 if any(f.state == "fail" for f in findings) else 0


def _versions() -> list[Finding]:
    versions = [("helion_inductor", __version__), ("python", platform.python_version())]
    versions += [(name, _installed(name) or "not installed") for name in ("torch", "triton", "transformers")]
    return [
        Finding("versions", "info", ", ".join(f"{name} {v}" for name, v in versions)),
        Finding("platform", "info", platform.platform()),
    ]


def _device() -> list[Finding]:
    interpreter = Finding("interpreter", "info", "on (TRITON_INTERPRET)" if compat.interpreting() else "off")
    if not torch.cuda.is_available():
        built = (
            f"torch was built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch was built without CUDA"
        )
        return [Finding("device", "note", f"no GPU that torch can use; {built}"), interpreter]
    text = f"{describe('cuda')}, CUDA {torch.version.cuda}, driver {_driver()}"
    return [Finding("device", "ok", text), interpreter]


def _driver() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown (no nvidia-smi)"
    asked = subprocess.run(
        [tool, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    return (asked.stdout.split() or ["unknown"])[0]


def _entry_point() -> list[Finding]:
    # Not torch.compiler.list_backends(): importing the backend, as this file does, puts it there too.
    if importlib.metadata.entry_points(group="torch_dynamo_backends", name="helion"):
        return [Finding("entry point", "ok", "torch.compile knows the backend 'helion'")]
    text = (
        "the package is not installed here (pip install .): 'helion' is known only after import helion_inductor.backend"
    )
    return [Finding("entry point", "note", text)]


def _compiler() -> list[Finding]:
    found = cpp_compiler()
    if found is not None:
        return [Finding("C++ compiler", "ok", found)]
    text = (
        "none found (CXX, g++ or clang++): Inductor cannot compile CPU graphs, nor what this backend leaves to it there"
    )
    return [Finding("C++ compiler", "note" if torch.cuda.is_available() else "fail", text)]


def _cache() -> list[Finding]:
    root = kernel_store().root
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        return [
            Finding(
                "cache folder",
                "fail",
                f"{root} cannot be written: {error}\nset TORCHINDUCTOR_CACHE_DIR to a folder that can",
            )
        ]
    return [Finding("cache folder", "ok", str(root))]


def _models() -> list[Finding]:
    if importlib.util.find_spec("transformers") is not None:
        return [Finding("transformers", "ok", "there, for the demo")]
    return [Finding("transformers", "note", "not installed, so no demo: pip install 'helion_inductor[models]'")]


def _run() -> list[Finding]:
    """In a process of its own, which may switch the interpreter on and which may hang or crash."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = "on the GPU" if device == "cuda" else "in Triton's interpreter"
    code = f"from helion_inductor.doctor import tiny_run; print(tiny_run({device!r}))"
    command = [sys.executable, "-c", code]
    if device == "cpu":
        command = ["/usr/bin/env", "TRITON_INTERPRET=1", *command]
    try:
        run = subprocess.run(
            command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=CHECK_SECONDS
        )
    except subprocess.TimeoutExpired:
        return [Finding("compile and run", "fail", f"nothing came back within {CHECK_SECONDS} s {where}")]
    if run.returncode != 0:
        return [Finding("compile and run", "fail", f"{where}:\n" + "\n".join(run.stderr.strip().splitlines()[-8:]))]
    return [Finding("compile and run", "ok", f"{where}: {run.stdout.strip().splitlines()[-1]}")]


def two_loops(x: torch.Tensor) -> torch.Tensor:
    """f32[m, n] -> f32[m, n]: a reduction, and a loop that waits for it."""
    return torch.softmax(x, -1) + x.mean(0)


def tiny_run(device: str) -> str:
    """Compile ``two_loops``, compare it with eager, and say how far off it is. Raises HelionError where it is too
    far.
    """
    counts: list[int] = []
    x = torch.linspace(-3, 3, 37 * 50, device=device).view(37, 50)
    options: dict[str, Any] = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
    with helion.recording(lambda graph: counts.append(sum(len(r.kernels()) for r in graph.regions if r.taken))):
        error = float((torch.compile(two_loops, backend=helion, options=options)(x) - two_loops(x)).abs().max())
    if not sum(counts):
        raise HelionError("no kernel was made")
    if not error < 1e-5:
        raise HelionError(f"the result is wrong: it differs from eager by {error:.1e}")
    return f"{sum(counts)} kernels, largest difference from eager {error:.1e}"


def _offline() -> list[Finding]:
    try:
        kernels = explain(two_loops, torch.zeros(512, 1024), options={"regions": "all", "on_error": "raise"}).kernels
        used = kernels[0].resources("sm_90")
    except (HelionError, RuntimeError, OSError) as error:
        return [Finding("compile offline", "fail", f"for sm_90: {error}")]
    return [
        Finding(
            "compile offline",
            "ok",
            f"for sm_90: {used.registers} registers, {used.shared_bytes} bytes of shared memory, no GPU needed",
        )
    ]


Check = Callable[[], list[Finding]]
CHECKS: Sequence[Check] = (_versions, _device, _entry_point, _compiler, _cache, _models, _run, _offline)


def conclusions(findings: Sequence[Finding]) -> list[str]:
    """Plain sentences on what these findings mean for a user."""
    state = {f.what: f.state for f in findings}
    gpu, runs = state.get("device") == "ok", state.get("compile and run") == "ok"
    name = "backend='helion'" if state.get("entry point") == "ok" else "backend=helion_inductor.backend.helion"
    broken = "does not work here; see the failed check above"
    on_gpu = ("works" if runs else broken) if gpu else "needs a GPU, and there is none"
    if not gpu and not runs:
        on_cpu = broken
    elif state.get("C++ compiler") != "ok":
        on_cpu = "does not work: there is no C++ compiler"
    else:
        on_cpu = (
            "works in Triton's interpreter (TRITON_INTERPRET=1), slowly; without it graphs go to Inductor untouched"
        )
    if not runs:
        demo = broken
    elif state.get("transformers") != "ok":
        demo = "needs transformers: pip install 'helion_inductor[models]'"
    else:
        demo = "works" if gpu or state.get("C++ compiler") == "ok" else "needs a C++ compiler, or a GPU"
    offline = "work" if state.get("compile offline") == "ok" else broken
    return [
        f"torch.compile(..., {name}) on CUDA tensors: {on_gpu}",
        f"torch.compile(..., {name}) on CPU tensors: {on_cpu}",
        f"helion_inductor.explain and kernel.resources('sm_90'): {offline}",
        f"python -m helion_inductor (the demo): {demo}",
    ]


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
