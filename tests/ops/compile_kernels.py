"""Compiles the generated kernels for a GPU that need not be there: `python compile_kernels.py MODULE_FILE SPEC_FILE`.

SPEC_FILE holds a JSON list of [name, signature, constexprs]. Prints one JSON object: kernel -> error, empty if all is
well. Runs in a process of its own, because a process either interprets kernels or compiles them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def main(module_file: str, spec_file: str) -> None:
    spec = importlib.util.spec_from_file_location("generated_kernels", module_file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def compile_one(item: tuple[str, dict[str, str], dict[str, int]]) -> tuple[str, str]:
        name, signature, constexprs = item
        kinds = {**signature, **dict.fromkeys(constexprs, "constexpr")}
        source = ASTSource(getattr(module, name), kinds, constexprs, {})
        try:
            triton.compile(source, target=GPUTarget("cuda", 90, 32))
        except (triton.CompilationError, RuntimeError, TypeError, ValueError, AttributeError, AssertionError) as error:
            return name, f"{type(error).__name__}: {error}"
        return name, ""

    # Most of the time is spent outside the interpreter lock: in LLVM and the assembler.
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(compile_one, json.loads(Path(spec_file).read_text()))
    print(json.dumps({name: error for name, error in results if error}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
