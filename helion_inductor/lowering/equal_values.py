"""Results of a region that are equal because the same call was made twice: one of them is computed and stored for all.

Models repeat calls for each layer (masks, position biases, tables of rotations). Inductor drops most repetitions, but not those
of calls that copy, and a region would store every copy at once, where Inductor holds one at a time.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx

from .families import VIEWS, family


def equal_results(outputs: Sequence[fx.Node], computed: Collection[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Those of a region's ``outputs`` that equal an earlier one -> that one; ``computed``: all calls that the region makes.

    A result that leaves the graph, or is copied into an input, stays itself: whoever gets it may write to it.
    """
    inside = frozenset(computed)
    numbers: dict[fx.Node, str] = {}
    calls: dict[str, str] = {}
    first: dict[tuple[str, str], fx.Node] = {}
    result: dict[fx.Node, fx.Node] = {}
    for node in outputs:
        if _handed_out(node):
            continue
        value = node.meta["val"]
        layout = f"{value.dtype}{tuple(value.shape)}{value.stride()}{value.device}"
        one = first.setdefault((_number(node, inside, numbers, calls), layout), node)
        if one is not node:
            result[node] = one
    return result


def _number(node: fx.Node, inside: frozenset[fx.Node], numbers: dict[fx.Node, str], calls: dict[str, str]) -> str:
    """Name of the first node of the same value. ``numbers`` are those found, ``calls`` the texts of calls on them."""
    stack = [node]
    while stack:
        current = stack[-1]
        known = _is_known(current, inside)
        waiting = [s for s in current.all_input_nodes if s not in numbers] if known else []
        stack += waiting
        if not waiting:
            stack.pop()
            numbers[current] = calls.setdefault(_call(current, numbers), current.name) if known else current.name
    return numbers[node]


def _call(node: fx.Node, numbers: Mapping[fx.Node, str]) -> str:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
    return f"{node.target} {args!r} {sorted(kwargs.items())!r}"


def _is_known(node: fx.Node, inside: frozenset[fx.Node]) -> bool:
    """Whether the region makes the call, and its arguments alone decide what it gives."""
    if node.op != "call_function" or not (node in inside or node.target in VIEWS):
        return False
    if node.target is operator.getitem:
        return True
    tags = getattr(node.target, "tags", ())
    return family(node.target) != "random" and torch.Tag.nondeterministic_seeded not in tags


def _handed_out(node: fx.Node) -> bool:
    """Whether the result, or a view of it, leaves the graph or is copied into another tensor."""
    stack = [node]
    while stack:
        for user in stack.pop().users:
            if user.op == "output" or user.target is torch.ops.aten.copy_.default:
                return True
            if user.target in VIEWS or user.target is operator.getitem:
                stack.append(user)
    return False
