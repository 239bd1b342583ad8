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
from triton import knobs
from triton.runtime.driver import driver
from triton.runtime.errors import InterpreterError, OutOfResources

from ..errors import HelionError
from .capture import relaxed_if_capturing
from .limits import MAX_GRID_X, MAX_GRID_YZ, is_empty, out_of_resources, refusal_reported
from .occupancy import check_residency
from .specialise import CPU, NO_DEVICE, specialise
from .state import State, StateSpec, state_of

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
    the parameters after the positional ones; where there is state, `run` adds them itself, behind the addresses of the state.
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

    Behind `args` the kernel gets one int32 tensor for each of `state_specs`, and one of `state_words` words where that is not 0:
    zeroed memory that only the launches of this kernel on this stream see, and each captured launch apart (`runtime/state.py`).

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
        state_words: int = 0,
        state_specs: Sequence[StateSpec] = (),
        reserved_sms: int = 0,
    ) -> None:
        self.jit_fn = jit_fn
        self.name: str = jit_fn.__name__
        self.interpreted = not isinstance(jit_fn, triton.JITFunction)
        self.cooperative = launch_cooperative_grid
        self.reserved_sms = reserved_sms
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
        self.is_constexpr = tuple(position in fixed for position in range(len(self._parameters)))
        self._bound: dict[tuple[Any, ...], _Bound] = {}
        self._keeps_ready = fixed_dtypes and not _HIP
        self._ready: _Ready | None = None
        specs = (*state_specs, StateSpec(state_words)) if state_words else state_specs
        self._states: tuple[State, ...] = tuple(map(state_of, specs))
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
            if is_empty(self.name, blocks):
                return
        if self.interpreted:
            self._interpret(blocks, args, constexprs)
            return
        key, index, values = specialise(self, args, constexprs)
        if index == CPU:
            raise HelionError(
                f"{self.name} got CPU tensors but was loaded for a GPU: move them to a CUDA device, or set "
                "TRITON_INTERPRET=1 before triton is imported to run kernels in Triton's interpreter"
            )
        active = driver.active
        current = active.get_current_device()
        if index != current and index != NO_DEVICE:
            with torch.cuda.device(index):
                self.launch(grid, args, constexprs, minimum_resident_programs=minimum_resident_programs)
            return
        required = max(minimum_resident_programs, x * y * z) if self.cooperative else minimum_resident_programs
        bound = None if key is None or _has_hooks(self.jit_fn) else self._bound.get(key)
        if bound is None:
            self._launch_through_jit(current, blocks, required, key, args, constexprs)
            return
        if required > bound.resident:
            check_residency(bound.compiled, self.name, current, required, reserved_sms=self.reserved_sms)
        stream = active.get_current_stream(current)
        bound.run(x, y, z, stream, bound.function, bound.packed_metadata, None, None, None, *values, *bound.tail)

    def compiled_for(self, args: Sequence[Any], constexprs: Mapping[str, Any]) -> Any:
        """The compiled kernel that a launch with these arguments would run on the device of its tensors; launches nothing.

        Raises HelionError in the interpreter and for CPU tensors, which have none.
        """
        key, index, _ = specialise(self, args, constexprs)
        if self.interpreted or index == CPU:
            raise HelionError(f"{self.name} is not compiled for the CPU: Triton's interpreter runs it")
        bound = self._bound.get(key) if key is not None else None
        if bound is not None:
            return bound.compiled
        self._reject_unknown(constexprs)
        with torch.cuda.device(index) if index != NO_DEVICE else contextlib.nullcontext(), self._lock, relaxed_if_capturing():
            try:
                return _finished(self.jit_fn.warmup(*args, *self.state_types(), grid=(1, 1, 1), **constexprs, **self.options))
            except OutOfResources as error:
                raise out_of_resources(self.name, error) from error

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
        given = args
        args = (*args, *self._state_tensors(index, len(args)))
        resident = 0
        with self._lock, relaxed_if_capturing():
            try:
                if required:
                    compiled = _finished(self.jit_fn.warmup(*args, grid=blocks, **constexprs, **self.options))
                    resident = check_residency(compiled, self.name, index, required, reserved_sms=self.reserved_sms)
                launch = self.jit_fn[blocks]
                launch = refusal_reported(launch, self.name) if self.cooperative else launch
                compiled = _finished(launch(*args, **constexprs, **self.options))
            except OutOfResources as error:
                raise out_of_resources(self.name, error) from error
            tail = self._tail(len(args), constexprs)
            # No kernel comes back where a hook of Triton's took the compilation over.
            if key is not None and tail is not None and compiled is not None:
                run = refusal_reported(compiled.run, self.name) if self.cooperative else compiled.run
                if self._states:
                    run, tail = _with_states(run, self._states, index, tail), ()
                bound = _Bound(compiled, run, compiled.function, compiled.packed_metadata, resident, tail)
                self._bound[key] = bound
                self._remember(index, blocks, given, constexprs, bound)

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

    def state_types(self) -> list[torch.dtype]:
        """Dtypes of the tensors of state that the kernel gets behind its arguments."""
        return [torch.int32] * len(self._states)

    def _state_tensors(self, index: int, given: int) -> list[torch.Tensor]:
        """The state for a launch on `index`, whose current device it is; `given` arguments stand before it."""
        if not self._states:
            return []
        places = range(given, given + len(self._states))
        names = [self._parameters[p] for p in places if p < len(self._parameters) and not self.is_constexpr[p]]
        if len(names) < len(places):
            raise TypeError(
                f"{self.name} has no room for its state: after {given} arguments {len(places)} more that are no constexprs "
                f"must follow; it has {', '.join(self._parameters)}"
            )
        stream = 0 if index < 0 else driver.active.get_current_stream(index)
        return [state.tensor(index, stream) for state in self._states]

    def _tail(self, given: int, constexprs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Values of the parameters after the first `given`; None where a specialisation does not fix them."""
        if any(not self.is_constexpr[self._parameters.index(name)] for name in constexprs):
            return None
        declared = self.jit_fn.signature.parameters
        names = self._parameters[given:]
        return tuple(constexprs[name] if name in constexprs else declared[name].default for name in names)

    def _interpret(self, blocks: tuple[int, ...], args: Sequence[Any], constexprs: Mapping[str, Any]) -> None:
        self._reject_unknown(constexprs)  # the interpreter would drop what the JIT rejects
        states = self._state_tensors(CPU, len(args))
        try:
            with _INTERPRETER_LOCK:
                self.jit_fn[blocks](*args, *states, **constexprs)
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


def _with_states(run: Any, states: Sequence[State], index: int, tail: tuple[Any, ...]) -> Any:
    """`run` with the addresses of the current stream's states, and `tail`, behind the arguments it is given."""
    if len(states) == 1:
        address = states[0].address

        def launch(x: int, y: int, z: int, stream: int, *rest: Any) -> None:
            run(x, y, z, stream, *rest, address(index, stream), *tail)

    else:
        addresses = [state.address for state in states]

        def launch(x: int, y: int, z: int, stream: int, *rest: Any) -> None:
            run(x, y, z, stream, *rest, *[address(index, stream) for address in addresses], *tail)

    return launch


def _has_hooks(jit_fn: Any) -> bool:
    """Whether anybody listens to launches (profilers, tests): only Triton's JIT calls them as documented."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave) or jit_fn.pre_run_hooks)


def _finished(compiled: Any) -> Any:
    """The compiled kernel itself where Triton compiles asynchronously and hands out a future."""
    return compiled.result() if hasattr(compiled, "result") else compiled
