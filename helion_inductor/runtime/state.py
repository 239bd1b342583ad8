"""Words of device memory that a kernel finds as its last launch left them: counters of barriers, tickets, readiness flags.

Words are zeroed once, before their first use. A kernel leaves them as its next launch needs them, so no launch has to clear them.
That is right only if launches that share words run one after another. Launches on one stream do, so each stream of a device has
words of its own. A launch that is captured has words that no other launch has, captured or not: graphs may be replayed on any
stream, side by side, while the replays of one graph wait for one another.

Words of captured launches lie outside the graph's memory pool. Inside, they would have to be cleared in every replay, which
costs as much as a small kernel: the pool hands memory that is let go of to later operations of the same graph, and memory that
is kept would count as a leak in graphs made by torch.compile. They are never freed, since nobody says when a graph dies: 128
bytes for each captured launch of up to 32 words.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass

import torch

from ..errors import HelionError
from .device_memory import allocate_apart

_ALIGN = 32  # words: 128 bytes, so that launches that run side by side never poll one cache line
_SLAB = 16384  # words taken from the device at a time for captured launches


@dataclass(frozen=True)
class StateSpec:
    """`words` int32 words of persistent state.

    A kernel's state is its own, unless `namespace` is given: all launches that name it share one state, on each stream.
    """

    words: int
    namespace: str = ""

    def __post_init__(self) -> None:
        if self.words <= 0:
            raise ValueError(f"StateSpec.words must be positive, got {self.words}")


class State:
    """Persistent words, one set for each device and stream that asks; safe to call from several threads.

    `stream` is the handle of the device's current stream; on the CPU (`index` -1), 0. Words are dropped by `drop_state`, and
    then start at zero again. A stream must not be destroyed while its work is pending: another may get its handle.
    """

    def __init__(self, words: int) -> None:
        self.words = words
        self._memory: dict[tuple[int, int], torch.Tensor] = {}
        self._addresses: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        _ALL.add(self)

    def address(self, index: int, stream: int) -> int:
        """Where the words for a launch on this stream are; new ones for every call while the stream is captured."""
        if torch.cuda.is_current_stream_capturing():
            return _graph_words(index, self.words).data_ptr()
        found = self._addresses.get((index, stream))
        return self.tensor(index, stream).data_ptr() if found is None else found

    def tensor(self, index: int, stream: int) -> torch.Tensor:
        """The words as an int32 tensor, with the rules of `address`."""
        if index >= 0 and torch.cuda.is_current_stream_capturing():
            return _graph_words(index, self.words)
        with self._lock:
            found = self._memory.get((index, stream))
            if found is None:
                zeros = torch.zeros(self.words, dtype=torch.int32)
                found = zeros if index < 0 else allocate_apart(index, zeros)
                if index >= 0:
                    found.record_stream(torch.cuda.current_stream(index))
                self._memory[index, stream] = found
                self._addresses[index, stream] = found.data_ptr()
            return found

    def drop(self) -> None:
        """Forget the words of all streams. Launches that are pending keep theirs until they are done."""
        with self._lock:
            self._addresses.clear()
            self._memory.clear()


_ALL: weakref.WeakSet[State] = weakref.WeakSet()
_NAMED: dict[str, State] = {}
_LOCK = threading.Lock()


def state_of(spec: StateSpec) -> State:
    """A state of its own for a spec without a namespace, else the one of that namespace.

    Raises HelionError where the namespace has another number of words.
    """
    if not spec.namespace:
        return State(spec.words)
    with _LOCK:
        state = _NAMED.setdefault(spec.namespace, State(spec.words))
    if state.words != spec.words:
        raise HelionError(f"state {spec.namespace!r} has {state.words} words; a kernel asks for {spec.words}")
    return state


def drop_state() -> None:
    """Drop all words but those of captured launches, whose graphs may still be replayed."""
    for state in list(_ALL):
        state.drop()


_KEPT: list[torch.Tensor] = []
_SLABS: dict[int, tuple[torch.Tensor, int]] = {}  # for each device: a slab, and how many of its words are taken


def _graph_words(index: int, words: int) -> torch.Tensor:
    """Zeroed words for one captured launch on device `index`; nobody else gets them, ever."""
    room = -(-words // _ALIGN) * _ALIGN
    with _LOCK:
        slab, taken = _SLABS.get(index, (None, 0))
        if slab is None or taken + room > slab.numel():
            slab, taken = allocate_apart(index, torch.zeros(max(_SLAB, room), dtype=torch.int32)), 0
            _KEPT.append(slab)
        _SLABS[index] = slab, taken + room
        return slab[taken : taken + words]
