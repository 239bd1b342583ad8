"""Compiled functions over time: threads, copies, pickles, shared and replaced weights, many calls."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

OPTIONS: dict[str, Any] = {"regions": "all", "on_error": "raise"}


def helion(fn: Any) -> Any:
    return torch.compile(fn, backend="helion", options=OPTIONS)


class Block(torch.nn.Module):
    """Its forward is compiled where the class is defined, as library code does it."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.norm, self.last = torch.nn.LayerNorm(width), torch.nn.Linear(width, width)

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.last(self.norm(x))) + x

    @torch.compile(backend="helion", options=OPTIONS)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.plain(x)


def test_threads_compile_at_once(device: str) -> None:
    functions = [lambda x, k=k: torch.softmax(x * (k + 1), -1) + torch.tanh(x - k) for k in range(4)]
    inputs = [torch.randn(3 + k, 5, device=device) for k in range(4)]
    results: dict[int, Any] = {}

    def work(k: int) -> None:
        try:
            run = helion(functions[k])
            results[k] = [run(inputs[k]) for _ in range(2)]
        except Exception as error:  # an error of a thread would only be printed
            results[k] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        assert not isinstance(results[k], Exception), results[k]
        for result in results[k]:
            torch.testing.assert_close(result, functions[k](inputs[k]))


def test_threads_share_one_compiled_function(device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) * 2 + x.sum(-1, keepdim=True)

    run, x = helion(fn), torch.randn(8, 16, device=device)
    run(x)
    wrong: list[str] = []

    def work(k: int) -> None:
        for number in range(10):
            y = x + k + number
            if not torch.allclose(run(y), fn(y), rtol=1e-5, atol=1e-5):
                wrong.append(f"thread {k}, call {number}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_of_a_model_whose_forward_is_compiled(again: Any, device: str) -> None:
    torch.manual_seed(0)
    model, x = Block().to(device), torch.randn(4, 6, device=device)
    torch.testing.assert_close(model(x), model.plain(x))
    other = again(model)
    with torch.no_grad():
        other.last.weight.add_(1)
    torch.testing.assert_close(other(x), other.plain(x))
    torch.testing.assert_close(model(x), model.plain(x))
    assert not torch.allclose(other(x), model(x))


def test_deepcopy_of_a_compiled_module(device: str) -> None:
    compiled, x = helion(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)).to(device)), torch.randn(4, 6, device=device)
    first = compiled(x)
    other = copy.deepcopy(compiled)
    torch.testing.assert_close(other(x), first)
    with torch.no_grad():
        other._orig_mod[1].bias.add_(1)
    torch.testing.assert_close(other(x), first + 1)
    torch.testing.assert_close(compiled(x), first)


def test_two_models_share_a_module(device: str) -> None:
    torch.manual_seed(0)
    shared, x = torch.nn.LayerNorm(6).to(device), torch.randn(4, 6, device=device)
    one, two = torch.nn.Sequential(shared, torch.nn.GELU()), torch.nn.Sequential(torch.nn.Tanh(), shared)
    runs = [(m, helion(m)) for m in (one, two)]
    for _ in range(2):
        for model, run in runs:
            torch.testing.assert_close(run(x), model(x))
        with torch.no_grad():
            shared.weight.mul_(1.5)
    for _, run in runs:
        run(x).sum().backward()
    ours = shared.weight.grad.clone()
    shared.weight.grad = None
    (one(x).sum() + two(x).sum()).backward()
    torch.testing.assert_close(ours, shared.weight.grad)


def test_weights_are_replaced(device: str) -> None:
    """In place, by a state dict, and by other tensors: nothing of the old ones is left in a kernel."""
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)).to(device), torch.randn(4, 6, device=device)
    run = helion(model)
    run(x)
    model.load_state_dict({k: torch.randn_like(v) for k, v in model.state_dict().items()})
    torch.testing.assert_close(run(x), model(x))
    model[1].weight.data = torch.randn(6, device=device)
    torch.testing.assert_close(run(x), model(x))
    model[1].bias = torch.nn.Parameter(torch.randn(6, device=device))
    torch.testing.assert_close(run(x), model(x))
    model[1].weight.data = torch.randn(13, device=device)[1::2]
    torch.testing.assert_close(run(x), model(x))


def test_many_calls_leave_nothing_behind(device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) + x.mean()

    run, x = helion(fn), torch.randn(4, 8, device=device)

    def tensors() -> int:
        gc.collect()
        return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())

    for _ in range(5):
        run(x)
    before = tensors()
    for _ in range(200):
        run(x.clone())
    assert tensors() <= before + 1


def test_compiling_again_and_again_forgets(device: str) -> None:
    """After a reset, graphs and the callables they hold are garbage, not kept by the backend."""
    counters.clear()
    sizes = []
    for number in range(4):
        run = helion(lambda x, number=number: torch.tanh(x) * number)
        run(torch.randn(5, device=device))
        del run
        torch.compiler.reset()
        gc.collect()
        sizes.append(sum(isinstance(o, torch.fx.GraphModule) for o in gc.get_objects()))
    assert sizes[-1] <= sizes[1] + 1 and counters["helion"]["graphs"] == 4


def _in_a_child(model: Block, x: torch.Tensor, answers: Any) -> None:
    """Runs what its parent compiled, if it can have it, and compiles something of its own."""
    other = helion(lambda x: torch.softmax(x * 3, 0) + 1)
    answers.put([t.tolist() for t in (model(x), other(x))])


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="a forked process may not use the GPU that its parent uses")
def test_children(start: Any) -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(4, 6)
    with torch.no_grad():
        expected = [model(x).tolist(), (torch.softmax(x * 3, 0) + 1).tolist()]
        context = multiprocessing.get_context(start)
        answers = context.Queue()
        child = context.Process(target=_in_a_child, args=(model.requires_grad_(False), x, answers))
        child.start()
        actual = answers.get(timeout=120)
        child.join()
    for got, want in zip(actual, expected):
        torch.testing.assert_close(torch.tensor(got), torch.tensor(want))
