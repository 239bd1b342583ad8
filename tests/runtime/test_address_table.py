"""Tables of addresses: what they hold, when they are built anew, and that nothing overwrites one that is in use."""

from __future__ import annotations

import gc

import pytest
import torch

from helion_inductor.errors import HelionError
from helion_inductor.runtime.address_table import KEPT, AddressTable

FAMILIES = [["a b 7", "c d 8"], ["b d $0"]]
gpu = pytest.mark.gpu


def tensors(device: str = "cpu") -> list[torch.Tensor]:
    return [torch.zeros(8, device=device) for _ in range(5)]


def cells(given: list[torch.Tensor], value: int) -> list[int]:
    a, b, c, d = (t.data_ptr() for t in given[:4])
    return [a, b, 7, c, d, 8, b, d, value]


def test_cells_are_addresses_and_integers(device: str) -> None:
    given = tensors(device)
    table, first, second = AddressTable("a b c d unused", FAMILIES)(given, (2**40,))
    assert table.dtype == torch.int64 and table.device.type == device
    assert table.tolist() == cells(given, 2**40) and (first, second) == (True, True)


def test_a_table_is_built_again_only_where_something_in_it_changed(device: str) -> None:
    table, given = AddressTable("a b c d unused", FAMILIES), tensors(device)
    first = table(given, (3,))
    given[4] = torch.zeros(8, device=device)
    assert table(given, (3,)) is first
    changed = table(given, (4,))
    assert changed[0].tolist() == cells(given, 4) and first[0].tolist() == cells(given, 3)
    assert table(given, (3,)) is first and table(given, (4,)) is changed
    old, given[1] = given[1], torch.zeros(8, device=device)
    moved = table(given, (4,))
    assert moved[0].tolist() == cells(given, 4) and old.data_ptr() not in moved[0].tolist()


def test_alignment_is_that_of_each_family(device: str) -> None:
    given = tensors(device)
    given[2] = torch.zeros(9, device=device)[1:]
    table, first, second = AddressTable("a b c d e", FAMILIES)(given, (0,))
    assert (first, second) == (False, True) and table.tolist() == cells(given, 0)


def test_null_addresses_are_allowed(device: str) -> None:
    given = tensors(device)
    given[0] = torch.empty(0, device=device)
    table, aligned, _ = AddressTable("a b c d e", FAMILIES)(given, (0,))
    assert table[0] == 0 and aligned


def test_tables_that_are_still_held_are_not_overwritten(device: str) -> None:
    """More addresses than tables are kept, as where inputs never come back at the same place."""
    table, given = AddressTable("a b c d e", FAMILIES), tensors(device)
    held = [table(given, (k,)) for k in range(3 * KEPT)]
    assert [h[0].tolist()[-1] for h in held] == list(range(3 * KEPT))
    del held
    gc.collect()
    assert [table(given, (k,))[0].tolist()[-1] for k in range(3 * KEPT)] == list(range(3 * KEPT))


def test_one_tensor_alone() -> None:
    given = tensors()
    assert AddressTable("a b c", [["b"], ["b"]])(given)[0].tolist() == [given[1].data_ptr()] * 2


@gpu
def test_devices_must_agree() -> None:
    with pytest.raises(HelionError, match="different devices: cpu, cuda:0"):
        AddressTable("a b", [["a b"]])([torch.zeros(1, device="cuda"), torch.zeros(1)])


@gpu
def test_each_stream_has_tables_of_its_own() -> None:
    table, given = AddressTable("a b c d e", FAMILIES), tensors("cuda")
    here = table(given, (1,))
    with torch.cuda.stream(torch.cuda.Stream()):
        there = table(given, (1,))
        assert there[0].tolist() == cells(given, 1) and there[0].data_ptr() != here[0].data_ptr()
    assert table(given, (1,)) is here


@gpu
def test_memory_is_used_again() -> None:
    """However often the addresses change, only a few tables take memory."""
    table, given = AddressTable("a b c d e", FAMILIES), tensors("cuda")
    places = {table(given, (k,))[0].data_ptr() for k in range(20 * KEPT)}
    assert len(places) <= KEPT + 2


@gpu
@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_graph_keeps_its_table(mode: str) -> None:
    """Copied in a graph, a table is that of the capture at every replay, however many tables were made since."""
    table, given = AddressTable("a b c d e", FAMILIES), tensors("cuda")
    graph, copy = torch.cuda.CUDAGraph(), torch.zeros(9, dtype=torch.int64, device="cuda")
    with torch.cuda.graph(graph, capture_error_mode=mode):
        inside = table(given, (5,))[0]
        copy.copy_(inside)
    place, want = inside.data_ptr(), cells(given, 5)
    del inside
    for k in range(3 * KEPT):
        assert table(given, (k,))[0].data_ptr() != place
    torch.cuda.empty_cache()
    filler = [torch.full((9,), -1, device="cuda") for _ in range(100)]
    graph.replay()
    assert copy.tolist() == want and len(filler) == 100


@gpu
def test_no_table_is_in_a_pool_that_the_thread_allocates_to() -> None:
    """As in the warm-up of a CUDA-graph tree, whose pool may hold nothing but the tensors of the graph."""
    table, given = AddressTable("a b c d e", FAMILIES), tensors("cuda")
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        made = table(given, (6,))[0]
    places = [(s["address"], s["address"] + s["total_size"]) for s in pool.snapshot()]
    assert not any(start <= made.data_ptr() < end for start, end in places)
    assert made.tolist() == cells(given, 6)
