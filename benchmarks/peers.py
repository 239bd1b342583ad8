"""Who is compared: eager PyTorch, Inductor, and this backend, each in the modes that matter; and how one is compiled."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

GRAPHED = "triton.cudagraphs"
COMBO = ("combo_kernels", "combo_kernel_per_subkernel_blocks")


@dataclass(frozen=True)
class Peer:
    """``settings`` are arguments of torch.compile, None for eager. ``rival`` is the peer in the same mode that this one is
    compared with. A peer with ``caches_of`` finds the caches of that peer, so its compile_s is not that of a first compilation.
    """

    name: str
    settings: Mapping[str, Any] | None = None
    rival: str | None = None
    caches_of: str | None = None

    @property
    def eager(self) -> bool:
        return self.settings is None

    @property
    def ours(self) -> bool:
        return not self.eager and self.settings.get("backend") == "helion"

    @property
    def graphed(self) -> bool:
        """Whether torch.compile itself records and replays CUDA graphs."""
        if self.eager:
            return False
        patches = self.settings.get("options", {}).get("inductor", {})
        return self.settings.get("mode") == "reduce-overhead" or bool(patches.get(GRAPHED))


def _helion(**options: Any) -> dict[str, Any]:
    return {"backend": "helion", "options": options}


_EVERY = (
    Peer("eager"),
    Peer("eager-fused"),
    Peer("inductor", {}),
    Peer("helion-auto", {"backend": "helion"}, "inductor"),
    Peer("helion-all", _helion(regions="all"), "inductor"),
    Peer("combo", {"options": dict.fromkeys(COMBO, True)}, "inductor"),
    Peer("inductor-ro", {"mode": "reduce-overhead"}, caches_of="inductor"),
    Peer("helion-auto-ro", {"backend": "helion", "mode": "reduce-overhead"}, "inductor-ro", "helion-auto"),
    # torch.compile takes a mode or options; this is what the mode sets.
    Peer("helion-all-ro", _helion(regions="all", inductor={GRAPHED: True}), "inductor-ro", "helion-all"),
    Peer("helion-flat", _helion(regions="all", pid_type="flat"), "inductor"),
    Peer("helion-blocked", _helion(regions="all", pid_type="persistent_blocked"), "inductor"),
    Peer("helion-interleaved", _helion(regions="all", pid_type="persistent_interleaved"), "inductor"),
)
PEERS = {peer.name: peer for peer in _EVERY}
DEFAULT_MODE = ("eager", "inductor", "helion-auto", "helion-all", "combo")
USUAL = (*DEFAULT_MODE, "inductor-ro", "helion-auto-ro")


def settings_for(peer: Peer, device: str) -> dict[str, Any]:
    """Arguments of torch.compile for a compiled peer.

    On the CPU, where only the flow of a benchmark is tried, "aot_eager" stands in for Inductor: it traces the same graphs and
    compiles no C++. Settings of combo kernels that this version of Inductor lacks are left out.
    """
    import torch._inductor.config as config

    if device == "cpu" and not peer.ours:
        return {"backend": "aot_eager"}
    settings = dict(peer.settings or {})
    if peer.name == "combo":
        settings["options"] = {name: value for name, value in settings["options"].items() if hasattr(config, name)}
    return settings


def allow_many_compilations() -> None:
    """Peers share code objects below the compiled function (a module's, an optimizer's); Dynamo gives up after 8 by default."""
    import torch._dynamo.config as config

    for name in ("recompile_limit", "accumulated_recompile_limit"):
        if hasattr(config, name):
            setattr(config, name, 1 << 16)


def own_code(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``fn``, a plain function, with a code object of its own: Dynamo keeps what it compiled by code object."""
    code = fn.__code__.replace(co_name=f"{fn.__name__.strip('<>')}_{name.replace('-', '_')}")
    own = FunctionType(code, fn.__globals__, code.co_name, fn.__defaults__, fn.__closure__)
    own.__kwdefaults__ = fn.__kwdefaults__
    return own


def compiled(fn: Callable[..., Any], peer: Peer, device: str) -> Callable[..., Any]:
    """What runs for ``peer`` in place of the plain function ``fn``; shapes are static."""
    own = own_code(fn, peer.name)
    if peer.eager:
        return own
    result = torch.compile(own, dynamic=False, **settings_for(peer, device))
    if not peer.graphed:
        return result

    def stepped(*args: Any, **kwargs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()  # results of the call before are done with
        return result(*args, **kwargs)

    return stepped


@contextlib.contextmanager
def caches(folder: Path, peer: Peer) -> Iterator[None]:
    """Inductor's and Triton's caches under ``folder``, one place for each peer."""
    names = {"TORCHINDUCTOR_CACHE_DIR": folder / (peer.caches_of or peer.name)}
    names["TRITON_CACHE_DIR"] = names["TORCHINDUCTOR_CACHE_DIR"] / "triton"
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(path) for name, path in names.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
