"""The demo's models: built from a configuration with random weights, fed with bytes of a text that comes with the
package.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import torch

from .errors import HelionError

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Turns a function or module into what runs in its place; the identity for eager."""
Runner = Callable[[], dict[str, torch.Tensor]]
VOCABULARY = 256  # token ids are bytes


@dataclass(frozen=True)
class Size:
    """How large the models are. ``rows`` sequences of ``length`` tokens; ``hidden`` is a multiple of 16 times
    ``heads``.
    """

    hidden: int
    layers: int
    heads: int
    rows: int
    length: int


SIZES = {
    ("cpu", False): Size(hidden=64, layers=2, heads=4, rows=2, length=32),
    ("cpu", True): Size(hidden=32, layers=1, heads=2, rows=1, length=16),
    ("cuda", False): Size(hidden=768, layers=6, heads=12, rows=4, length=128),
    ("cuda", True): Size(hidden=128, layers=1, heads=4, rows=2, length=32),
}
"""By kind of device and whether the demo is to be quick."""


@dataclass(frozen=True)
class Case:
    """A row of the demo. ``runner(compile, dtype)`` gives a function of no arguments that yields named tensors.

    ``dtype`` is what the weights are; equal weights, rounded to ``self.dtype`` first, underlie every runner of the
    case.
    """

    name: str
    dtype: torch.dtype
    runner: Callable[[Compile, torch.dtype], Runner]


def cases(device: str, quick: bool) -> tuple[Case, ...]:
    """All rows, in order. Raises HelionError where transformers is not installed."""
    size = SIZES[device, quick]
    half = torch.bfloat16 if device == "cuda" else torch.float32
    tokens = sample_tokens(size).to(device)
    qwen, bert, masked = _qwen3(size).to(half), _bert(size, "BertModel").to(half), _bert(size, "BertForMaskedLM")
    return (
        Case("Qwen3ForCausalLM, inference", half, lambda c, d: _inference(qwen.to(device), tokens, "logits", c, d)),
        Case("BertModel, inference", half, lambda c, d: _inference(bert.to(device), tokens, "last_hidden_state", c, d)),
        Case(
            "BERT training, loss and backward", torch.float32, lambda c, d: _backward(masked.to(device), tokens, c, d)
        ),
        Case("BERT training, AdamW step", torch.float32, lambda c, d: _step(masked.to(device), tokens, c, d)),
    )


def sample_tokens(size: Size) -> torch.Tensor:
    """int64[rows, length]: the first bytes of the sample text."""
    text = resources.files(__package__).joinpath("data/sample.txt").read_bytes()
    return torch.tensor(list(text[: size.rows * size.length])).view(size.rows, size.length)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise HelionError(
            f"the demo needs Hugging Face's transformers ({error}); "
            "install it with: pip install 'helion_inductor[models]'"
        ) from error
    return transformers


def _qwen3(size: Size) -> torch.nn.Module:
    hf = _transformers()
    config = hf.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=size.hidden, intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, num_key_value_heads=size.heads // 2,
        head_dim=size.hidden // size.heads, max_position_embeddings=size.length, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    return hf.Qwen3ForCausalLM(config).eval()


def _bert(size: Size, model: str) -> torch.nn.Module:
    hf = _transformers()
    # Without dropout, whose random numbers no two compilers draw alike, training can be compared number by number.
    config = hf.BertConfig(
        vocab_size=VOCABULARY, hidden_size=size.hidden, intermediate_size=4 * size.hidden,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, max_position_embeddings=size.length,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    return getattr(hf, model)(config).eval()


def _inference(
    model: torch.nn.Module, tokens: torch.Tensor, output: str, compile: Compile, dtype: torch.dtype
) -> Runner:
    compiled = compile(copy.deepcopy(model).to(dtype))

    def run() -> dict[str, torch.Tensor]:
        with torch.no_grad():
            return {output: getattr(compiled(input_ids=tokens), output)}

    return run


def _backward(model: torch.nn.Module, tokens: torch.Tensor, compile: Compile, dtype: torch.dtype) -> Runner:
    own = copy.deepcopy(model).train().to(dtype)
    compiled = compile(own)

    def run() -> dict[str, torch.Tensor]:
        own.zero_grad()
        loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
        grads = {f"gradient of {name}": p.grad for name, p in own.named_parameters() if p.grad is not None}
        return {"loss": loss.detach(), **grads}

    return run


def _step(model: torch.nn.Module, tokens: torch.Tensor, compile: Compile, dtype: torch.dtype) -> Runner:
    """The gradients are eager's, for all alike: AdamW magnifies rounding where a gradient is next to nothing."""
    own = copy.deepcopy(model).train().to(dtype)
    own(input_ids=tokens, labels=tokens).loss.backward()
    on_gpu = tokens.is_cuda
    optimizer = torch.optim.AdamW(
        own.parameters(), lr=torch.tensor(1e-3, device=tokens.device), capturable=on_gpu, foreach=on_gpu
    )
    compiled = compile(optimizer.step)

    def run() -> dict[str, torch.Tensor]:
        compiled()
        return {name: p.detach() for name, p in own.named_parameters()}

    return run
