"""Compiling kernels without a GPU, and reading what they use: registers, stack, shared memory, occupancy.

`compile_offline` compiles in this process. It needs real JIT functions, which a process started with TRITON_INTERPRET=1
does not have; `compile_offline_source` and `compile_offline_many` therefore do the same in a fresh process:

    python -m helion_inductor.runtime.precompile  < request.json  > answer.json

    request: {"workers": 2, "kernels": [<the fields of KernelRequest>, ...]}
    answer:  {"results": [{"resources": <the fields of Resources>} or {"error": "..."}, ...]}   in the same order
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.errors import TritonError

from ..errors import HelionError
from .compile_pool import apart
from .occupancy import Sm, estimate_occupancy

TARGETS: Mapping[str, GPUTarget] = MappingProxyType(
    {
        "sm_80": GPUTarget("cuda", 80, 32),
        "sm_90": GPUTarget("cuda", 90, 32),
        "sm_100": GPUTarget("cuda", 100, 32),
        "gfx942": GPUTarget("hip", "gfx942", 64),
        "gfx950": GPUTarget("hip", "gfx950", 64),
    }
)
_SM: Mapping[str, Sm] = MappingProxyType({"sm_80": Sm(shared_per_sm=164 * 1024), "sm_90": Sm(), "sm_100": Sm()})

# What a kernel that does not compile raises; anything else is a bug and ends the process with its traceback.
_COMPILE_ERRORS = (
    TritonError, RuntimeError, TypeError, ValueError, AssertionError, LookupError, AttributeError, NameError,
    ImportError, SyntaxError, OSError,
)  # fmt: skip


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel uses on `target`.

    `registers` is per thread (vector registers on AMD), `stack_bytes` per thread, `shared_bytes` per program (LDS on
    AMD). Spills are bytes per thread on NVIDIA, spilled registers on AMD, None where the assembler's report could not
    be matched to the kernel. `occupancy` is the estimated number of programs per multiprocessor (an H200's for sm_90),
    None on AMD. `ptx` is the assembly text, AMD's on AMD.
    """

    target: str
    registers: int
    stack_bytes: int
    spill_stores: int | None
    spill_loads: int | None
    shared_bytes: int
    num_warps: int
    occupancy: int | None
    ptx: str
    ttgir: str


@dataclass(frozen=True)
class KernelRequest:
    """One kernel to compile: the JIT function `kernel` of the Python file `module`.

    `signature` gives Triton types ("*fp32", "i32", ...) of the parameters that are no constexprs, `constexprs` the
    values of the others; `divisible_by_16` names the pointers and ints that Triton may take to be multiples of 16. `options` are
    more of Triton's compile options, such as `debug`.
    """

    module: str
    kernel: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, object]
    target: str = "sm_90"
    num_warps: int = 4
    num_stages: int = 2
    divisible_by_16: tuple[str, ...] = ()
    launch_cooperative_grid: bool = False
    maxnreg: int | None = None
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class CompileFailure:
    """A kernel that did not compile, and what the compiler said."""

    kernel: str
    message: str


def compile_offline(
    jit_fn: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    *,
    target: str = "sm_90",
    num_warps: int = 4,
    num_stages: int = 2,
    divisible_by_16: Collection[str] = (),
    launch_cooperative_grid: bool = False,
    maxnreg: int | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
) -> Resources:
    """Compiles a JIT function in this process, for any of TARGETS. Parameters are those of `KernelRequest`.

    Raises HelionError for an interpreted function, an unknown target or a parameter without type or value, and Triton's
    own errors where the kernel does not compile.
    """
    if not isinstance(jit_fn, triton.JITFunction):
        raise HelionError(
            f"{jit_fn.__name__} is an interpreted function (TRITON_INTERPRET=1): use compile_offline_source, which "
            "compiles in a process of its own"
        )
    if target not in TARGETS:
        raise HelionError(f"cannot compile for {target!r}; known targets: {', '.join(TARGETS)}")
    source = _source(jit_fn, signature, constexprs, divisible_by_16)
    chosen: dict[str, Any] = {"num_warps": num_warps, "num_stages": num_stages, **options}
    if launch_cooperative_grid:
        chosen["launch_cooperative_grid"] = True
    if maxnreg is not None:
        chosen["maxnreg"] = maxnreg
    compiled = triton.compile(source, target=TARGETS[target], options=chosen)
    return _resources_amd(compiled, target) if target.startswith("gfx") else _resources_nvidia(compiled, target)


def compile_offline_source(
    module: Path | str,
    kernel: str,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    *,
    target: str = "sm_90",
    num_warps: int = 4,
    num_stages: int = 2,
    divisible_by_16: Collection[str] = (),
    launch_cooperative_grid: bool = False,
    maxnreg: int | None = None,
) -> Resources:
    """As `compile_offline`, for the function `kernel` of the file `module`, in a process of its own.

    Works whether or not this process interprets kernels. Raises HelionError with the compiler's words where the kernel
    does not compile.
    """
    request = KernelRequest(
        module=str(module),
        kernel=kernel,
        signature=signature,
        constexprs=constexprs,
        target=target,
        num_warps=num_warps,
        num_stages=num_stages,
        divisible_by_16=tuple(divisible_by_16),
        launch_cooperative_grid=launch_cooperative_grid,
        maxnreg=maxnreg,
    )
    (result,) = compile_offline_many([request])
    if isinstance(result, CompileFailure):
        raise HelionError(f"{kernel} of {module} does not compile for {target}: {result.message}")
    return result


def compile_offline_many(
    requests: Sequence[KernelRequest], *, workers: int = 1, timeout_s: float = 900.0
) -> list[Resources | CompileFailure]:
    """Compiles many kernels in one fresh process, `workers` at a time; the results are in the order of the requests.

    Raises HelionError where the process itself fails or takes longer than `timeout_s`.
    """
    if not requests:
        return []
    request = {"workers": workers, "kernels": [_to_json(r) for r in requests]}
    # The working directory puts this package on the child's path; Triton reads TRITON_INTERPRET while it is imported.
    command = ["/usr/bin/env", "-u", "TRITON_INTERPRET", sys.executable, "-m", "helion_inductor.runtime.precompile"]
    root = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(
            command, cwd=root, input=json.dumps(request), capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise HelionError(f"compiling {len(requests)} kernels took longer than {timeout_s} s") from error
    if done.returncode != 0:
        names = ", ".join(r.kernel for r in requests)
        raise HelionError(f"the compile process for {names} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    results: list[Resources | CompileFailure] = []
    for asked, answer in zip(requests, json.loads(done.stdout)["results"], strict=True):
        resources = answer.get("resources")
        results.append(Resources(**resources) if resources else CompileFailure(asked.kernel, answer["error"]))
    return results


def _source(
    jit_fn: Any, signature: Mapping[str, str], constexprs: Mapping[str, object], divisible: Collection[str]
) -> ASTSource:
    """The compiler's input, its parameters in the function's order."""
    names: list[str] = jit_fn.arg_names
    declared = jit_fn.signature.parameters
    values = {n: declared[n].default for i, n in enumerate(names) if i in jit_fn.constexprs}
    values = {n: v for n, v in values.items() if v is not declared[n].empty} | dict(constexprs)
    unknown = [n for n in (*signature, *constexprs, *divisible) if n not in names]
    missing = [n for n in names if n not in signature and n not in values]
    if unknown or missing:
        problem = f"no parameter {', '.join(unknown)}" if unknown else f"no type or value for {', '.join(missing)}"
        raise HelionError(f"{jit_fn.__name__}: {problem}; its parameters are {', '.join(names)}")
    types = {n: "constexpr" if n in values else signature[n] for n in names}
    # Entries for the parameters that the JIT has some for: then a launch finds in Triton's cache on disk what was compiled here.
    specialised = [(i, n) for i, n in enumerate(names) if types[n] not in ("fp32", "u1")]
    attributes = {(i,): [["tt.divisibility", 16]] if n in divisible else [] for i, n in specialised}
    return ASTSource(jit_fn, types, values, attributes)


def _resources_nvidia(compiled: Any, target: str) -> Resources:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(compiled.asm["cubin"])
        usage = _output([knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)])
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise HelionError(f"cuobjdump does not say what {compiled.name} uses:\n{usage[-2000:]}")
    registers, stack = int(found[1]), int(found[2])
    ptx = compiled.asm.get("ptx", "")
    stores, loads = (0, 0) if stack == 0 else _spills(ptx, target, registers, stack)
    shared, num_warps = compiled.metadata.shared, compiled.metadata.num_warps
    return Resources(
        target=target,
        registers=registers,
        stack_bytes=stack,
        spill_stores=stores,
        spill_loads=loads,
        shared_bytes=shared,
        num_warps=num_warps,
        occupancy=estimate_occupancy(registers, shared, num_warps, _SM[target]),
        ptx=ptx,
        ttgir=compiled.asm.get("ttgir", ""),
    )


def _spills(ptx: str, target: str, registers: int, stack: int) -> tuple[int | None, int | None]:
    """Bytes spilled, as ptxas reports them for the same code: recognised by its registers and stack.

    Triton keeps no report of its own run, and its flags differ between its versions.
    """
    ptxas = knobs.nvidia.ptxas if TARGETS[target].arch < 100 else knobs.nvidia.ptxas_blackwell
    architecture = target if target == "sm_80" else f"{target}a"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        for flags in (["--regAllocOptLevel=2"], []):
            command = [ptxas.path, "-v", *flags, f"--gpu-name={architecture}", str(source), "-o", f"{folder}/kernel.o"]
            report = subprocess.run(command, capture_output=True, text=True).stderr
            used = re.search(r"Used (\d+) registers", report)
            spilled = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report)
            if used and spilled and int(used[1]) == registers and int(spilled[1]) == stack:
                return int(spilled[2]), int(spilled[3])
    return None, None


def _resources_amd(compiled: Any, target: str) -> Resources:
    text = compiled.asm["amdgcn"]

    def field(name: str) -> int:
        found = re.search(rf"^\s*\.{name}:\s*(\d+)", text, re.MULTILINE)
        if found is None:
            raise HelionError(f"the assembly of {compiled.name} for {target} does not say its {name}")
        return int(found[1])

    spilled = field("vgpr_spill_count")
    return Resources(
        target=target,
        registers=field("vgpr_count"),
        stack_bytes=field("private_segment_fixed_size"),
        spill_stores=spilled,
        spill_loads=spilled,
        shared_bytes=compiled.metadata.shared,
        num_warps=compiled.metadata.num_warps,
        occupancy=None,
        ptx=text,
        ttgir=compiled.asm.get("ttgir", ""),
    )


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", None) or error
        raise HelionError(f"{Path(command[0]).name} failed: {detail}") from error


def _to_json(request: KernelRequest) -> dict[str, Any]:
    fields = {f.name: getattr(request, f.name) for f in dataclasses.fields(request)}
    fields["module"] = str(Path(request.module).resolve())
    fields["signature"], fields["options"] = dict(request.signature), dict(request.options)
    fields["constexprs"] = {name: _encode(value) for name, value in request.constexprs.items()}
    return fields


def _encode(value: object) -> object:
    if isinstance(value, tl.dtype):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return {"tuple": [_encode(item) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise HelionError(f"cannot send a constexpr of type {type(value).__name__} to the compile process: {value!r}")


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return tl.dtype(value["dtype"]) if "dtype" in value else tuple(_decode(item) for item in value["tuple"])
    return value


@functools.cache
def _import_file(path: str) -> ModuleType:
    name = f"helion_inductor_offline_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise HelionError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _answer(kernel: dict[str, Any]) -> dict[str, Any]:
    """Compiles one kernel of a request in the compile process or one of its workers."""
    fields = dict(kernel)
    path, name = fields.pop("module"), fields.pop("kernel")
    signature = fields.pop("signature")
    constexprs = {key: _decode(value) for key, value in fields.pop("constexprs").items()}
    try:
        resources = compile_offline(getattr(_import_file(path), name), signature, constexprs, **fields)
    except _COMPILE_ERRORS as error:
        return {"error": f"{type(error).__name__}: {_root(error)}"}

    return {"resources": dataclasses.asdict(resources)}


def _root(error: BaseException) -> BaseException:
    """The error in the innermost function: those of its callers only point at it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _crashed(kernel: dict[str, Any]) -> dict[str, Any]:
    return {"error": "the compiler crashed: its process ended without an answer"}


def main() -> None:
    """The compile process: a request on stdin, the answer on stdout."""
    request = json.load(sys.stdin)
    # Compilers print; nothing of that may get into the answer.
    with contextlib.redirect_stdout(sys.stderr):
        results = apart(_answer, request["kernels"], request["workers"], _crashed)
    json.dump({"results": results}, sys.stdout)


if __name__ == "__main__":
    main()
