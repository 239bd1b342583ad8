"""Counts past 32 bits: virtual pids, sizes whose product an extent is, and grids that no device takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from helion_inductor.codegen.triton_host import region_source
from helion_inductor.errors import LaunchRejected
from helion_inductor.ir.parser import parse_program, parse_schedule
from helion_inductor.ir.tile_ir import TileProgram
from helion_inductor.runtime.precompile import KernelRequest, Resources, compile_offline_many
from helion_inductor.scheduling.persistent import Settings, build_schedules
from helion_inductor.scheduling.tile_sizes import TileTarget, reach
from tests.codegen.generated import DEVICE, _imported

# Tensors of these sizes are never made: kernels are compiled, or run for their first program only.
STATIC = """program @p(in x: f32[1], out y: f32[{n}], out z: f32[8])
  nest @a parallel(p0: {n})
    %0: f32 = load x[0]
    store y[p0] %0
  nest @b parallel(p0: 8)
    %0: f32 = load x[0]
    store z[p0] %0
"""
DYNAMIC = """program @p(in x: f32[s0, s1], out y: f32[s0, s1], out z: f32[s0]) sizes(s0>=2~64, s1>=2~64)
  nest @a parallel(p0: s0 * s1)
    %0: f32 = load x[p0]
    store y[p0] %0
  nest @b parallel(p0: s0)
    %0: f32 = load x[p0]
    store z[p0] %0
"""
KERNEL = """kernel @k  pid_type={pid_type}  num_warps=1  num_stages=1
  phase 0
    task nest @a pid_map row_major(x) tile(x[p0]={block} parallel){weight}{width}
    task nest @b pid_map row_major(x) tile(x[p0]={block} parallel){other}
"""
TYPES = [("persistent_interleaved", ""), ("persistent_blocked", ""), ("persistent_blocked", "  weight=3")]


def module_text(program: TileProgram, kernel: str) -> str:
    reaches = {n.name: reach(n, program) for n in program.nests}
    return region_source(program, [parse_schedule(kernel)], ("x",), ("y", "z"), reaches).module


def loops(resources: object) -> set[str]:
    """Types of the loop variables of a compiled kernel."""
    assert isinstance(resources, Resources), resources
    assert resources.spill_stores == resources.stack_bytes == 0
    return set(re.findall(r"scf\.for .* : (i\d+)", resources.ttgir))


@pytest.mark.parametrize(("n", "width", "kind"), [(2**33, "  wide", "i64"), (2**31, "  wide", "i64"), (2**20, "  narrow", "i32")])
def test_loops_over_known_numbers_of_tiles(n: int, width: str, kind: str, tmp_path: Path) -> None:
    requests = []
    for number, (pid_type, weight) in enumerate(TYPES):
        program = parse_program(STATIC.format(n=n))
        kernel = KERNEL.format(pid_type=pid_type, block=1, weight=weight, width=width, other="  narrow")
        path = tmp_path / f"{number}.py"
        path.write_text(module_text(program, kernel))
        requests.append(KernelRequest(str(path), "_helion_k", dict.fromkeys(("x_ptr", "y_ptr", "z_ptr"), "*fp32"), {}, num_warps=1))
    for (pid_type, weight), result in zip(TYPES, compile_offline_many(requests)):
        assert loops(result) == {kind}, (pid_type, weight)


def test_loops_over_numbers_of_tiles_that_sizes_decide(tmp_path: Path) -> None:
    requests = []
    for number, (pid_type, weight) in enumerate(TYPES):
        kernel = KERNEL.format(pid_type=pid_type, block=1, weight=weight, width="", other="")
        path = tmp_path / f"{number}.py"
        path.write_text(module_text(parse_program(DYNAMIC), kernel))
        signature = dict.fromkeys(("x_ptr", "y_ptr", "z_ptr"), "*fp32") | dict.fromkeys(("s0", "s1"), "i32")
        requests += [KernelRequest(str(path), "_helion_k", signature, {"WIDE": wide}, num_warps=1) for wide in (False, True)]
    results = compile_offline_many(requests)
    assert [loops(r) for r in results] == [{"i32"}, {"i64"}] * len(TYPES)


@pytest.mark.parametrize(("s0", "s1", "wide"), [(2**14, 2**15, False), (2**15, 2**15, True), (50000, 50000, True)])
def test_the_width_is_decided_by_tiles_as_well(s0: int, s1: int, wide: bool) -> None:
    """With 2^30 tiles and a few, offsets fit 32 bits; the last step of a loop might not."""
    kernel = KERNEL.format(pid_type="persistent_interleaved", block=1, weight="", width="", other="")
    module = _imported(module_text(parse_program(DYNAMIC), kernel))
    seen: list[bool] = []
    module._launch_k = lambda grid, *args, WIDE: seen.append(WIDE)  # type: ignore[attr-defined]
    module.get_num_sm = lambda device: 4  # type: ignore[attr-defined]
    module.run([torch.empty(0)], [torch.empty(0)] * 2, [s0, s1])
    assert seen == [wide]


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("pid_type", ["flat", "persistent_interleaved", "persistent_blocked"])
def test_sizes_are_multiplied_in_64_bits(pid_type: str, tasks: int) -> None:
    """50000 x 50000 elements: more than 32 bits count, though each size is small. Only the first program runs."""
    tiles = -(-50000 * 50000 // 1024) + (tasks == 2) * -(-50000 // 1024)
    kernel = KERNEL.format(pid_type=pid_type, block=1024, weight="", width="", other="")
    kernel = "\n".join(kernel.splitlines()[: 2 + tasks])
    # Of a grid of one program for each tile one is launched.
    module = _imported(module_text(parse_program(DYNAMIC), kernel).replace("tl.num_programs(0)", str(tiles)))
    module.get_num_sm = lambda device: tiles  # type: ignore[attr-defined]
    launch = module._launch_k  # type: ignore[attr-defined]

    def first_only(grid: tuple[int, ...], *args: object, **constexprs: object) -> None:
        assert grid == (tiles,) and constexprs == {"WIDE": True}
        launch((1,), *args, **constexprs)

    module._launch_k = first_only  # type: ignore[attr-defined]
    x = torch.arange(1024.0, device=DEVICE)
    y, z = torch.full_like(x, -1), torch.full_like(x, -1)
    module.run([x], [y, z], [50000, 50000])
    assert torch.equal(y, x) and bool((z == -1).all())


def test_a_grid_that_no_device_takes_is_refused() -> None:
    module = _imported(module_text(parse_program(DYNAMIC), KERNEL.format(pid_type="flat", block=1, weight="", width="", other="")))
    tensors = [torch.empty(1, device=DEVICE) for _ in range(3)]
    with pytest.raises(LaunchRejected, match=r"2147580963 programs along grid dimension x, the limit is 2147483647") as caught:
        module.run(tensors[:1], tensors[1:], [46341, 46342])
    assert "pid_type='persistent_interleaved'" in str(caught.value)


@pytest.mark.parametrize("wanted", ["auto", "flat", "persistent_blocked"])
def test_too_many_tiles_for_a_grid_make_a_kernel_persistent(wanted: str) -> None:
    for n, flat in ((2**31 - 2**16, True), (2**31, False)):
        program = parse_program(STATIC.format(n=n))
        (kernel, *_), _ = build_schedules(program, TileTarget(132), Settings(wanted, block_sizes={"x": 1}))
        kind = wanted if wanted == "persistent_blocked" else "flat" if flat else "persistent_interleaved"
        assert kernel.pid_type == kind
