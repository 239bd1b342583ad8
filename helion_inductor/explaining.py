"""``helion_inductor.explain``: what the backend would do with a function, without compiling anything for a device.

The file is not called explain.py: as a module of the package it would take the function's place there once imported.
"""

from __future__ import annotations

import contextlib
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .backend import dry_compile, many_recompiles
from .options import Options
from .report import GraphReport, Report


def explain(fn: Callable[..., Any], /, *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any) -> Report:
    """Trace ``fn(*args, **kwargs)``, compile its regions up to their Triton text, and run it eagerly.

    Needs no GPU and no interpreter, and neither Inductor's code generation nor Triton runs. Tensors on the CPU are
    treated as they would be on the GPU at hand, or on an H200 where there is none. The forward is taken as
    ``torch.compile`` would take it: with a backward where gradients are on and an input or parameter requires them;
    that backward is reported, not run.

    The report has one graph per piece that Dynamo traces ("0 forward", "0 backward", "1 inference", ...). Tensors that
    ``fn`` overwrites (arguments, parameters, buffers) and the random state are put back; other side effects of ``fn``
    stay. Nothing compiled for ``fn`` before or after is affected, but where Dynamo breaks the graph inside ``fn`` the
    functions at the break count one recompilation for each call of explain.

    Raises OptionError for options that are not valid, and what ``fn`` or its tracing raises.
    """
    chosen = Options.from_mapping(options)
    report = Report()
    undo = _Undo()
    undo.keep(pytree.tree_leaves((args, kwargs)))

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        number = len({g.name.split()[0] for g in report.graphs})

        def listen(graph: GraphReport) -> None:
            report.graphs.append(replace(graph, name=f"{number} {graph.name}"))

        dry_compile(gm, example_inputs, chosen, listen)
        return lambda *inputs: undo.run(gm, inputs)

    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with many_recompiles(), torch.random.fork_rng(devices), undo.restoring():
        torch.compile(_caller(fn), backend=backend)(*args, **kwargs)
    return report


def _caller(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls ``fn``, with code of its own.

    Dynamo keeps what it compiled, and the sizes it saw, by code object and name: under a name never used before,
    nothing is found from an earlier call and nothing is left for later ones.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    code = call.__code__.replace(co_name=f"explained_{uuid.uuid4().hex}")
    return types.FunctionType(code, call.__globals__, code.co_name, call.__defaults__, call.__closure__)


class _Undo(TorchDispatchMode):
    """Puts back the storages of arguments, and of every tensor that a graph reads from outside and overwrites."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._outside: set[int] = set()

    def keep(self, values: Sequence[Any]) -> None:
        for value in values:
            if _has_storage(value):
                storage = value.untyped_storage()
                if storage._cdata not in self._kept:
                    self._kept[storage._cdata] = (storage, storage.clone())

    def run(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        self._outside = {v.untyped_storage()._cdata for v in inputs if _has_storage(v)}
        with self:
            return gm(*inputs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = pytree.tree_leaves(_written(func, args, kwargs))
        self.keep([v for v in leaves if _has_storage(v) and v.untyped_storage()._cdata in self._outside])
        return func(*args, **kwargs)

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        try:
            yield
        finally:
            for storage, before in self._kept.values():
                storage.copy_(before)


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that an op writes to, or may write to: the graphs that it calls do not come by here."""
    if not isinstance(func, torch._ops.OpOverload):
        return [args, kwargs]
    if "batch_norm" in func.__name__:
        return [args, kwargs]  # several of these update running statistics and their schemas do not say so
    if not func._schema.is_mutable:
        return []
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | dict(kwargs)
    return [given.get(a.name) for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _has_storage(value: Any) -> bool:
    plain = type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return plain and value.layout is torch.strided and value.device.type != "meta"
