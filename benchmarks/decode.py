"""Decoding one token with a key-value cache: transformers' classes unchanged, random weights, bf16, on one GPU.

    python benchmarks/decode.py [--only ROW ...] [--out FILE] [--budget SECONDS]

Times are those of benchmarks/models.py: wall_us of a call with the synchronisation that ends it, stream_us of calls back to back.
The error is that of the logits of one step, against float64 with the same weights and the same cache, over the norm of those. The
cache is as long as the context, and filled up to the token's place; every so many calls the place is set back.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the repository, in place of this folder

import torch
from torch import Tensor

from benchmarks import harness, measuring, timing
from benchmarks.measuring import Bench, NotHere, Subject, Trial
from benchmarks.models import plain
from benchmarks.peers import Peer, compiled

PEERS = ("eager", "inductor", "inductor-ro", "helion-auto", "helion-auto-ro")
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, vocab_size=160,
             max_position_embeddings=256)  # fmt: skip


@dataclass(frozen=True)
class Decoder:
    """A model of transformers by the names of its classes, its shape, and a batch of tokens with a cache of ``context`` places."""

    title: str
    family: str
    shape: dict[str, Any]
    batch: int = 1
    context: int = 1024

    def measure(self, bench: Bench) -> None:
        if importlib.util.find_spec("transformers") is None:
            raise NotHere("transformers is not installed")
        import transformers as hf

        torch.manual_seed(0)
        context, dtype = (64, torch.float32) if bench.smoke else (self.context, torch.bfloat16)
        config = getattr(hf, f"{self.family}Config")(**(SMALL if bench.smoke else self.shape))
        model = getattr(hf, f"{self.family}ForCausalLM")(config).to(bench.device, dtype).eval()
        step = _Step(model, torch.full((self.batch, 1), 7, device=bench.device), context)
        with torch.no_grad():
            exact = step.logits_in_float64()
        measuring.measure(bench, Subject(step.starter(exact, bench.device), dtype, latency=True))


class _Step:
    """One step of a model at a place in its cache."""

    def __init__(self, model: Any, tokens: Tensor, context: int) -> None:
        self.model, self.tokens, self.context = model, tokens, context
        self.place = context // 8

    def cache(self, model: Any) -> Any:
        import transformers as hf

        cache = hf.StaticCache(config=model.config, max_cache_len=self.context)
        model(self.tokens, past_key_values=cache)  # makes its tensors
        self.fill(cache)
        return cache

    def fill(self, cache: Any) -> None:
        """The same contents in every cache: numbers of bf16 up to the token's place, zeros behind it."""
        generator = torch.Generator(self.tokens.device).manual_seed(1)
        for layer in cache.layers:
            self.set_back(layer)
            for t in (layer.keys, layer.values):
                t.copy_(torch.randn(t.shape, device=t.device, generator=generator).bfloat16())
                t[..., self.place :, :] = 0

    def set_back(self, layer: Any) -> None:
        layer.cumulative_length.fill_(self.place)

    def logits_in_float64(self) -> Tensor:
        wide = copy.deepcopy(self.model).double()
        return wide(self.tokens, past_key_values=self.cache(wide)).logits.clone()  # type: ignore[no-any-return]

    def starter(self, exact: Tensor, device: str) -> Callable[[Peer], Trial]:
        def start(peer: Peer) -> Trial:
            cache = self.cache(self.model)
            fn = compiled(plain(self.model), peer, device)
            left = [self.context - self.place]

            def call() -> Any:
                if left[0] == 0:
                    for layer in cache.layers:
                        self.set_back(layer)
                    left[0] = self.context - self.place
                left[0] -= 1
                return fn(self.tokens, past_key_values=cache).logits

            def error() -> float:
                for _ in range(2):  # the second call under reduce-overhead records, the third replays
                    call()
                self.fill(cache)
                left[0] = self.context - self.place - 1
                return timing.relative_error(fn(self.tokens, past_key_values=cache).logits, exact)

            return Trial(call, error)

        return start


LLAMA = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=1024,
             max_position_embeddings=2048, rope_theta=500000.0, tie_word_embeddings=False)  # fmt: skip
QWEN3 = dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
             vocab_size=1024, max_position_embeddings=2048, tie_word_embeddings=False)  # fmt: skip
CASES = {
    "llama-1b": Decoder("Llama-3.2-1B shapes, a head of 1024, one token, context 1024", "Llama", LLAMA),
    "qwen3-12l": Decoder("Qwen3, 12 layers of the 0.6B shape, a head of 1024, one token, context 1024", "Qwen3", QWEN3),
    "qwen3-12l-batch-8": Decoder("the same, 8 tokens", "Qwen3", QWEN3, batch=8),
}
SUITE = harness.Suite("decode", __doc__ or "", {n: harness.Row(c.title, PEERS, c.measure) for n, c in CASES.items()})

if __name__ == "__main__":
    sys.exit(harness.main(SUITE))
