"""Who gives Triton its workspaces: torch, where nobody else was named."""

from __future__ import annotations

import contextvars
from collections.abc import Callable

import pytest
import torch
import triton
from triton.runtime import _allocation

from helion_inductor.errors import HelionError
from helion_inductor.runtime import triton_allocator
from helion_inductor.runtime.triton_allocator import set_triton_allocator


def _in_a_context(work: Callable[[], object]) -> object:
    return contextvars.Context().run(work)


def test_torch_is_named_where_nobody_was() -> None:
    def work() -> object:
        set_triton_allocator()
        return _allocation._allocator.get()

    assert _in_a_context(work) is triton_allocator._allocate
    assert _in_a_context(_allocation._allocator.get) is not triton_allocator._allocate  # other contexts are left alone


def test_an_allocator_of_the_user_stays() -> None:
    def mine(size: int, alignment: int, stream: int | None) -> torch.Tensor:
        return torch.empty(size)

    def work() -> object:
        triton.set_allocator(mine)
        set_triton_allocator()
        return _allocation._allocator.get()

    assert _in_a_context(work) is mine


def test_the_older_form_is_a_plain_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def remember(allocator: object) -> None:
        monkeypatch.setattr(_allocation, "_allocator", allocator)

    monkeypatch.setattr(triton, "set_allocator", remember)
    monkeypatch.setattr(_allocation, "_allocator", _allocation.NullAllocator())
    set_triton_allocator()
    assert _allocation._allocator is triton_allocator._allocate
    remember(mine := lambda size, alignment, stream: None)
    set_triton_allocator()
    assert _allocation._allocator is mine


def test_memory_is_bytes_of_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, object, str]] = []
    monkeypatch.setattr(torch, "empty", lambda size, *, dtype, device: asked.append((size, dtype, device)))
    triton_allocator._allocate(1000, 128, 7)
    assert asked == [(1000, torch.uint8, "cuda")]
    with pytest.raises(HelionError, match="aligned to 1024 bytes; torch's memory is aligned to 512"):
        triton_allocator._allocate(8, 1024, None)
