"""Whole models on one GPU with random weights, in bf16: inference, and one training step, beside eager and Inductor.

    python benchmarks/models.py [--only ROW ...] [--out FILE] [--budget SECONDS]

wall_us: wall time of a call with the synchronisation that ends it. gpu_us: replay of a CUDA graph of one call, recorded by
hand, with a cold L2 cache. stream_us: calls (under reduce-overhead) or replays (else) back to back, between events. The error
is the norm of the difference from a float64 run of the same weights, over that run's norm: of the output, or for a training
step of all gradients together. compile_s is the first call, in caches of its own; recordings of CUDA graphs come after it.
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
from torch import Tensor, nn

from benchmarks import harness, measuring, timing
from benchmarks.measuring import Bench, NotHere, Subject, Trial
from benchmarks.peers import DEFAULT_MODE, Peer, compiled

# In the order of interest: what does not fit into the time is left out at the end.
PEERS = ("eager", "inductor", "inductor-ro", "helion-auto", "helion-auto-ro", "helion-all", "helion-all-ro", "combo")
Inputs = dict[str, Any]


def _words(batch: int, tokens: int, **more: Any) -> Callable[[str, torch.dtype], Inputs]:
    return lambda device, dtype: {"input_ids": torch.randint(0, 1000, (batch, tokens), device=device), **more}


def _pictures(batch: int, name: str = "pixel_values") -> Callable[[str, torch.dtype], Inputs]:
    return lambda device, dtype: {name: torch.randn(batch, 3, 224, 224, device=device, dtype=dtype)}


def _bert() -> nn.Module:
    import transformers as hf

    return hf.BertModel(hf.BertConfig())


def _bert_without_dropout() -> nn.Module:
    import transformers as hf

    return hf.BertModel(hf.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def _qwen3() -> nn.Module:
    import transformers as hf

    shape = dict(hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
    return hf.Qwen3Model(hf.Qwen3Config(num_hidden_layers=12, use_cache=False, **shape))


def _vit() -> nn.Module:
    import transformers as hf

    return hf.ViTModel(hf.ViTConfig())


def _t5() -> nn.Module:
    import transformers as hf

    return hf.T5EncoderModel(hf.T5Config())  # the defaults are t5-small's


def _resnet50() -> nn.Module:
    import timm

    return timm.create_model("resnet50")


@dataclass(frozen=True)
class Case:
    """``make()`` on the device in bf16, fed with ``inputs(device, dtype)``; ``tiny`` names the test zoo's model for smoke runs."""

    title: str
    make: Callable[[], nn.Module]
    inputs: Callable[[str, torch.dtype], Inputs]
    tiny: str
    needs: str = "transformers"
    trains: bool = False

    def build(self, bench: Bench) -> tuple[nn.Module, Inputs, torch.dtype]:
        """The model, its inputs and their dtype; raises NotHere where a library is missing."""
        if importlib.util.find_spec(self.needs) is None:
            raise NotHere(f"{self.needs} is not installed")
        torch.manual_seed(0)
        if bench.smoke:
            from tests.models import zoo

            return zoo.build(self.tiny, device=bench.device), zoo.make_inputs(self.tiny, 2, device=bench.device), torch.float32
        model = self.make().to(bench.device, torch.bfloat16)
        return model.train(self.trains), self.inputs(bench.device, torch.bfloat16), torch.bfloat16

    def measure(self, bench: Bench) -> None:
        model, inputs, dtype = self.build(bench)
        start = _training(model, inputs, bench.device) if self.trains else _inference(model, inputs, bench.device)
        measuring.measure(bench, Subject(start, dtype, grad=self.trains, latency=True))


def in_float64(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    wide = {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in inputs.items()}
    return copy.deepcopy(model).double(), wide


def first_output(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]


def plain(model: nn.Module) -> Callable[..., Any]:
    """The model's call as a plain function, which every peer compiles a copy of."""

    def call(*args: Any, **inputs: Any) -> Any:
        return model(*args, **inputs)

    return call


def arguments(inputs: Inputs) -> tuple[tuple[Any, ...], Inputs]:
    """Positional and named arguments; a model that has no names for its inputs gets what is called ``x``."""
    return ((inputs["x"],), {}) if "x" in inputs else ((), inputs)


def _inference(model: nn.Module, inputs: Inputs, device: str) -> Callable[[Peer], Trial]:
    args, named = arguments(inputs)
    wide, wide_inputs = in_float64(model, inputs)
    wide_args, wide_named = arguments(wide_inputs)
    with torch.no_grad():
        exact = first_output(wide(*wide_args, **wide_named)).clone()

    def start(peer: Peer) -> Trial:
        fn = compiled(plain(model), peer, device)

        def error() -> float:
            for _ in range(2):  # the second call under reduce-overhead records, the third replays
                fn(*args, **named)
            return timing.relative_error(first_output(fn(*args, **named)), exact)

        return Trial(lambda: fn(*args, **named), error)

    return start


def gradients(call: Callable[..., Any], params: list[Tensor], inputs: Inputs) -> list[Tensor | None]:
    """Forward and backward of a loss that weighs every element of the output differently: a plain sum or sum of squares behind
    a normalisation has no gradient. The weights are numbers of bf16, so equal in every dtype."""
    output = first_output(call(**inputs))
    weights = torch.cos(torch.arange(output.numel(), device=output.device) * 0.7).reshape(output.shape)
    return list(torch.autograd.grad(output, params, weights.bfloat16().to(output.dtype), allow_unused=True))


def _training(model: nn.Module, inputs: Inputs, device: str) -> Callable[[Peer], Trial]:
    params: list[Tensor] = list(model.parameters())
    wide, wide_inputs = in_float64(model, inputs)
    exact = gradients(wide, list(wide.parameters()), wide_inputs)
    reached = [k for k, g in enumerate(exact) if g is not None]  # a compiled backward gives zeros for the others

    def joined(found: list[Tensor | None]) -> Tensor:
        return torch.cat([g.double().flatten() for k in reached if (g := found[k]) is not None])

    def start(peer: Peer) -> Trial:
        fn = compiled(plain(model), peer, device)

        def call() -> Any:
            return gradients(fn, params, inputs)

        return Trial(call, lambda: timing.relative_error(joined(call()), joined(exact)))

    return start


CASES = {
    "bert-base-1x128": Case("BERT-base, 1 x 128", _bert, _words(1, 128), "bert"),
    "qwen3-12l-1x128": Case("Qwen3, 12 layers of the 0.6B shape, 1 x 128", _qwen3, _words(1, 128, use_cache=False), "qwen3"),
    "qwen3-12l-1x1": Case("Qwen3, the same, 1 token", _qwen3, _words(1, 1, use_cache=False), "qwen3"),
    "vit-b-1": Case("ViT-B, batch 1", _vit, _pictures(1), "vit"),
    "t5-small-encoder-1x128": Case("T5-small encoder, 1 x 128", _t5, _words(1, 128), "t5"),
    "resnet50-1": Case("timm resnet50, batch 1", _resnet50, _pictures(1, "x"), "resnet", "timm"),
    "bert-base-32x512": Case("BERT-base, 32 x 512", _bert, _words(32, 512), "bert"),
    "bert-base-train-8x128": Case(
        "BERT-base, forward and backward, 8 x 128", _bert_without_dropout, _words(8, 128), "bert", trains=True
    ),
}
SUITE = harness.Suite(
    "models",
    __doc__ or "",
    {n: harness.Row(c.title, DEFAULT_MODE if c.trains else PEERS, c.measure) for n, c in CASES.items()},
)

if __name__ == "__main__":
    sys.exit(harness.main(SUITE))
