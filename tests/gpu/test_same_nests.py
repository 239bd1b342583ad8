"""What CI checks on a CPU is what a GPU runs: both lower a function to the same loops.

Softmax is not among them: PyTorch decomposes it into other ops for a GPU than for a CPU, before anything is lowered.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import helion_inductor

pytestmark = pytest.mark.gpu


def norm_gelu(x, w):
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w)) + x


def gather_scatter(x, w):
    index = torch.arange(x.shape[0] - 1, -1, -1, device=x.device)
    return x[index], torch.zeros_like(x).index_add(0, index, x), torch.cat([x, x + w], 1)


def statistics(x, w):
    return torch.var_mean(x, 1), x.argmax(1), x.cumsum(1), (x > w).any(0)


@pytest.mark.parametrize("fn", [norm_gelu, gather_scatter, statistics], ids=lambda f: f.__name__)
def test_cpu_and_cuda_lower_alike(fn):
    def loops(device):
        arguments = torch.randn(40, 96, device=device), torch.randn(96, device=device)
        report = helion_inductor.explain(fn, *arguments, options={"regions": "all"})
        return [str(region.compiled.lowered) for region in report.regions]

    assert loops("cuda") == loops("cpu")
