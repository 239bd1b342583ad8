"""Launching generated kernels: on a GPU through Triton's compiled kernels, on the CPU through Triton's interpreter.

A `Launcher` belongs to one kernel of a generated module. The first call of a specialisation goes through Triton's JIT;
later calls hand their arguments straight to the compiled kernel, after checking what the specialisation depends on.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.runtime.driver import driver
from triton.runtime.errors import InterpreterError, OutOfResources

from ..errors import HelionError, LaunchRejected
from .capture import relaxed_capture
from .occupancy import check_residency

MAX_GRID_X = 2**31 - 1
MAX_GRID_YZ = 65535

_NO_DEVICE = -2
_CPU = -1  # what Tensor.get_device() says of CPU tensors
_PLAIN_CONSTEXPRS = frozenset((int, bool, str, type(None), tl.dtype))
# The interpreter patches triton.language and keeps the current program's index in globals.
_INTERPRETER_LOCK = threading.RLock()


_ADDRESS = torch.Tensor.data_ptr
_HIP = torch.version.hip is not None


class _Ready(NamedTuple):
    """The launch of one grid on one device with all tensors aligned: what a program does call after call."""

    grid: tuple[int, ...]
    constexprs: Mapping[str, Any]
    device: int
    blocks: tuple[int, ...]
    current_device: Any
    current_stream: Any
    bound: _Bound


class _Bound(NamedTuple):
    """A compiled specialisation, ready to run.

    `resident` is how many of its programs the device holds at once, 0 where nobody asked yet; `tail` are the values of
    the parameters after the positional ones.
    """

    compiled: Any
    run: Any
    function: int
    packed_metadata: tuple[Any, ...]
    resident: int
    tail: tuple[Any, ...]


class Launcher:
    """Launches one Triton kernel with fixed compile options; safe to call from several threads and under graph capture.

    Constructing it touches no device. `launcher(grid, *args, **constexprs)` launches on the device that the tensors
    among `args` are on, on that device's current stream. `grid` is a tuple of one to three ints; a 0 in it launches
    nothing. Kernels decorated under TRITON_INTERPRET=1 run in Triton's interpreter instead.

    Raises LaunchRejected where the device cannot run the launch as asked, HelionError for tensors on the CPU or on
    several devices, TypeError for arguments that the kernel does not take.
    """

    def __init__(
        self,
        jit_fn: Any,
        *,
        num_warps: int = 4,
        num_stages: int = 2,
        launch_cooperative_grid: bool = False,
        debug: bool = False,
        maxnreg: int | None = None,
        ptx_options: str | None = None,
        fixed_dtypes: bool = False,
    ) -> None:
        self.jit_fn = jit_fn
        self.name: str = jit_fn.__name__
        self.interpreted = not isinstance(jit_fn, triton.JITFunction)
        self.cooperative = launch_cooperative_grid
        self.options: dict[str, Any] = {"num_warps": num_warps, "num_stages": num_stages}
        # The rest only where asked for: not every backend of Triton knows them.
        optional = {
            "launch_cooperative_grid": launch_cooperative_grid or None,
            "debug": debug or None,
            # Assertions on indices are wanted; checks of all integer arithmetic, which Triton adds to them, are not.
            "sanitize_overflow": False if debug else None,
            "maxnreg": maxnreg,
            "ptx_options": ptx_options,
        }
        self.options.update({name: value for name, value in optional.items() if value is not None})
        self._parameters: tuple[str, ...] = tuple(jit_fn.arg_names)
        fixed = () if self.interpreted else jit_fn.constexprs
        self._is_constexpr = tuple(position in fixed for position in range(len(self._parameters)))
        self._bound: dict[tuple[Any, ...], _Bound] = {}
        self._keeps_ready = fixed_dtypes and not self.cooperative and not _HIP
        self._ready: _Ready | None = None
        # One lock per kernel, kept with it: a kernel that one thread is still loading is not ready for another, and
        # Triton does not wait. setdefault on a dict is atomic.
        self._lock: Any = vars(jit_fn).setdefault("_helion_lock", threading.RLock())

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"Launcher({self.name}, {options})"

    def __call__(self, grid: tuple[int, ...], *args: Any, **constexprs: Any) -> None:
        ready = self._ready
        if ready is not None and grid == ready.grid and constexprs == ready.constexprs and not _has_hooks(self.jit_fn):
            index = ready.device
            addresses = [*map(_ADDRESS, args)]
            aligned = functools.reduce(operator.or_, addresses) & 15 == 0
            if aligned and args[0].get_device() == index == ready.current_device():
                _, run, function, metadata, _, tail = ready.bound
                stream = ready.current_stream(index)
                run(*ready.blocks, stream, function, metadata, None, None, None, *addresses, *tail)
                return
        self.launch(grid, args, constexprs)

    def launch(
        self,
        grid: tuple[int, ...],
        args: Sequence[Any],
        constexprs: Mapping[str, Any],
        *,
        minimum_resident_programs: int = 0,
    ) -> None:
        """As a call; also raises LaunchRejected unless `minimum_resident_programs` programs can be resident at once."""
        x, y, z = blocks = (*grid, 1, 1)[:3] if len(grid) < 3 else grid
        if x <= 0 or y <= 0 or z <= 0 or y > MAX_GRID_YZ or z > MAX_GRID_YZ or x * y * z > MAX_GRID_X:
            if _is_empty(self.name, blocks):
                return
        if self.interpreted:
            self._interpret(blocks, args, constexprs)
            return
        key, index, values = _specialise(self, args, constexprs)
        if index == _CPU:
            raise HelionError(
                f"{self.name} got CPU tensors but was loaded for a GPU: move them to a CUDA device, or set "
                "TRITON_INTERPRET=1 before triton is imported to run kernels in Triton's interpreter"
            )
        active = driver.active
        current = active.get_current_device()
        if index != current and index != _NO_DEVICE:
            with torch.cuda.device(index):
                self.launch(grid, args, constexprs, minimum_resident_programs=minimum_resident_programs)
            return
        required = max(minimum_resident_programs, x * y * z) if self.cooperative else minimum_resident_programs
        bound = None if key is None or _has_hooks(self.jit_fn) else self._bound.get(key)
        if bound is None:
            self._launch_through_jit(current, blocks, required, key, args, constexprs)
            return
        if required > bound.resident:
            check_residency(bound.compiled, self.name, current, required)
        stream = active.get_current_stream(current)
        bound.run(x, y, z, stream, bound.function, bound.packed_metadata, None, None, None, *values, *bound.tail)

    def _launch_through_jit(
        self,
        index: int,
        blocks: tuple[int, ...],
        required: int,
        key: tuple[Any, ...] | None,
        args: Sequence[Any],
        constexprs: Mapping[str, Any],
    ) -> None:
        """Launches on the current device `index`, compiling if need be, and keeps the specialisation under `key`."""
        self._reject_unknown(constexprs)
        resident = 0
        with self._lock, relaxed_capture() if _capturing() else contextlib.nullcontext():
            try:
                if required:
                    compiled = _finished(self.jit_fn.warmup(*args, grid=blocks, **constexprs, **self.options))
                    resident = check_residency(compiled, self.name, index, required)
                compiled = _finished(self.jit_fn[blocks](*args, **constexprs, **self.options))
            except OutOfResources as error:
                raise _out_of_resources(self.name, error) from error
            tail = self._tail(len(args), constexprs)
            # No kernel comes back where a hook of Triton's took the compilation over.
            if key is not None and tail is not None and compiled is not None:
                bound = _Bound(compiled, compiled.run, compiled.function, compiled.packed_metadata, resident, tail)
                self._bound[key] = bound
                self._remember(index, blocks, args, constexprs, bound)

    def _remember(
        self, index: int, blocks: tuple[int, ...], args: Sequence[Any], constexprs: Mapping[str, Any], bound: _Bound
    ) -> None:
        """Keeps the launch for `__call__` where nothing but the tensors' addresses can differ the next time."""
        plain = all(isinstance(a, torch.Tensor) and a.data_ptr() & 15 == 0 for a in args)
        if self._keeps_ready and plain and args:
            active = driver.active
            grid = blocks[:1] if blocks[1:] == (1, 1) else blocks
            current = active.get_current_device, active.get_current_stream
            self._ready = _Ready(grid, dict(constexprs), index, blocks, *current, bound)

    def _tail(self, given: int, constexprs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Values of the parameters after the first `given`; None where a specialisation does not fix them."""
        if any(not self._is_constexpr[self._parameters.index(name)] for name in constexprs):
            return None
        declared = self.jit_fn.signature.parameters
        names = self._parameters[given:]
        return tuple(constexprs[name] if name in constexprs else declared[name].default for name in names)

    def _interpret(self, blocks: tuple[int, ...], args: Sequence[Any], constexprs: Mapping[str, Any]) -> None:
        self._reject_unknown(constexprs)  # the interpreter would drop what the JIT rejects
        try:
            with _INTERPRETER_LOCK:
                self.jit_fn[blocks](*args, **constexprs)
        except InterpreterError as error:
            root: BaseException = error
            while root.__cause__ is not None:
                root = root.__cause__
            if isinstance(root, IndexError):  # the kernel's own check of an index: raise what eager raises
                raise IndexError(*root.args) from error
            raise

    def _reject_unknown(self, constexprs: Mapping[str, Any]) -> None:
        unknown = [name for name in constexprs if name not in self._parameters]
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(unknown)}; it has {', '.join(self._parameters)}")


def default_launcher(
    triton_kernel: Any,
    grid: tuple[int, ...],
    *args: Any,
    num_warps: int,
    num_stages: int,
    ptx_options: str | None = None,
    launch_cooperative_grid: bool = False,
    _minimum_resident_programs: int = 0,
    **kwargs: Any,
) -> None:
    """Launches `triton_kernel` over `grid`; `kwargs` are its constexpr parameters by name.

    With `launch_cooperative_grid` the whole grid must be resident at once; `_minimum_resident_programs` asks for that
    many in any case. LaunchRejected is raised before anything is launched where the device cannot hold them. Other
    errors are those of `Launcher`.
    """
    launcher = _launcher(triton_kernel, num_warps, num_stages, ptx_options, launch_cooperative_grid)
    launcher.launch(grid, args, kwargs, minimum_resident_programs=_minimum_resident_programs)


@functools.lru_cache(maxsize=4096)
def _launcher(
    jit_fn: Any, num_warps: int, num_stages: int, ptx_options: str | None, launch_cooperative_grid: bool
) -> Launcher:
    return Launcher(
        jit_fn,
        num_warps=num_warps,
        num_stages=num_stages,
        ptx_options=ptx_options,
        launch_cooperative_grid=launch_cooperative_grid,
    )


def _specialise(
    launcher: Launcher, args: Sequence[Any], constexprs: Mapping[str, Any]
) -> tuple[tuple[Any, ...] | None, int, list[Any]]:
    """What Triton's specialisation depends on, the device of the tensors, and the arguments with tensors as addresses.

    The key is None where an argument is of a kind whose specialisation is Triton's business alone: such launches always
    go through its JIT. Runs on every launch, hence one flat loop.
    """
    flags = launcher._is_constexpr
    if len(args) > len(flags):
        raise TypeError(f"{launcher.name} takes {len(flags)} arguments, got {len(args)}")
    key: list[Any] = [0, len(args)]
    values: list[Any] = []
    index = _NO_DEVICE
    plain = torch.version.hip is None  # on ROCm the specialisation also depends on the size of the storage
    for value, fixed in zip(args, flags, strict=False):
        kind = value.__class__
        if fixed:
            plain = _add_constexpr(key, kind, value) and plain
        elif isinstance(value, torch.Tensor):
            device = value.get_device()
            if device != index:
                if index != _NO_DEVICE:
                    raise HelionError(f"{launcher.name} got tensors on different devices: {_devices(args)}")
                index = device
            key.append(value.dtype)
            value = value.data_ptr()
            key.append(value & 15 == 0)
        elif kind is int:
            key.append(_int_class(value))
        elif kind is float or kind is bool or value is None:
            key.append(kind)
        else:
            plain = False
        values.append(value)
    for parameter, value in constexprs.items():
        key.append(parameter)
        plain = _add_constexpr(key, value.__class__, value) and plain
    key[0] = index
    return (tuple(key) if plain and index != _NO_DEVICE else None), index, values


def _add_constexpr(key: list[Any], kind: type, value: Any) -> bool:
    """Adds the value of a constexpr with its type (True and 1 are different kernels). False for unknown types."""
    if kind is float:
        value = value.hex()  # tells 0.0 from -0.0, and nan equals itself
    elif kind not in _PLAIN_CONSTEXPRS:
        return False
    key.append(kind)
    key.append(value)
    return True


def _int_class(value: int) -> int:
    """Triton specialises ints on being 1, on divisibility by 16, and on the width it passes them in."""
    if value == 1:
        return 8
    if -(2**31) <= value < 2**31:
        return value & 15 == 0
    return (value & 15 == 0) + (4 if value >= 2**63 else 2)


def _devices(args: Sequence[Any]) -> str:
    return ", ".join(f"argument {i} on {a.device}" for i, a in enumerate(args) if isinstance(a, torch.Tensor))


def _has_hooks(jit_fn: Any) -> bool:
    """Whether anybody listens to launches (profilers, tests): only Triton's JIT calls them as documented."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave) or jit_fn.pre_run_hooks)


def _finished(compiled: Any) -> Any:
    """The compiled kernel itself where Triton compiles asynchronously and hands out a future."""
    return compiled.result() if hasattr(compiled, "result") else compiled


def _capturing() -> bool:
    return torch.version.hip is None and torch.cuda.is_current_stream_capturing()


def _is_empty(name: str, blocks: tuple[int, ...]) -> bool:
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


def _out_of_resources(name: str, error: OutOfResources) -> LaunchRejected:
    return LaunchRejected(
        f"{name} needs more {error.name} than one multiprocessor gives a program",
        required=error.required,
        available=error.limit,
        shared_memory=error.required if error.name == "shared memory" else None,
        hints=("use smaller tiles", "use fewer stages (num_stages) or warps (num_warps)"),
    )
