"""What each option accepts: a table of rules, and the functions that check a value against one."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import OptionError

FAMILIES = (
    "pointwise", "reduction", "scan", "view", "cat", "index", "scatter", "creation", "random", "matmul", "attention",
    "convolution", "collective",
)  # fmt: skip
PID_TYPES = ("auto", "flat", "persistent_blocked", "persistent_interleaved")
TILE_DIMENSIONS = ("x", "y", "r", "m", "n", "k")
RESERVED_PATCHES = frozenset({"post_grad_custom_post_pass"})
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.\w+){1,2}")
_SHOWN = 200  # characters of a wrong value that an error repeats


class FrozenMap(Mapping[str, Any]):
    """A read-only mapping from strings to plain JSON values, ordered by key; equal maps hash equally."""

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._text = json.dumps(dict(items or {}), sort_keys=True)
        self._items: dict[str, Any] = json.loads(self._text)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True)
class Rule:
    """``parse`` gives the value to keep or raises ``_Rejected``; ``accepts`` completes "it must be ...".

    ``later`` tells the values that are well-formed but not honoured yet, ``instead`` what to use meanwhile.
    """

    accepts: str
    parse: Callable[[Any], Any]
    later: Callable[[Any], bool] = lambda value: False
    instead: str = ""


class _Rejected(Exception):
    """A value that its rule does not accept; the text, if any, says which part of it."""


def checked(name: str, value: Any, rule: Rule) -> Any:
    """``value`` as the option ``name`` keeps it; raises ``OptionError`` with both and what is accepted."""
    shown = shortened(value)
    try:
        parsed = rule.parse(value)
    except _Rejected as reason:
        part = f" ({reason})" if str(reason) else ""
        raise OptionError(f"option {name!r} is {shown}{part}; it must be {rule.accepts}") from None
    if rule.later(parsed):
        raise OptionError(f"option {name!r} is {shown}, which is not available in this version; use {rule.instead}")
    return parsed


def shortened(value: Any) -> str:
    """``repr(value)``, cut where it would flood a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def closest(name: object, valid: Iterable[str]) -> str:
    """A hint naming the valid name most like ``name``, or nothing where none is alike."""
    near = difflib.get_close_matches(str(name), list(valid), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def _one_of(*valid: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in valid:
            raise _Rejected
        return value

    return parse


def _integer(low: int, high: int | None = None, power_of_two: bool = False) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
            raise _Rejected
        if power_of_two and value & (value - 1):
            raise _Rejected
        return value

    return parse


def _either(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        try:
            return first(value)
        except _Rejected:
            return second(value)

    return parse


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else parse(value)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise _Rejected
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Rejected
    return value


def _loop_order(value: Any) -> Any:
    if value == "auto":
        return value
    if not isinstance(value, list | tuple) or sorted(map(str, value)) != ["x", "y"]:
        raise _Rejected
    return tuple(value)


def _path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str) or not os.fspath(value):
        raise _Rejected
    return os.fspath(value)


def _mapping(check_key: Callable[[str], None], check_value: Callable[[str, Any], None]) -> Callable[[Any], FrozenMap]:
    def parse(value: Any) -> FrozenMap:
        if not isinstance(value, Mapping):
            raise _Rejected
        for key, item in value.items():
            if not isinstance(key, str):
                raise _Rejected(f"its key {key!r} is not a string")
            check_key(key)
            check_value(key, item)
        return FrozenMap(value)

    return parse


def _op_key(key: str) -> None:
    if key not in FAMILIES and not _DOTTED.fullmatch(key):
        raise _Rejected(f"{key!r} is neither a family nor a dotted op name{closest(key, FAMILIES)}")


def _op_value(key: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _Rejected(f"the value of {key!r} is {shortened(value)}, not a bool")


def _block_key(key: str) -> None:
    if key not in TILE_DIMENSIONS:
        raise _Rejected(f"{key!r} is not a tile dimension")


def _block_value(key: str, value: Any) -> None:
    try:
        _integer(1, power_of_two=True)(value)
    except _Rejected:
        raise _Rejected(f"the value of {key!r} is {shortened(value)}") from None


def _patch_key(key: str) -> None:
    if key in RESERVED_PATCHES:
        raise _Rejected(f"{key!r} is the setting by which this backend works")


def _patch_value(key: str, value: Any) -> None:
    try:
        plain = json.loads(json.dumps(value))
    except (TypeError, ValueError):
        plain = None
    if plain != value:
        raise _Rejected(f"the value of {key!r} is {shortened(value)}, not plain JSON, which cache keys are made of")


def _nothing(*_: Any) -> None:
    return None


_OPS = f"a mapping to bool from op names such as 'aten.mm' or 'aten.add.Tensor', or families: {', '.join(FAMILIES)}"
_BLOCKS = "a mapping from 'x', 'y' (parallel), 'r' (reduced), 'm', 'n' and 'k' (products) to powers of two, or None"
_PATCHES = "a mapping from the names of Inductor's settings to plain JSON values"
RULES: dict[str, Rule] = {
    "ops": Rule(_OPS, _mapping(_op_key, _op_value)),
    "regions": Rule("'auto', 'all' or 'none'", _one_of("auto", "all", "none")),
    "pid_type": Rule(" or ".join(map(repr, PID_TYPES)), _one_of(*PID_TYPES)),
    "num_sm_multiplier": Rule("a positive integer", _integer(1)),
    "reserved_sms": Rule("an integer that is not negative", _integer(0)),
    "loop_order": Rule("'auto', ['y', 'x'] or ['x', 'y']", _loop_order),
    "l2_grouping": Rule("an integer from 1 to 2147483647", _integer(1, 2**31 - 1)),
    "xcd_remap": Rule("a bool", _boolean),
    "cross_loop": Rule("'auto', 'off' or 'barrier'", _one_of("auto", "off", "barrier")),
    "block_sizes": Rule(_BLOCKS, _optional(_mapping(_block_key, _block_value))),
    "split_reductions": Rule("'auto', 'off' or an integer from 2", _either(_one_of("auto", "off"), _integer(2))),
    "num_warps": Rule("a power of two from 1 to 32, or None", _optional(_integer(1, 32, power_of_two=True))),
    "num_stages": Rule("an integer from 1 to 8, or None", _optional(_integer(1, 8))),
    "autotune": Rule("'off', 'quick' or 'full'", _one_of("off", "quick", "full")),
    "autotune_budget_s": Rule("a positive number of seconds", _positive),
    "numerics": Rule("'default'", _one_of("default", "strict"), lambda value: value != "default", "'default'"),
    "on_error": Rule("'fallback' or 'raise'", _one_of("fallback", "raise")),
    "dump": Rule("the path of a folder, or None", _optional(_path)),
    "inductor": Rule(_PATCHES, _mapping(_patch_key, _patch_value)),
}
