"""The few numbers of a device from which times are predicted: rates, latencies, and what launches cost.

Each was measured on an H200 (132 multiprocessors, torch 2.11, triton 3.6); for another device the rates are scaled by its clock,
multiprocessors and memory pins, where torch reports them. Predictions are meant to rank choices, and to be right within a factor
of two.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..device import H200, DeviceInfo

LANES_PER_SM = 128  # lanes of an SM that finish an fp32 instruction in each clock; half as many before 8.6 and in 8.0


@dataclass(frozen=True)
class DeviceModel:
    """Times in microseconds, rates per second.

    - ``bandwidth``: bytes read and written; a copy from device to device reached 4.28e12 on the H200, 0.87 of its pins.
    - ``slots``: instructions of single lanes. 0.6 of what the schedulers could issue: loops bound by arithmetic (layer norm with
      an exact gelu over 8192 x 4096 bf16: 65 us for about 40 instructions an element) reach no more.
    - ``matrix_flops``: of products of halves, counting a multiplication and an addition as two; a large one of bf16 reached 6.9e14 and
      more.
    - ``step_us``: a step of 128 along the summed axis of a tile of 64 x 64, with the loads of the next ones under way: products of
      128 rows by 768 x 2304 take 5.2 with their launch, six steps.
    - ``launch_us``: an empty kernel as a node of a CUDA graph, 0.92.
    - ``start_us`` and ``memory_us``: from a program's first instruction to its first load, and from a load that misses the caches
      to its value. A kernel of 64 x 1024 elements of tanh(x) * w + sin(x) takes 2.2 with its launch, and so do 0.92 + 0.3 + 0.6
      and its arithmetic. ``cached_us`` is a load of what an earlier pass has read.
    - ``reduce_us``: folding a block across the warps of a program. Layer norms of 256 rows, which have two such, take 2.9.
    - ``body_us``: the first run of each further body on a multiprocessor, whose code has to be fetched: kernels of 32 and 64
      different bodies take 0.2 to 0.4 a body longer than their work.
    - ``barrier_us``: a barrier of all programs in a cooperative kernel, 0.9. ``drain_us``: what a kernel loses besides its launch that
      waits for the last program of another: the seven phases of a decoder layer of 2048 x 8192 take 62.9 as launches in a graph, and
      56 in one.
    - ``host_launch_us``: Inductor's launch of a kernel from the host, ``host_tensor_us`` for each tensor that is handed over;
      ``host_region_us``: a call of a region with one kernel, and ``host_kernel_us`` for each further kernel of it.
    """

    info: DeviceInfo
    bandwidth: float
    slots: float
    matrix_flops: float = 6.0e14
    launch_us: float = 0.92
    start_us: float = 0.3
    memory_us: float = 0.6
    cached_us: float = 0.3
    reduce_us: float = 0.3
    body_us: float = 0.25
    barrier_us: float = 0.9
    drain_us: float = 1.1
    step_us: float = 0.5
    host_launch_us: float = 7.0
    host_tensor_us: float = 0.1
    host_region_us: float = 5.0
    host_kernel_us: float = 4.0

    def issue_us(self, instructions: float, num_warps: int) -> float:
        """Time of one program alone on a multiprocessor for ``instructions`` of single lanes: its four schedulers take one warp
        each."""
        clock = self.info.clock_hz or H200.clock_hz
        return 1e6 * instructions / (self.info.warp_size * min(num_warps, 4) * clock)

    def resident(self, registers: int, num_warps: int) -> int:
        """Programs of ``num_warps`` with so many registers a thread that one multiprocessor holds, at least 1."""
        threads = self.info.warp_size * num_warps
        by_registers = self.info.registers_per_sm // (max(registers, 1) * threads)
        return max(1, min(by_registers, self.info.max_threads_per_sm // threads, self.info.max_blocks_per_sm))


def device_model(info: DeviceInfo) -> DeviceModel:
    """The model of a device; of an H200 for the CPU, for which predictions are made offline."""
    if info.kind == "cpu":
        return device_model(H200)
    share = info.memory_bytes_per_s / H200.memory_bytes_per_s if info.memory_bytes_per_s else 1.0
    lanes = LANES_PER_SM if info.capability >= (8, 6) else LANES_PER_SM // 2
    clock = info.sm_count * (info.clock_hz or H200.clock_hz)
    return DeviceModel(info, 4.28e12 * share, 0.6 * lanes * clock, 6.0e14 * clock / (H200.sm_count * H200.clock_hz))


H200_MODEL = device_model(H200)
