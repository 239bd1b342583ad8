"""On-disk store of generated modules: one folder per key, written whole or not at all, checked before each import."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from ..errors import KernelNotFound

MODULE_FILE = "module.py"
_MANIFEST = "MANIFEST"  # one line per file: its SHA-256 in hex, two spaces, its name
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_IMPORT_LOCK = threading.RLock()


class KernelStore:
    """Files under `root`, by key. Any number of processes and threads may share a root folder.

    A key stands for its content: the first `put` of a key wins, and `load` gives one module per root and key in a
    process. Keys and file names are single path components of letters, digits, ".", "_" and "-".
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def put(self, key: str, files: Mapping[str, str]) -> Path:
        """Writes `files` (name to text) as the entry `key` and returns its folder; an intact entry is left as it is.

        Raises ValueError for a key or name that is no plain path component, OSError where the disk does not take it.
        """
        for name in (key, *files):
            if not _NAME.fullmatch(name) or name == _MANIFEST:
                raise ValueError(f"{name!r} cannot name an entry or a file of the kernel store")
        folder = self.root / key
        if _read_intact(folder) is not None:
            return folder
        self.root.mkdir(parents=True, exist_ok=True)
        # A leading dot keeps unfinished folders apart from entries; the same parent makes the rename atomic.
        scratch = Path(tempfile.mkdtemp(prefix=f".{key[:40]}-", dir=self.root))
        try:
            _write_entry(scratch / "new", files)
            _move_into_place(scratch / "new", folder, scratch / "torn")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return folder

    def get(self, key: str) -> Path | None:
        """The folder of the entry `key`, or None where there is none that is intact."""
        if not _NAME.fullmatch(key):
            return None
        folder = self.root / key
        return folder if _read_intact(folder) is not None else None

    def load(self, key: str) -> ModuleType:
        """The module in `module.py` of the entry `key`, executed once per process.

        Raises KernelNotFound where the entry is missing or torn, and whatever the module raises when it is executed.
        """
        folder = self.root.resolve() / key
        digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
        name = f"helion_inductor_kernels_{digest}_{re.sub(r'[^A-Za-z0-9_]', '_', key)}"
        with _IMPORT_LOCK:
            module = sys.modules.get(name)
            if module is None:
                files = _read_intact(folder) if _NAME.fullmatch(key) else None
                if files is None or MODULE_FILE not in files:
                    state = "damaged" if folder.exists() else "missing"
                    raise KernelNotFound(f"kernel {key!r} is {state} in the kernel store {self.root}")
                module = _execute(name, folder / MODULE_FILE, files[MODULE_FILE])
            return module


class _CheckedSource(importlib.abc.SourceLoader):
    """Executes exactly the bytes that were checked: no second read, no bytecode cache beside the file."""

    def __init__(self, path: Path, source: bytes) -> None:
        self._path = path
        self._source = source

    def get_filename(self, fullname: str) -> str:
        return str(self._path)

    def get_data(self, path: str | bytes) -> bytes:
        if str(path) != str(self._path):
            raise FileNotFoundError(path)
        return self._source


def _execute(name: str, path: Path, source: bytes) -> ModuleType:
    loader = _CheckedSource(path, source)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Triton reads a kernel's source while the module is still being executed, and finds the module by name.
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _write_entry(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir()
    lines = []
    for name, text in sorted(files.items()):
        data = text.encode()
        (folder / name).write_bytes(data)
        lines.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    (folder / _MANIFEST).write_text("".join(lines))


def _move_into_place(new: Path, folder: Path, torn: Path) -> None:
    """Renames `new` to `folder`. Of several processes that do this the first wins, if what it wrote is intact."""
    for _ in range(10):
        try:
            os.rename(new, folder)
            return
        except OSError:
            if _read_intact(folder) is not None:
                return
            if not folder.exists():
                raise
        # What stands there is damaged. It is moved aside whole, so that nobody ever sees half of an entry replaced.
        try:
            os.rename(folder, torn)
            shutil.rmtree(torn, ignore_errors=True)
        except FileNotFoundError:
            continue  # another process moved it first
    raise OSError(f"could not replace the damaged entry {folder}: other processes keep rewriting it")


def _read_intact(folder: Path) -> dict[str, bytes] | None:
    """The files of an entry, or None unless every one is there and hashes to what the manifest says."""
    try:
        manifest = (folder / _MANIFEST).read_text()
        files = {}
        for line in manifest.splitlines():
            digest, _, name = line.partition("  ")
            data = (folder / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != digest:
                return None
            files[name] = data
    except (OSError, UnicodeDecodeError):
        return None
    return files or None
