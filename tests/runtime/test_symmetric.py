"""Sums over GPUs without GPUs: the phases of all ranks in turn, their protocol under any interleaving, and their code."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from triton import knobs

from helion_inductor.errors import HelionError
from helion_inductor.runtime import symmetric
from helion_inductor.runtime.precompile import CompileFailure, KernelRequest, Resources, compile_offline_many
from helion_inductor.runtime.symmetric import Group, all_reduce, all_reduce_norm, run_all_reduce, run_all_reduce_norm

interpreted = pytest.mark.skipif(not knobs.runtime.interpret, reason="runs in Triton's interpreter")


class _Node:
    """Ranks of one process: their buffers are ordinary tensors."""

    def __init__(self, world: int, half: int = 1 << 18) -> None:
        self.memory = [torch.full((2 * half,), 255, dtype=torch.uint8) for _ in range(world)]
        buffers = torch.tensor([m.data_ptr() for m in self.memory])
        flags = torch.zeros(world, dtype=torch.int64)  # phases are run apart, so nobody meets
        self.groups = [Group(r, world, half, buffers, flags, torch.zeros(2, dtype=torch.int32)) for r in range(world)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetric, "PROGRAMS", 2)  # the interpreter takes its time for each
    monkeypatch.setattr(symmetric, "ONE_SHOT_BYTES", 4096)


@interpreted
@pytest.mark.parametrize("dtype", symmetric.DTYPES)
@pytest.mark.parametrize(("n", "shots"), [(5, 1), (1000, 1), (5003, 2), (4096, 2)])
def test_all_ranks_get_the_sum_and_the_same_bits(dtype: torch.dtype, n: int, shots: int, small: None) -> None:
    node = _Node(3)
    assert (n * dtype.itemsize > 4096) == (shots == 2)
    for call in range(3):  # halves of buffers take turns
        xs = [torch.randn(n).to(dtype) for _ in node.groups]
        outs = [torch.full_like(x, float("nan")) for x in xs]
        for phase in range(shots + 1):
            for x, out, group in zip(xs, outs, node.groups):
                run_all_reduce(x, out, group, FIRST=phase, LAST=phase + 1)
        expected = sum(x.float() for x in xs)
        torch.testing.assert_close(outs[0].float(), expected, rtol=1e-2 if dtype != torch.float32 else 1e-6, atol=1e-5)
        assert torch.equal(outs[0], expected.to(dtype)) and all(torch.equal(outs[0], out) for out in outs)
        assert all(group.epochs.tolist() == [2 * call + 2] * 2 for group in node.groups)


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (5, 96), (3, 200)])
def test_sums_are_added_and_normalised(dtype: torch.dtype, rows: int, size: int, small: None) -> None:
    node, weight = _Node(2), torch.randn(size).to(dtype)
    xs, start = [torch.randn(rows, size).to(dtype) for _ in node.groups], torch.randn(rows, size).to(dtype)
    residuals, outs = [start.clone() for _ in xs], [torch.empty_like(start) for _ in xs]
    for phase in range(2):
        for x, residual, out, group in zip(xs, residuals, outs, node.groups):
            run_all_reduce_norm(x, residual, weight, out, 1e-5, group, FIRST=phase, LAST=phase + 1)
    kept = sum(x.float() for x in xs).to(dtype) + start
    wide = kept.float()
    expected = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5) * weight.float()
    for residual, out in zip(residuals, outs):
        assert torch.equal(residual, kept)
        torch.testing.assert_close(out.float(), expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


class _Rank:
    """The protocol of one program, a step at a time: what `one_shot` and `two_shot` do between two meetings is one step."""

    def __init__(self, rank: int, node: list[_Rank], calls: list[int]) -> None:
        self.rank, self.node, self.calls = rank, node, calls
        self.flags = [0] * len(calls)
        self.data: dict[int, int] = {}
        self.sums: dict[tuple[int, int], int] = {}
        self.results: list[int] = []
        self.steps = self.run()

    def value(self, call: int) -> int:
        return 1000 * call + 10**self.rank

    def met(self, number: int) -> Iterator[bool]:
        for peer in self.node:
            peer.flags[self.rank] = number
            yield True
        while any(flag < number for flag in self.flags):
            yield False

    def run(self) -> Iterator[bool]:
        """Yields whether it got on."""
        epoch = 0
        for call, shots in enumerate(self.calls):
            half = (epoch >> 1) & 1
            self.data[half] = self.value(call)
            yield True
            yield from self.met(epoch + 1)
            total = 0
            for peer in self.node:
                total += peer.data[half]
                yield True
            if shots == 2:
                for peer in self.node:
                    peer.sums[half, self.rank] = total
                    yield True
                yield from self.met(epoch + 2)
                for peer in self.node:
                    assert self.sums[half, peer.rank] == total
                    yield True
            self.results.append(total)
            epoch += 2


@given(st.integers(2, 4), st.lists(st.sampled_from([1, 2]), min_size=1, max_size=6), st.integers(0, 2**32))
def test_the_protocol_is_right_under_any_interleaving(world: int, calls: list[int], seed: int) -> None:
    order, node = random.Random(seed), []
    calls = calls + [1] * max(0, world - len(calls))
    for rank in range(world):
        node.append(_Rank(rank, node, calls))
    for rank in node:
        rank.flags = [0] * world
    running, idle = list(node), 0
    while running:
        # One rank may be much slower than the others.
        rank = order.choices(running, [0.02 if r is node[seed % world] else 1.0 for r in running])[0]
        try:
            idle = 0 if next(rank.steps) else idle + 1
        except StopIteration:
            running.remove(rank)
        assert idle < 20_000, "all wait for one another"
    for call in range(len(calls)):
        expected = sum(rank.value(call) for rank in node)
        assert [rank.results[call] for rank in node] == [expected] * world


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Resources]:
    module = tmp_path_factory.mktemp("peers") / "kernels.py"
    module.write_text("from helion_inductor.runtime.device_peers import *\n")
    path, pointers = str(module), {"x": "*bf16", "out": "*bf16"}
    tables = {"buffers": "*i64", "flags": "*i64", "epochs": "*i32"}
    more = {
        "one_shot": {"n": "i32"}, "two_shot": {"n": "i32", "share": "i32"},
        "one_shot_norm": {"residual": "*bf16", "weight": "*bf16", "rows": "i32", "size": "i32", "eps": "fp32"},
    }  # fmt: skip
    requests = {}
    for name, types in more.items():
        signature = {**pointers, **types, **tables}
        aligned = tuple(n for n in signature if n not in ("rows", "eps"))
        for target, world in (("sm_90", 2), ("sm_90", 8), ("gfx942", 8)):
            constexprs: dict[str, object] = {"RANK": 1, "WORLD": world, "HALF": 1 << 20, "BLOCK": 2048}
            requests[f"{name} {target} {world}"] = KernelRequest(path, name, signature, constexprs, target, 8, divisible_by_16=aligned)
    results = compile_offline_many(list(requests.values()), workers=2)
    assert not [r.message for r in results if isinstance(r, CompileFailure)]
    return dict(zip(requests, results))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["one_shot", "two_shot", "one_shot_norm"])
def test_kernels_compile_and_meet_by_release_and_acquire(compiled: dict[str, Resources], name: str) -> None:
    for world in (2, 8):
        found = compiled[f"{name} sm_90 {world}"]
        assert not found.spill_stores and found.registers <= 128
        meetings = 2 if name == "two_shot" else 1
        for words in (r"st\.release\.sys\.global", r"ld\.acquire\.sys\.global"):
            assert len(re.findall(words, found.ptx)) == meetings
        # Warps poll as often as each needs: a barrier of the program inside the loop would never be complete.
        for loop in re.findall(r"ld\.acquire\.sys\.global.*?bra", found.ptx, re.DOTALL):
            assert "bar.sync" not in loop
        assert "ld.global.v4.b32" in found.ptx  # what comes from other ranks is read 16 bytes at a time
    assert compiled[f"{name} gfx942 8"].spill_stores == 0


def test_what_cannot_be_summed_is_refused() -> None:
    with pytest.raises(HelionError, match="are of float32, float16 and bfloat16, not torch.int32"):
        all_reduce(torch.zeros(4, dtype=torch.int32), "world")
    with pytest.raises(HelionError, match="contiguous tensor that starts at a multiple of 16 bytes"):
        all_reduce(torch.zeros(9)[1:], "world")
    with pytest.raises(HelionError, match="contiguous tensor"):
        all_reduce(torch.zeros(4, 4).t(), "world")
    with pytest.raises(HelionError, match=f"are too many for symmetric memory, which takes {symmetric.CAPACITY}: use NCCL"):
        all_reduce(torch.zeros(symmetric.CAPACITY), "world")
    with pytest.raises(HelionError, match=r"residual must be as x, \(2, 4\) torch.float32"):
        all_reduce_norm(torch.zeros(2, 4), torch.zeros(2, 4).half(), torch.zeros(4), "world")
    with pytest.raises(HelionError, match="rows of 20000 elements are too long"):
        all_reduce_norm(torch.zeros(2, 20000), torch.zeros(2, 20000), torch.zeros(20000), "world")
    with pytest.raises(HelionError, match="call init_process_group first"):
        all_reduce(torch.zeros(4), "no group")
    assert all_reduce(torch.zeros(0), "no group").numel() == 0


def test_memory_is_set_up_once_and_not_under_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def rendezvous(memory: torch.Tensor, name: str) -> SimpleNamespace:
        done.append(name)
        return SimpleNamespace(rank=1, world_size=2, buffer_ptrs=[1024, 4096], barrier=lambda: done.append("barrier"))

    fake = SimpleNamespace(empty=lambda size, dtype, device: torch.ones(size, dtype=dtype), rendezvous=rendezvous)
    monkeypatch.setattr(symmetric, "symmetric_memory", lambda: fake)
    monkeypatch.setattr(symmetric, "_GROUPS", {})
    monkeypatch.setattr(symmetric, "_resolved", lambda name: None)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 2)
    monkeypatch.setattr(symmetric, "allocate_apart", lambda index, contents: contents.clone())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    device, capturing = torch.device("cuda", 0), [True]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    with pytest.raises(HelionError, match="symmetric memory cannot be set up while a graph is captured: run once before capture"):
        symmetric._group("inner", device)
    capturing[0] = False
    found = symmetric._group("inner", device)
    assert symmetric._group("inner", device) is found and done == ["inner", "barrier"]
    assert (found.flags - found.buffers).tolist() == [2 * found.half] * 2 and found.half % 32 == 0
    assert not found.kept[0].any() and found.epochs.tolist() == [0] * symmetric.PROGRAMS
