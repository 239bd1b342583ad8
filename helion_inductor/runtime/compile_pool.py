"""Work in processes of its own, so that a compiler that crashes takes down one piece of work and nothing else."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

T = TypeVar("T")


def apart(work: Callable[[T], Any], items: Sequence[T], workers: int, crashed: Callable[[T], Any]) -> list[Any]:
    """`work(item)` for each item, `workers` at a time, in order; `crashed(item)` where the process ended in it.

    The workers are forked from the calling process, which should have no threads and no device. Raises what `work` raises.
    """
    with _pool(min(workers, len(items)) or 1) as pool:
        futures = [pool.submit(work, item) for item in items]
        answers = [_answer(future) for future in futures]
    # A process that dies breaks its pool, and with it what others were at or had yet to start: those are done once more, alone.
    for place, item in enumerate(items):
        if answers[place] is None:
            with _pool(1) as pool:
                answers[place] = _answer(pool.submit(work, item))
    return [crashed(item) if answer is None else answer[0] for item, answer in zip(items, answers, strict=True)]


def _pool(workers: int) -> concurrent.futures.ProcessPoolExecutor:
    # Forked workers need not import torch and triton again. Threads would take turns: Triton's passes hold the interpreter lock.
    return concurrent.futures.ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))


def _answer(future: concurrent.futures.Future[Any]) -> tuple[Any] | None:
    try:
        return (future.result(),)
    except BrokenProcessPool:
        return None
