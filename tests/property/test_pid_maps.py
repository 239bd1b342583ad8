"""Every numbering is a bijection: tiles of a task, virtual pids of programs, programs of chiplets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from helion_inductor.ir.pid_map import MAX_WEIGHT, PID_TYPES, PidMap, evaluate, program_pids, remapped, weighted_first

counts = st.integers(0, 12)
totals = st.lists(st.integers(0, 40), min_size=1, max_size=5)
any_weights = st.integers(1, MAX_WEIGHT) | st.integers(1, 4)
pid_types = st.sampled_from(PID_TYPES[1:])


@st.composite
def maps(draw: st.DrawFn) -> tuple[PidMap, dict[str, int]]:
    """A pid map and the number of tiles along each of one to four dimensions."""
    names = ["a", "b", "c", "d"][: draw(st.integers(1, 4))]
    order = draw(st.permutations(names))
    group = draw(st.integers(1, 15)) if len(names) > 1 else 1
    return PidMap(() if order == names else tuple(order), group), {n: draw(counts) for n in names}


def volume(tiles: Mapping[str, int]) -> int:
    total = 1
    for n in tiles.values():
        total *= n
    return total


@given(maps())
def test_each_tile_has_one_virtual_pid(drawn: tuple[PidMap, dict[str, int]]) -> None:
    pid_map, tiles = drawn
    assume(volume(tiles) <= 300)
    found = [pid_map.tile(pid, tiles) for pid in range(volume(tiles))]
    assert len({tuple(t.values()) for t in found}) == len(found)
    assert all(0 <= t[name] < n for t in found for name, n in tiles.items())


@given(maps(), st.integers(2**31, 2**40), st.data())
def test_far_tiles_are_neighbours_of_their_group(drawn: tuple[PidMap, dict[str, int]], far: int, data: st.DataObject) -> None:
    """With more than 2^31 tiles along the slowest dimension, a whole group still has each of its tiles once."""
    pid_map, tiles = drawn
    slowest = pid_map.dims(tuple(tiles))[0]
    rest = {n: max(1, k) for n, k in tiles.items()}
    rest[slowest] = far
    period = pid_map.group * volume(rest | {slowest: 1}) if len(rest) == 2 else volume(rest | {slowest: 1})
    assume(period <= 200)
    number = data.draw(st.integers(0, volume(rest) // period - 1))
    found = {tuple(pid_map.tile(pid, rest).values()) for pid in range(number * period, (number + 1) * period)}
    assert len(found) == period and all(0 <= at < n for t in found for at, n in zip(t, rest.values()))


def test_orders_and_groups_by_hand() -> None:
    def walk(pid_map: PidMap, **tiles: int) -> list[str]:
        return ["".join(str(t) for t in pid_map.tile(pid, tiles).values()) for pid in range(volume(tiles))]

    assert walk(PidMap(), y=2, x=3) == ["00", "01", "02", "10", "11", "12"]
    assert walk(PidMap(("x", "y")), y=2, x=3) == ["00", "10", "01", "11", "02", "12"]
    # Two rows together, column by column; the last group has the one row that is left.
    assert walk(PidMap((), 2), y=3, x=3) == ["00", "10", "01", "11", "02", "12", "20", "21", "22"]
    assert walk(PidMap(("x", "y"), 2), y=2, x=3) == ["00", "01", "10", "11", "02", "12"]
    assert walk(PidMap((), 99), y=2, x=2) == ["00", "10", "01", "11"]
    # Dimensions before the last two are slower than any group.
    assert walk(PidMap((), 2), b=2, y=2, x=2) == ["000", "010", "001", "011", "100", "110", "101", "111"]


@given(totals, st.integers(1, 60), st.lists(any_weights, min_size=5, max_size=5), pid_types)
def test_programs_share_out_all_virtual_pids(tiles: list[int], programs: int, weights: list[int], pid_type: str) -> None:
    shares = [program_pids(pid_type, p, programs, tiles, weights[: len(tiles)]) for p in range(programs)]
    assert sorted(pid for share in shares for pid in share) == list(range(sum(tiles)))
    if pid_type == "persistent_blocked":
        assert [pid for share in shares for pid in share] == list(range(sum(tiles))), "shares are contiguous, in the order of programs"


@given(totals, st.integers(1, 60), st.lists(any_weights, min_size=5, max_size=5))
def test_weighted_shares_are_balanced(tiles: list[int], programs: int, weights: list[int]) -> None:
    """No share weighs more than an equal one and one tile."""
    weights = weights[: len(tiles)]
    assume(len(set(weights)) > 1)
    each = [w for w, n in zip(weights, tiles) for _ in range(n)]
    for p in range(programs):
        mine = [each[pid] for pid in program_pids("persistent_blocked", p, programs, tiles, weights)]
        assert sum(mine) <= -(-sum(each) // programs) + max(weights)


@given(st.lists(st.tuples(st.integers(0, 2**48), any_weights), min_size=2, max_size=4), st.integers(1, 2**20), st.data())
def test_large_shares_meet_and_stay_within_64_bits(runs: list[tuple[int, int]], programs: int, data: st.DataObject) -> None:
    weights = [w for _, w in runs]
    given_names = {f"tiles{k}": n for k, (n, _) in enumerate(runs)} | {"programs": programs}

    def first(program: int) -> int:
        known = evaluate(weighted_first(weights), given_names | {"program": program})
        assert max(known.values()) < 2**63
        return known["first"]

    program = data.draw(st.integers(0, programs - 1))
    assert first(0) == 0 and first(programs) == sum(n for n, _ in runs)
    assert first(program) <= first(program + 1)


@given(st.integers(1, 200), st.integers(1, 12))
def test_programs_of_a_chiplet_are_neighbours(programs: int, xcds: int) -> None:
    numbers = [remapped(p, programs, xcds) for p in range(programs)]
    assert sorted(numbers) == list(range(programs))
    for xcd in range(min(xcds, programs)):
        mine = numbers[xcd::xcds]
        assert mine == list(range(mine[0], mine[0] + len(mine)))
    if xcds == 1:
        assert numbers == list(range(programs))


@pytest.mark.parametrize(("programs", "xcds", "numbers"), [
    (8, 2, [0, 4, 1, 5, 2, 6, 3, 7]),
    (7, 3, [0, 3, 5, 1, 4, 6, 2]),
    (2, 8, [0, 1]),
])  # fmt: skip
def test_remap_by_hand(programs: int, xcds: int, numbers: list[int]) -> None:
    assert [remapped(p, programs, xcds) for p in range(programs)] == numbers
