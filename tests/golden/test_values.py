"""The functions whose nests depend most on what masks and bounds checks say about indices, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.golden import functions

F32, BF16 = torch.float32, torch.bfloat16
CASES = {
    "rms_norm_rope": (functions.rms_norm_rope, [((5, 3, 16), BF16), ((16,), F32), ((5, 8), F32), ((5, 8), F32)]),
    "cross_entropy": (functions.cross_entropy, [((9, 21), F32), 21]),
    "cross_entropy_rows": (functions.cross_entropy_rows, [((9, 21), F32), 21]),
    "cat_pad_slice": (functions.cat_pad_slice, [((7, 6), F32), ((7, 3), F32)]),
    "gather_embedding": (functions.gather_embedding, [((11, 4), BF16), 11, ((4,), F32)]),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dynamic: bool, device: str) -> None:
    fn, given = CASES[name]
    generator = torch.Generator().manual_seed(0)
    arguments = [
        torch.randint(0, spec, (9,), generator=generator)
        if isinstance(spec, int)
        else torch.randn(spec[0], generator=generator).to(spec[1])
        for spec in given
    ]
    if name.startswith("cross_entropy"):
        arguments[1][2] = -100  # a row that counts for nothing
    arguments = [t.to(device) for t in arguments]
    compiled = torch.compile(fn, backend="helion", dynamic=dynamic, options={"regions": "all", "on_error": "raise"})
    # Eager rounds the bf16 function once, at its end, as the compiled one does: they differ by the last bit at most.
    rtol, atol = (2.0**-7, 1e-3) if name == "rms_norm_rope" else (1e-5, 1e-5)
    torch.testing.assert_close(compiled(*arguments), fn(*arguments), rtol=rtol, atol=atol)
