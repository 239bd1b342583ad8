"""The on-disk store of generated modules: whole entries or none, and never an import of anything else."""

from __future__ import annotations

import concurrent.futures
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helion_inductor.errors import KernelNotFound
from helion_inductor.runtime.kernel_store import KernelStore

COUNTING = """
import sys
sys.executions = getattr(sys, "executions", 0) + 1
VALUE = 41 + 1
"""

KERNEL = """
import torch, triton
import triton.language as tl
from helion_inductor.runtime.launcher import Launcher


@triton.jit
def _double_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


_launch_0 = Launcher(_double_kernel, num_warps=4)


def run(inputs, outputs, sizes):
    (x,), (out,) = inputs, outputs
    _launch_0((triton.cdiv(x.numel(), 64),), x, out, x.numel(), BLOCK=64)
"""


@pytest.fixture
def store(tmp_path: Path) -> KernelStore:
    return KernelStore(tmp_path / "deep" / "store")


def test_put_and_get(store: KernelStore) -> None:
    assert store.get("k1") is None
    folder = store.put("k1", {"module.py": "VALUE = 1\n", "schedule.txt": "kernel @k0  – é\n"})
    assert folder == store.root / "k1" == store.get("k1")
    assert (folder / "module.py").read_text() == "VALUE = 1\n"
    assert (folder / "schedule.txt").read_text(encoding="utf-8") == "kernel @k0  – é\n"
    assert store.get("k2") is None


def test_the_first_put_of_a_key_wins_and_nothing_is_left_behind(store: KernelStore) -> None:
    store.put("k", {"module.py": "VALUE = 1\n"})
    store.put("k", {"module.py": "VALUE = 2\n"})
    assert store.load("k").VALUE == 1
    assert [path.name for path in store.root.iterdir()] == ["k"]


def test_load_runs_a_module_once_per_process(store: KernelStore) -> None:
    store.put("k", {"module.py": COUNTING})
    sys.executions = 0  # type: ignore[attr-defined]
    module = store.load("k")
    assert module.VALUE == 42
    assert store.load("k") is module is KernelStore(store.root).load("k")
    assert sys.executions == 1  # type: ignore[attr-defined]
    assert sys.modules[module.__name__] is module
    assert module.__file__ == str(store.root / "k" / "module.py")


def test_the_same_key_in_another_root_is_another_module(store: KernelStore, tmp_path: Path) -> None:
    other = KernelStore(tmp_path / "other")
    store.put("k.1", {"module.py": "VALUE = 1\n"})
    other.put("k.1", {"module.py": "VALUE = 2\n"})
    store.put("k_1", {"module.py": "VALUE = 3\n"})
    assert [store.load("k.1").VALUE, other.load("k.1").VALUE, store.load("k_1").VALUE] == [1, 2, 3]


def test_a_loaded_kernel_runs_and_has_its_source(store: KernelStore, device: str) -> None:
    store.put("double", {"module.py": KERNEL})
    module = store.load("double")
    assert "tl.load(x + offsets" in inspect.getsource(module._double_kernel.fn)
    x = torch.randn(100, device=device)
    out = torch.empty_like(x)
    module.run([x], [out], [])
    torch.testing.assert_close(out, x * 2)


def test_a_missing_entry_names_key_and_folder(store: KernelStore) -> None:
    with pytest.raises(KernelNotFound) as caught:
        store.load("abc")
    assert str(caught.value) == f"kernel 'abc' is missing in the kernel store {store.root}"


@pytest.mark.parametrize("damage", ["cut", "changed", "no file", "no manifest", "empty"])
def test_a_torn_entry_is_never_imported_and_can_be_put_again(store: KernelStore, damage: str) -> None:
    files = {"module.py": COUNTING, "notes.txt": "x\n"}
    folder = store.put(f"torn_{damage.replace(' ', '_')}", files)
    key, module, manifest = folder.name, folder / "module.py", folder / "MANIFEST"
    if damage == "cut":
        module.write_text(module.read_text()[:20])
    elif damage == "changed":
        module.write_text(module.read_text().replace("41", "40"))
    elif damage == "no file":
        (folder / "notes.txt").unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text("")
    assert store.get(key) is None
    sys.executions = 0  # type: ignore[attr-defined]
    with pytest.raises(KernelNotFound, match=f"kernel '{key}' is damaged in the kernel store"):
        store.load(key)
    assert sys.executions == 0  # type: ignore[attr-defined]
    store.put(key, files)
    assert store.load(key).VALUE == 42
    assert [path.name for path in store.root.iterdir()] == [key]


def test_an_entry_without_a_module_cannot_be_loaded(store: KernelStore) -> None:
    store.put("notes", {"notes.txt": "x\n"})
    with pytest.raises(KernelNotFound, match="notes"):
        store.load("notes")


def test_a_module_that_raises_is_not_kept(store: KernelStore) -> None:
    store.put("bad", {"module.py": "raise ZeroDivisionError('in the module')\n"})
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="in the module"):
            store.load("bad")


@pytest.mark.parametrize("name", ["", ".", "..", "../k", "a/b", "/k", ".k", "k\n", "ä"])
def test_keys_and_names_are_single_path_components(store: KernelStore, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name an entry or a file of the kernel store"):
        store.put(name, {"module.py": ""})
    with pytest.raises(ValueError, match="cannot name an entry or a file of the kernel store"):
        store.put("k", {name: ""})
    assert store.get(name) is None
    with pytest.raises(KernelNotFound):
        store.load(name)


def test_the_manifest_is_not_a_file_of_the_caller(store: KernelStore) -> None:
    with pytest.raises(ValueError, match="MANIFEST"):
        store.put("k", {"MANIFEST": ""})


def test_threads_may_put_and_load_the_same_key(store: KernelStore) -> None:
    def work(number: int) -> object:
        store.put("shared", {"module.py": COUNTING, "big.txt": "x" * 100_000})
        return store.load("shared")

    sys.executions = 0  # type: ignore[attr-defined]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(work, range(32)))
    assert len(set(map(id, modules))) == 1
    assert sys.executions == 1  # type: ignore[attr-defined]
    assert [path.name for path in store.root.iterdir()] == ["shared"]


def test_processes_may_put_the_same_keys(store: KernelStore) -> None:
    code = (
        "import sys; from pathlib import Path; from helion_inductor.runtime.kernel_store import KernelStore\n"
        "store = KernelStore(Path(sys.argv[1]))\n"
        "for i in range(200):\n"
        "    store.put(f'k{i}', {'module.py': f'VALUE = {i}\\n', 'big.txt': 'x' * 10_000})\n"
        "    assert store.get(f'k{i}') is not None\n"
    )
    root = Path(__file__).resolve().parents[2]
    processes = [subprocess.Popen([sys.executable, "-c", code, str(store.root)], cwd=root) for _ in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert sorted(path.name for path in store.root.iterdir()) == sorted(f"k{i}" for i in range(200))
    assert store.load("k7").VALUE == 7
