"""Small models of the transformers library with random weights, their inputs, and how a result is compared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    """Extents of a model and of its inputs; heads divide ``hidden``, ``patch`` divides ``image`` (pixels)."""

    hidden: int = 32
    inner: int = 64
    layers: int = 1
    heads: int = 2
    vocab: int = 64
    tokens: int = 8
    image: int = 32
    patch: int = 8
    channels: tuple[int, ...] = (8, 16)

    def with_layers(self, layers: int) -> Size:
        return replace(self, layers=layers)


TINY = Size()
"""For the interpreter, where a program instance costs milliseconds."""
MEDIUM = Size(256, 704, 1, 4, 512, 96, 64, 8, (32, 64, 96))
"""For a device: rows past one tile, and extents that no tile divides."""


def _words(model: Callable[[Size], nn.Module], **settings: Any) -> Entry:
    def inputs(size: Size, batch: int, device: str, dtype: torch.dtype) -> dict[str, Any]:
        return {"input_ids": torch.randint(0, size.vocab, (batch, size.tokens), device=device), **settings}

    return Entry(model, inputs)


def _pictures(model: Callable[[Size], nn.Module]) -> Entry:
    def inputs(size: Size, batch: int, device: str, dtype: torch.dtype) -> dict[str, Any]:
        return {"pixel_values": torch.randn(batch, 3, size.image, size.image, device=device, dtype=dtype)}

    return Entry(model, inputs)


@dataclass(frozen=True)
class Entry:
    """``model(size)`` and ``inputs(size, batch, device, dtype)``: keyword arguments of its forward."""

    model: Callable[[Size], nn.Module]
    inputs: Callable[[Size, int, str, torch.dtype], dict[str, Any]]


def _common(size: Size) -> dict[str, Any]:
    return {
        "hidden_size": size.hidden,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
    }


def _decoder(size: Size) -> dict[str, Any]:
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    return {**_common(size), **tokens, "vocab_size": size.vocab, "num_key_value_heads": size.heads // 2, "use_cache": False}


def _bert(size: Size) -> nn.Module:
    return hf.BertModel(hf.BertConfig(vocab_size=size.vocab, **_common(size)))


def _qwen3(size: Size) -> nn.Module:
    return hf.Qwen3Model(hf.Qwen3Config(head_dim=size.hidden // size.heads, **_decoder(size)))


def _mixtral(size: Size) -> nn.Module:
    return hf.MixtralModel(hf.MixtralConfig(num_local_experts=4, **_decoder(size)))


def _llama(size: Size) -> nn.Module:
    return hf.LlamaModel(hf.LlamaConfig(**_decoder(size)))


def _gpt2(size: Size) -> nn.Module:
    shape = {"n_embd": size.hidden, "n_layer": size.layers, "n_head": size.heads, "n_inner": size.inner}
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    return hf.GPT2Model(hf.GPT2Config(vocab_size=size.vocab, n_positions=2 * size.tokens, use_cache=False, **tokens, **shape))


def _t5(size: Size) -> nn.Module:
    shape = {"d_model": size.hidden, "d_kv": size.hidden // size.heads, "d_ff": size.inner}
    return hf.T5EncoderModel(hf.T5Config(vocab_size=size.vocab, num_layers=size.layers, num_heads=size.heads, **shape))


def _vit(size: Size) -> nn.Module:
    return hf.ViTModel(hf.ViTConfig(image_size=size.image, patch_size=size.patch, **_common(size)))


def _resnet(size: Size) -> nn.Module:
    channels = list(size.channels)
    return hf.ResNetModel(hf.ResNetConfig(embedding_size=channels[0], hidden_sizes=channels, depths=[1] * len(channels)))


def _convnext(size: Size) -> nn.Module:
    channels = list(size.channels)
    depths = [1] * len(channels)
    return hf.ConvNextModel(hf.ConvNextConfig(hidden_sizes=channels, depths=depths, num_stages=len(channels)))


ZOO: dict[str, Entry] = {
    "bert": _words(_bert),
    "qwen3": _words(_qwen3, use_cache=False),
    "mixtral": _words(_mixtral, use_cache=False),
    "vit": _pictures(_vit),
    "t5": _words(_t5),
    "gpt2": _words(_gpt2, use_cache=False),
    "llama": _words(_llama, use_cache=False),
    "resnet": _pictures(_resnet),
    "convnext": _pictures(_convnext),
}


def build(name: str, size: Size = TINY, device: str = "cpu", dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model in evaluation mode, with weights that depend on nothing but the arguments."""
    torch.manual_seed(0)
    return ZOO[name].model(size).to(device, dtype).eval()


def make_inputs(
    name: str, batch: int, size: Size = TINY, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> dict[str, Any]:
    """Keyword arguments for a batch of ``batch``; other seeds give other values."""
    torch.manual_seed(1000 * seed + batch)
    return ZOO[name].inputs(size, batch, device, dtype)


def in_float64(model: nn.Module, inputs: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """The same weights and inputs in double precision."""
    return copy.deepcopy(model).double(), {k: v.double() if _is_float(v) else v for k, v in inputs.items()}


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


@dataclass(frozen=True)
class Outcome:
    """First output of a call, and the gradient of every parameter that got one (empty without a backward)."""

    output: Tensor
    gradients: dict[str, Tensor]

    def gradients_of(self, other: Outcome) -> list[Tensor]:
        """The gradients of the parameters that got one in ``other``, in its order.

        A compiled backward also fills those of parameters that the loss does not reach (a pooler's): with zeros.
        """
        missing = other.gradients.keys() - self.gradients.keys()
        assert not missing, f"no gradient for {sorted(missing)}"
        wrong = [n for n, g in self.gradients.items() if n not in other.gradients and g.any()]
        assert not wrong, f"a gradient other than zero for {wrong}"
        return [self.gradients[n] for n in other.gradients]


def infer(call: Callable[..., Any], inputs: dict[str, Any]) -> Outcome:
    with torch.no_grad():
        return Outcome(call(**inputs)[0].clone(), {})


def train(model: nn.Module, call: Callable[..., Any], inputs: dict[str, Any]) -> Outcome:
    """Forward and backward of ``call``, which runs ``model``; the gradients are taken off the model again.

    The loss weighs every element differently: a plain sum or sum of squares behind a normalisation has no gradient.
    """
    model.zero_grad(set_to_none=True)
    output = call(**inputs)[0]
    steps = torch.arange(output.numel(), device=output.device, dtype=torch.float64)
    weights = torch.cos(steps * 0.7).reshape(output.shape).to(output.dtype)
    (output * weights).sum().backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return Outcome(output.detach().clone(), gradients)


def largest_difference(actual: Outcome, expected: Outcome) -> tuple[float, float]:
    """Largest difference of the outputs, and of the gradients, relative to the largest expected element of their kind."""
    output = _largest(actual.output - expected.output) / _largest(expected.output)
    pairs = list(zip(actual.gradients_of(expected), expected.gradients.values(), strict=True))
    if not pairs:
        return output, 0.0
    return output, max(_largest(a - e) for a, e in pairs) / max(_largest(e) for _, e in pairs)


def relative_error(actual: Outcome, exact: Outcome) -> tuple[float, float]:
    """Norm of the error over the norm of the exact value, for the output and for all gradients together (0 without any)."""
    output = _relative(actual.output.double().flatten(), exact.output.flatten())
    gradients = actual.gradients_of(exact)
    if not gradients:
        return output, 0.0
    return output, _relative(_joined(gradients), _joined(exact.gradients.values()))


def _joined(tensors: Iterable[Tensor]) -> Tensor:
    """One long vector, in float64."""
    return torch.cat([t.double().flatten() for t in tensors])


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max())


def _relative(actual: Tensor, exact: Tensor) -> float:
    return float((actual - exact).norm() / exact.norm())
