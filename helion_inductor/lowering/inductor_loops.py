"""The lowering door: the only file that asks Inductor what an ATen op means as loops.

``GraphLowering`` runs on a region's sub-graph with *every node realised*, so that each FX node becomes one loop (views stay
free) and no fusion heuristic of a particular release shows through.  What leaves this file is plain data: ranges, layouts, and
for each loop a ``replay`` function that feeds its scalar ops, one by one, to a handler of ours.

Note [One lowering for all devices]: Inductor lowers the same op differently for CPU and CUDA.  The sub-graph that comes in here
always speaks of CPU tensors (``fx_bridge`` rewrites it), and the few backend features that lowerings ask about are answered by
``_FEATURES``; what CI tests on a CPU is therefore what a GPU runs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor import config as inductor_config
from torch._inductor import ir as inductor_ir
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.exc import LoweringException
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import fallbacks, lowerings, make_pointwise
from torch._inductor.virtualized import V, ops

from ..errors import Unsupported
from .corrections import CORRECTED

_LOOP_CONFIG = {
    "split_reductions": False,
    "unroll_reductions_threshold": 1,
    "force_pointwise_cat": True,
    "comprehensive_padding": False,
    "implicit_fallbacks": False,
    "cpp.fallback_scatter_reduce_sum": False,
}
_aten = torch.ops.aten
_FALLS_BACK_WITHOUT_FEATURES = frozenset({
    _aten.cumsum.default, _aten.cumprod.default, _aten.cummax.default, _aten.cummin.default, _aten.logcumsumexp.default,
})  # fmt: skip
_ONLY_FOR_CPU = """
    digamma polygamma special_airy_ai special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he special_i0e special_i1e
    special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr special_modified_bessel_k0 special_modified_bessel_k1
    special_ndtr special_ndtri special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_zeta"""
_FALLS_BACK_ON_GPU = frozenset(getattr(p, o) for p in [getattr(_aten, name) for name in _ONLY_FOR_CPU.split()] for o in p.overloads())
WITHIN_LOOP = "within_loop"  # in the meta of a node that need not be a loop of its own: a step of what one node of the graph means
ROW_MAJOR = "row_major"  # in the meta of a node whose loop lays its result out so, whatever the layout of what it reads
MANY = 16  # tensors that a cat in one loop has at most
_LEAST_INT = -(2**63)
_FEATURES = (BackendFeature.SCAN, BackendFeature.TUPLE_REDUCTION, BackendFeature.INPLACE_BUFFERS)


@dataclass(frozen=True)
class Layout:
    """Strided memory of ``dtype``: sizes, strides and offset in elements, as Inductor's sympy expressions."""

    dtype: torch.dtype
    size: tuple[sympy.Expr, ...]
    stride: tuple[sympy.Expr, ...]
    offset: sympy.Expr


@dataclass(frozen=True)
class Loop:
    """``for iter in ranges: for red in reduce_ranges: body``; writes ``target`` (another loop's buffer when it mutates one)."""

    name: str
    target: str
    layout: Layout
    ranges: tuple[sympy.Expr, ...]
    reduce_ranges: tuple[sympy.Expr, ...]
    node: str
    replay: Callable[[Any, Sequence[sympy.Symbol], Sequence[sympy.Symbol]], None]


@dataclass(frozen=True)
class Output:
    """Where an output of the sub-graph lives: a loop's buffer or an input, seen through ``layout``."""

    buffer: str
    layout: Layout


@dataclass(frozen=True)
class LoweredGraph:
    """All loops of a sub-graph in program order; ``inputs`` are its tensor placeholders by name, ``made`` the buffers of its own
    (those without elements too, which have no loop), with the node each comes from; ``unfilled`` those of them that have
    elements but no loop to give them values, which something else overwrites; ``lower_bounds`` the least value of each size symbol,
    and ``least`` that of any expression over them."""

    inputs: dict[str, Layout]
    made: dict[str, tuple[Layout, str]]
    unfilled: tuple[str, ...]
    loops: tuple[Loop, ...]
    outputs: tuple[Output, ...]
    lower_bounds: dict[str, int]
    least: Callable[[sympy.Expr], int]


class LoopRefused(Exception):
    """A node of the sub-graph is not loops: carries the node's name, the reason, and ``others`` that it holds for too."""

    def __init__(self, node: str, reason: Unsupported, others: Sequence[str] = ()) -> None:
        super().__init__(f"{node}: {reason.code}: {reason.detail}")
        self.node = node
        self.reason = reason
        self.others = tuple(others)


def _all_sizes_known(tensors: Sequence[Any]) -> bool:
    return all(isinstance(n, (int, sympy.Integer)) for t in tensors for n in t.get_size()) and any(
        all(n != 0 for n in t.get_size()) for t in tensors
    )


def has_loop_lowering(target: object) -> bool:
    """Whether Inductor registers a lowering of its own for this overload.

    Some lowerings fall back to ATen only where a backend feature is missing; they count as fallbacks too, so the names that
    this file's features keep from falling back are listed, as are those that fall back on a GPU for want of a device function
    that we have.
    """
    return target in lowerings and (target not in fallbacks or target in _FALLS_BACK_WITHOUT_FEATURES | _FALLS_BACK_ON_GPU)


class _EveryNodeRealised(GraphLowering):
    """One loop per FX node, but for steps within one; remembers which node made which operation."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made_by: dict[str, str] = {}
        self.filled: set[str] = set()
        features: Any = lambda device: set(_FEATURES)  # noqa: E731
        self.get_backend_features = features  # an attribute in the base class, not a method

    def run_node(self, n: torch.fx.Node) -> object:
        before = len(self.operations)
        result = super().run_node(n)
        boxes = result if isinstance(result, (tuple, list)) else (result,)
        for box in boxes:
            if not isinstance(box, inductor_ir.TensorBox) or not isinstance(box.data, inductor_ir.StorageBox):
                continue
            if not n.meta.get(WITHIN_LOOP):
                box.realize()
            buffer = box.data.data
            # A view or a cast that changes nothing gives a buffer once more, which is settled by then.
            settled = not isinstance(buffer, inductor_ir.ComputedBuffer) or isinstance(buffer.layout, inductor_ir.FixedLayout)
            if n.meta.get(ROW_MAJOR) and not settled:
                buffer.freeze_layout_with_stride_order(list(reversed(range(len(box.get_size())))))
        made: list[Any] = self.operations[before:]
        for op in made:
            self.made_by[op.get_name()] = n.name
            if isinstance(op, inductor_ir.ComputedBuffer) and self._left_open(op) and any(u.op == "output" for u in n.users):
                raise LoopRefused(n.name, Unsupported("uninitialised", f"{n.target} leaves memory as it finds it"))
            if not isinstance(op, inductor_ir.ComputedBuffer):
                raise LoopRefused(n.name, Unsupported("not-a-loop", f"{n.target} lowers to {type(op).__name__}"))
        return result

    def _left_open(self, op: Any) -> bool:
        return _uninitialised(op) and op.get_name() not in self.filled

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is _aten.cat.default and len(args[0]) > MANY and not kwargs and _all_sizes_known(args[0]):
            return self._joined(*args)
        if target in CORRECTED:
            return CORRECTED[target](self._lower, _pointwise, target, *args, **kwargs)
        return super().call_function(target, args, kwargs)

    def _joined(self, tensors: Sequence[Any], dim: int = 0) -> Any:
        """A cat of many tensors: each fills a slice of the result. As one loop it would have a load for each of them."""
        parts = [t for t in tensors if all(n != 0 for n in t.get_size())]
        shape = [*parts[0].get_size()]
        dim %= len(shape)
        shape[dim] = sum(t.get_size()[dim] for t in parts)
        dtype = functools.reduce(torch.promote_types, (t.get_dtype() for t in tensors))
        result = lowerings[_aten.empty.memory_format](shape, dtype=dtype, device=parts[0].get_device())
        result.realize()
        self.filled.add(result.get_name())
        first = 0
        for t in parts:
            end = first + t.get_size()[dim]
            lowerings[_aten.copy_.default](lowerings[_aten.slice.Tensor](result, dim, first, end), t)
            first = end
        return result

    def _lower(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """The loops that Inductor has for another operator."""
        return super().call_function(target, args, kwargs)

    def create_deferred_runtime_asserts(self, n: Any, new_unbacked_defs: Any) -> None:
        """The graph around the region already asserts these."""


def _pointwise(opcode: str, *operands: Any) -> Any:
    """A loop that applies one opcode to tensors of one shape and numbers."""
    return make_pointwise(lambda *values: getattr(ops, opcode)(*values))(*operands)


@contextlib.contextmanager
def _lowering_context(graph: GraphLowering, fake_mode: Any) -> Iterator[None]:
    with V.set_fake_mode(fake_mode), V.set_graph_handler(graph), V.set_extern_kernel_nodes([]):
        yield


def with_handler(handler: Any, body: Callable[[], Any]) -> Any:
    """Run ``body`` with ``handler`` receiving its scalar ops."""
    with V.set_ops_handler(handler):
        return body()


def lower_graph(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], fake_mode: Any) -> LoweredGraph:
    """Lower ``gm`` (placeholders and nodes carry CPU fake tensors in ``meta["val"]``) to loops.

    Raises:
        LoopRefused: naming the first node that is not purely loops.
    """
    graph = _EveryNodeRealised(gm, example_inputs=example_inputs, shape_env=fake_mode.shape_env, is_inference=True)
    with inductor_config.patch(_LOOP_CONFIG), _lowering_context(graph, fake_mode):
        try:
            graph.run(*example_inputs)
        except LoweringException as error:
            node = getattr(graph.current_node, "name", "?")
            if isinstance(error.__cause__, LoopRefused):
                raise error.__cause__ from error
            raise LoopRefused(node, Unsupported("lowering-failed", str(error).splitlines()[0])) from error
        loops = tuple(loop for op in graph.operations if (loop := _loop(op, graph)) is not None)
        operations: list[Any] = list(graph.operations)
        made = {op.get_name(): (_layout(op.get_layout(), op), graph.made_by.get(op.get_name(), "?")) for op in operations if _owns(op)}
        unfilled = tuple(op.get_name() for op in operations if graph._left_open(op))
        outputs = tuple(_output(o, graph) for o in graph.graph_outputs)
    if graph.constants:
        name = next(iter(graph.constants))
        raise LoopRefused(graph.made_by.get(name, "?"), Unsupported("constant-tensor", "a constant tensor made by a lowering"))
    inputs = {name: _layout(box.get_layout(), box) for name, box in graph.graph_inputs.items() if isinstance(box, inductor_ir.TensorBox)}
    env = fake_mode.shape_env
    return LoweredGraph(inputs, made, unfilled, loops, outputs, _lower_bounds(env), lambda e: _least(env.bound_sympy(e)))


def _lower_bounds(shape_env: Any) -> dict[str, int]:
    """Least value of each symbol: sizes are never negative, but an int that the program was called with may be."""
    ranges = {} if shape_env is None else shape_env.var_to_range
    return {symbol.name: _least(value_range) for symbol, value_range in ranges.items()}


def _least(value_range: Any) -> int:
    return int(value_range.lower) if value_range.lower.is_Integer else _LEAST_INT


def _layout(layout: Any, node: Any) -> Layout:
    size, stride = (tuple(map(sympy.sympify, part)) for part in (layout.size, layout.stride))
    return Layout(node.get_dtype(), size, stride, sympy.sympify(layout.offset))


def _uninitialised(op: Any) -> bool:
    """``empty`` is a loop over nothing that owns memory."""
    return any(n == 0 for n in op.data.ranges) and _owns(op) and not any(n == 0 for n in op.get_size())


def _owns(op: Any) -> bool:
    return not isinstance(op.get_layout(), inductor_ir.MutationLayoutSHOULDREMOVE)


def _loop(op: Any, graph: _EveryNodeRealised) -> Loop | None:
    op.decide_layout()
    layout = op.get_layout()
    target = op.get_name()
    if isinstance(layout, inductor_ir.MutationLayoutSHOULDREMOVE):
        target = layout.get_buffer().get_name()
        layout = layout.real_layout()
    ranges = (*op.get_size(), *op.data.ranges, *getattr(op.data, "reduction_ranges", ()))
    if any(n == 0 for n in ranges):  # nothing to compute; asking for its body would raise
        return None
    (ranges, reduce_ranges), body, _ = op.get_default_sizes_body()

    def replay(handler: Any, iteration: Sequence[sympy.Symbol], reduction: Sequence[sympy.Symbol]) -> None:
        with V.set_graph_handler(graph), V.set_ops_handler(handler):
            body(list(iteration), list(reduction))

    name = op.get_name()
    return Loop(name, target, _layout(layout, op), tuple(ranges), tuple(reduce_ranges), graph.made_by.get(name, "?"), replay)


def _output(node: Any, graph: _EveryNodeRealised) -> Output:
    layout = node.get_layout()
    if isinstance(layout, inductor_ir.MutationLayoutSHOULDREMOVE):
        layout = layout.real_layout()
    return Output(node.get_name(), _layout(layout, node))
