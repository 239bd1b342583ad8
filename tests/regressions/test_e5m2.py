"""Conversions to float8_e5m2 came out wrong on a GPU: they stay with Inductor, with a reason."""

from __future__ import annotations

import torch

import helion_inductor


def test_e5m2_is_left_with_a_reason():
    report = helion_inductor.explain(lambda x: x.to(torch.float8_e5m2).float() + 1, torch.randn(50, 20), options={"regions": "all"})
    assert any(r.code == "dtype" and "e5m2" in r.detail for r in report.refusals)
    assert not any("e5m2" in kernel.source for kernel in report.kernels)
