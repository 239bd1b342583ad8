"""Products, attention and phases at real sizes on the device: as exact as eager, on several streams, and under CUDA graphs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helion_inductor import explain
from tests.golden.functions import decoder_layer, encoder_layer
from tests.products.comparing import OPTIONS, assert_as_exact, run

pytestmark = pytest.mark.gpu
WIDTH, INNER, HEADS, CONTEXT = 1024, 4096, 16, 512


def weights(*shapes: tuple[int, ...]) -> list[Tensor]:
    g = torch.Generator("cuda").manual_seed(0)
    return [torch.randn(s, generator=g, device="cuda").div(s[-1] ** 0.5).bfloat16() for s in shapes]


def decoder_arguments() -> list[Tensor]:
    shapes = [(1, WIDTH), (3 * WIDTH, WIDTH), (WIDTH, WIDTH), (2 * INNER, WIDTH), (WIDTH, INNER)]
    caches = [(HEADS, CONTEXT, WIDTH // HEADS)] * 2
    return [*weights(*shapes, *caches), torch.tensor([CONTEXT // 2], device="cuda")]


def fresh(args: list[Tensor]) -> list[Tensor]:
    """With caches that may be written to."""
    return [t.clone() if t.dim() == 3 else t for t in args]


def test_a_decoder_layer_is_one_cooperative_kernel() -> None:
    args = decoder_arguments()
    region = explain(decoder_layer, *fresh(args), options=OPTIONS).regions[0].compiled
    assert len(region.schedules) == 1 and len(region.schedules[0].phases) > 4

    def fn(*args: Tensor) -> Tensor:
        return decoder_layer(*fresh(list(args)))

    assert_as_exact(fn, run(decoder_layer, *fresh(args)), *args)


@pytest.mark.parametrize("tokens", [3, 16, 100, 128])
def test_an_encoder_layer(tokens: int) -> None:
    args = weights((tokens, 768), (2304, 768), (768, 768), (3072, 768), (768, 3072))
    assert_as_exact(encoder_layer, run(encoder_layer, *args), *args)


def test_decoding_on_two_streams_and_under_graphs() -> None:
    """A thousand steps: every result is that of the first."""
    args = decoder_arguments()
    compiled = torch.compile(decoder_layer, backend="helion", options=OPTIONS, dynamic=False)
    own = [fresh(args), fresh(args)]
    want = compiled(*own[0]).clone()
    assert torch.equal(compiled(*own[1]), want)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    graphs = []
    for stream, mine in zip(streams, own, strict=True):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compiled(*mine)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = compiled(*mine)
        graphs.append((graph, out))
    results = []
    for step in range(500):
        for stream, mine, (graph, out) in zip(streams, own, graphs, strict=True):
            with torch.cuda.stream(stream):
                if step % 2:
                    graph.replay()
                    results.append(out.clone())
                else:
                    results.append(compiled(*mine))
    torch.cuda.synchronize()
    wrong = sum(not torch.equal(r, want) for r in results)
    assert not wrong, f"{wrong} of {len(results)} results differ"
