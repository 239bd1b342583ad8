"""The options of the backend: one frozen value, checked at the door, and the one place that reads the environment.

``Options.from_mapping(given, mode)`` merges three layers, the later one winning option by option (a mapping such as
``ops`` is replaced, not joined): the defaults below, the JSON object in the environment variable
``HELION_INDUCTOR_OPTIONS``, and ``given``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .errors import OptionError
from .option_rules import RULES, FrozenMap, checked, closest, shortened

ENVIRONMENT_VARIABLE = "HELION_INDUCTOR_OPTIONS"
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Options:
    """Settings of one compilation; every field but ``mode`` is an option that users may name.

    Raises ``OptionError`` for a value that its option does not accept, or that this version cannot honour.
    """

    ops: FrozenMap = field(default_factory=FrozenMap)
    """Ops and families to take (true) or to leave to Inductor (false); see ``op_choice``."""
    regions: str = "auto"
    """Which supported stretches of a graph become regions: "auto" those that pay, "all", or "none"."""
    pid_type: str = "auto"
    """How programs share the tiles: "auto", "flat", "persistent_blocked" or "persistent_interleaved"."""
    num_sm_multiplier: int = 4
    """Programs launched for each multiprocessor by persistent kernels; at least 1."""
    reserved_sms: int = 0
    """Multiprocessors that persistent kernels leave free; at least 0."""
    loop_order: Literal["auto"] | tuple[str, ...] = "auto"
    """Order in which tiles of two dimensions are numbered, the slowest first: ("y", "x") or ("x", "y"); "auto" leaves it to the
    compiler. Loops with one parallel dimension, all but those that transpose, are not affected."""
    l2_grouping: int = 1
    """Rows of tiles that are visited together, column by column, for the sake of the L2 cache; 1 means off. Loops with one
    parallel dimension are not affected."""
    xcd_remap: bool = False
    """Keep neighbouring tiles on one chiplet of devices that have several (AMD's MI300); on others nothing changes."""
    cross_loop: str = "auto"
    """Whether dependent loops may share a kernel, as phases with barriers between them: "auto" where that pays, "off", or "barrier",
    wherever it is possible."""
    block_sizes: FrozenMap | None = None
    """Tile sizes, powers of two, of the parallel dimension ("x"; "y" too where a loop transposes) and the reduced one ("r"), and of rows,
    columns and the summed axis of products of matrices ("m", "n", "k"; at least 16)."""
    split_reductions: str | int = "auto"
    """Whether long rows are reduced by many programs, in two steps: "auto" where that pays, "off", or rows of more than so many
    elements, in chunks of about as many; at least 2."""
    num_warps: int | None = None
    """Warps of a program, a power of two up to 32; None leaves it to the compiler."""
    num_stages: int | None = None
    """Stages of software pipelining, 1 to 8; None leaves it to the compiler."""
    autotune: str = "off"
    """Choose kernels, and whether a region is taken, by measuring on the GPU: "off", "quick" (a handful of candidates for each
    region) or "full" (from the best so far onwards, until nothing improves)."""
    autotune_budget_s: float = 60.0
    """Seconds that measuring may take for one compilation, its backward included; positive."""
    numerics: str = "default"
    """Rounding: "default" computes half precision in float32 and rounds at stores."""
    on_error: str = "fallback"
    """On an error of the compiler: "fallback" logs it and leaves the region to Inductor, "raise" passes it on."""
    dump: str | None = None
    """Folder that receives every stage of every region as text; None for no dump."""
    inductor: FrozenMap = field(default_factory=FrozenMap)
    """Patches of Inductor's own settings for these graphs, plain JSON values by name."""
    mode: str | None = None
    """The ``mode`` argument of ``torch.compile`` (None for "default"); not an option."""

    def __post_init__(self) -> None:
        for name, rule in RULES.items():
            object.__setattr__(self, name, checked(name, getattr(self, name), rule))
        if self.mode is not None and self.mode not in MODES:
            hint = closest(self.mode, MODES)
            raise OptionError(f"mode {self.mode!r} is unknown{hint}; valid modes: {', '.join(MODES)}")
        object.__setattr__(self, "mode", None if self.mode == "default" else self.mode)

    @staticmethod
    def names() -> tuple[str, ...]:
        """The names of all options, in documented order."""
        return tuple(RULES)

    @staticmethod
    def from_mapping(options: Mapping[str, Any] | None = None, mode: str | None = None) -> Options:
        """Defaults, overridden by the environment, overridden by ``options``.

        Raises ``OptionError`` naming an unknown option or a wrong value, and the variable where that was the source.
        """
        merged = _from_environment(os.environ.get(ENVIRONMENT_VARIABLE))
        return Options(**(merged | _known(options or {}, "")), mode=mode)

    def op_choice(self, names: Sequence[str], families: Iterable[str] = ()) -> bool | None:
        """What ``ops`` says about a node: True (take it), False (leave it) or None (nothing said).

        ``names`` are overload names such as ``"aten._softmax.default"``: the node's own first, then those of the ops
        that were decomposed into it.  An exact overload decides before its packet (``"aten._softmax"``), that before
        the packet without leading underscores (``"aten.softmax"``), and any of them before a family.
        """
        packets = [".".join(name.split(".")[:2]) for name in names]
        public = [re.sub(r"\._+", ".", packet) for packet in packets]
        for key in (*names, *packets, *public, *families):
            if key in self.ops:
                return bool(self.ops[key])
        return None

    def canonical(self) -> str:
        """All settings as one line of JSON with sorted keys: equal options, equal text, in every process."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(plain, sort_keys=True, default=dict, separators=(",", ":"))

    def __str__(self) -> str:
        lines = [] if self.mode is None else [f"{'mode':<18} {self.mode!r}"]
        for name in RULES:
            value, default = getattr(self, name), getattr(_DEFAULTS, name)
            lines.append(f"{name:<18} {value!r}" + ("" if value == default else f"  (default {default!r})"))
        return "\n".join(lines)


def interpret_kernels() -> None:
    """Have Triton interpret kernels in this process. Triton looks once, when it is imported: call this before."""
    if "triton" in sys.modules:
        raise OptionError("Triton's interpreter cannot be switched on any more: triton has been imported already")
    os.environ["TRITON_INTERPRET"] = "1"


def _known(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise OptionError(f"{where}options are {shortened(options)}; they must be a mapping from names to values")
    for name in options:
        if name not in RULES:
            hint = closest(name, RULES)
            raise OptionError(f"{where}unknown option {name!r}{hint}; valid options: {', '.join(RULES)}")
    return dict(options)


def _from_environment(text: str | None) -> dict[str, Any]:
    if text is None or not text.strip():
        return {}
    where = f"{ENVIRONMENT_VARIABLE}: "
    try:
        options = _known(json.loads(text), where)
    except json.JSONDecodeError as error:
        example = '{"regions": "all"}'
        raise OptionError(f"{where}not valid JSON ({error}); it must be an object, such as {example}") from None
    try:
        Options(**options)
    except OptionError as error:
        raise OptionError(f"{where}{error}") from None
    return options


_DEFAULTS = Options()
