"""Graphs inside graphs: the branches of ``torch.cond``, the bodies of loops, the score function of flex attention.

Inductor's passes visit them before the graph that calls them, each as if it stood alone. What calls them does not expect them to
hold calls that write to lists of tensors, or takes them apart itself, so they stay as they are; only what
``torch.compiler.nested_compile_region`` makes is a graph like any other.
"""

from __future__ import annotations

import torch
from torch import fx

_KEY = "helion_inside"


def mark_nested(module: fx.GraphModule, inside: str | None = None) -> None:
    """Note in every graph that ``module`` calls, directly or not, by which operator it is called."""
    for node in module.graph.nodes:
        for source in node.all_input_nodes if node.op == "call_function" else ():
            child = getattr(module, str(source.target), None) if source.op == "get_attr" else None
            if not isinstance(child, fx.GraphModule):
                continue
            caller = inside or (None if node.target is torch.ops.higher_order.invoke_subgraph else str(node.target))
            if caller is not None:
                child.meta[_KEY] = caller
            mark_nested(child, caller)


def caller_of(graph: fx.Graph) -> str | None:
    """The operator that ``graph`` is left to, None where there is none."""
    module = graph.owning_module
    return module.meta.get(_KEY) if isinstance(module, fx.GraphModule) else None
