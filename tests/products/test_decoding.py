"""Decoding with a key-value cache: tokens equal eager's, and the cache is updated where it lies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import Tensor

import helion_inductor
from helion_inductor.ir.tile_ir import Load, Store

from .comparing import OPTIONS, run, tiles_of_a_gpu

transformers = pytest.importorskip("transformers")
TOKENS, LENGTH = 12, 32


def model(layers: int = 2) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2, vocab_size=160,
        max_position_embeddings=64,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def decoded(m: Any, step: Any, device: str) -> tuple[list[int], Tensor, Any]:
    """Greedy tokens after a prompt, the last logits, and the cache."""
    cache = transformers.StaticCache(config=m.config, max_cache_len=LENGTH)
    tokens: list[int] = []
    with torch.no_grad():
        logits = m(torch.tensor([[3, 5, 7, 9]], device=device), past_key_values=cache).logits
        for _ in range(TOKENS):
            token = logits[:, -1:].argmax(-1)
            tokens.append(int(token))
            logits = step(token, past_key_values=cache).logits
    return tokens, logits, cache


@pytest.mark.parametrize("gpu_tiles", [False, True])
def test_greedy_tokens_equal_those_of_eager(device: str, gpu_tiles: bool) -> None:
    m = model().to(device)
    want, want_logits, want_cache = decoded(m, m, device)
    torch.compiler.reset()
    options = {**OPTIONS, "cross_loop": "barrier"}
    with inductor_config.patch(force_disable_caches=True):
        step = torch.compile(m, backend="helion", options=options, dynamic=False)
        if gpu_tiles:
            with tiles_of_a_gpu():
                got, logits, cache = decoded(m, step, device)
        else:
            got, logits, cache = decoded(m, step, device)
    assert got == want
    torch.testing.assert_close(logits, want_logits, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(cache.layers, want_cache.layers, strict=True):
        torch.testing.assert_close(mine.keys, theirs.keys, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.values, theirs.values, rtol=1e-4, atol=1e-5)


def test_no_copy_of_the_cache() -> None:
    m = model(layers=3)
    cache = transformers.StaticCache(config=m.config, max_cache_len=LENGTH)
    with torch.no_grad():
        m(torch.tensor([[3, 5]]), past_key_values=cache)
        report = helion_inductor.explain(m, torch.tensor([[7]]), past_key_values=cache, options=OPTIONS)
    (region,) = report.regions
    caches = {b.name for b in region.compiled.program.buffers if tuple(map(str, b.shape)) == ("1", "2", str(LENGTH), "16")}
    assert sum(d.granted for d in region.compiled.in_place) == 3 * 3  # keys, values and the count of each layer
    for nest in region.compiled.program.nests:
        loads = {s.buffer for s in nest.body if isinstance(s, Load)} & caches
        stores = {s.buffer for s in nest.body if isinstance(s, Store)} & caches
        assert not (loads and stores), f"copies a cache: {nest}"
        assert not stores or int(torch.tensor([int(a.extent) for a in nest.parallel]).prod()) <= 2 * 16


def test_layers_that_are_alike_are_compiled_once() -> None:
    m = model(layers=6)
    cache = transformers.StaticCache(config=m.config, max_cache_len=LENGTH)
    with torch.no_grad():
        m(torch.tensor([[3, 5]]), past_key_values=cache)
        report = helion_inductor.explain(m, torch.tensor([[7]]), past_key_values=cache, options=OPTIONS)
    names = [k.name for k in report.kernels]
    assert len(set(names)) < len(names)


def test_the_old_cache_is_kept_for_who_reads_it(device: str) -> None:
    """What is returned of the cache before its update must not see it."""

    def fn(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
        before = cache.sum(1)
        cache.index_copy_(1, at, new)
        return before + cache.amax(1)

    g = torch.Generator().manual_seed(0)
    cache, new = torch.randn(3, 8, 5, generator=g).to(device), torch.randn(3, 1, 5, generator=g).to(device)
    at, mine, theirs = torch.tensor([4], device=device), cache.clone(), cache.clone()
    torch.testing.assert_close(run(fn, mine, new, at), fn(theirs, new, at))
    torch.testing.assert_close(mine, theirs)
