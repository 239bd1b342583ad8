"""``export``: a region as a standalone Python file, which needs torch and triton and nothing of this package.

The file has the kernels and the host function as they were generated, the region's graph as eager PyTorch, and after them, as text
that is imported from where it is, those files of the runtime that the kernels need.
"""

from __future__ import annotations

import ast
import hashlib
import pprint
import re
from collections.abc import Iterator
from pathlib import Path

from .errors import HelionError
from .report import KernelReport, RegionReport, Report
from .tuning import GraphVersion, graph_version, specifications

_PACKAGE = "helion_inductor"
_ROOT = Path(__file__).parent
_CHECK = "runtime.self_check"

_HEAD = '''"""{title}

Standalone: needs torch and triton only. `python {file}` compares the kernels with eager PyTorch and times both, on the GPU if
there is one, else in Triton's interpreter; `import` gives `run(inputs, outputs, ())`, which writes `outputs`. Below are the
kernels, the same computation in PyTorch, and the runtime that launches kernels.

{text}
"""

import os
import sys

import torch

if not torch.cuda.is_available() and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"  # read where kernels are decorated

import triton
import triton.language as tl

# ---- kernels

'''

_LOADER = '''

class _Runtime(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the files above under names of their own."""

    def find_spec(self, name, path, target=None):
        if name == _PACKAGE or name == _PACKAGE + ".runtime":
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return importlib.util.spec_from_loader(name, self, origin=self.file(name)) if name in _FILES else None

    def file(self, name):
        return f"{__file__}/{name.removeprefix(_PACKAGE + '.').replace('.', '/')}.py"

    def is_package(self, name):
        return name not in _FILES

    def get_source(self, name):
        return _FILES.get(name, "")

    def exec_module(self, module):
        name = module.__name__
        if name in _FILES:
            module.__file__ = self.file(name)
        exec(compile(self.get_source(name), self.file(name), "exec", dont_inherit=True), module.__dict__)


sys.meta_path.insert(0, _Runtime())


def _runtime(name):
    return importlib.import_module(f"{_PACKAGE}.{name}")


'''


def export(what: Report | RegionReport | KernelReport, path: str | Path) -> Path:
    """Write the region of ``what`` to the file ``path`` (``.py``), which runs where this package is not installed.

    ``what`` is a report with one region, one of its regions, or a kernel, whose whole region is written. Returns the path. Raises
    HelionError for a report with more or fewer regions, for sizes that are not known, and for calls that eager PyTorch has not.
    """
    region = _region(what)
    path = Path(path)
    if path.suffix != ".py":
        raise HelionError(f"export writes a Python file: {str(path)!r} must end with .py")
    graph = graph_version(region.graph, "DEVICE") if region.graph is not None and not region.compiled.program.sizes else None
    if graph is None:
        raise HelionError("export needs sizes that are known: trace the function with dynamic=False, or with arguments of other sizes")
    if "prims.inductor" in graph.module:
        raise HelionError("export has nothing to compare random numbers with: PyTorch makes others than Inductor does")
    path.write_text(_text(region, graph, path.name))
    return path


def _region(what: Report | RegionReport | KernelReport) -> RegionReport:
    if isinstance(what, KernelReport):
        return what.owner
    if isinstance(what, RegionReport):
        return what
    if len(what.regions) != 1:
        some = "give one of report.regions, or one of report.kernels" if what.regions else "print the report to see why"
        raise HelionError(f"the report has {len(what.regions)} regions, and export writes one: {some}")
    return what.regions[0]


def _text(region: RegionReport, graph: GraphVersion, file: str) -> str:
    compiled = region.compiled
    module = ast.parse(compiled.source.module)
    files = dict(sorted(_closure(module).items()))
    package = f"_helion_{hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:12]}"
    names = [k.name for k in compiled.source.kernels]
    title = f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: kernels exported by helion_inductor."
    functions, imports, statements = _parts(compiled.source.module, module)
    tensors = specifications(compiled.program)
    given = {n: dict(spec) for n, spec in graph.tensors.items()}
    docstring = ast.get_docstring(module, clean=False) or ""
    parts = [
        _HEAD.format(title=title, file=file, text=docstring.replace("\\", "\\\\").strip("\n")),
        *functions,
        "\n# ---- the same in PyTorch\n\n",
        _reference(graph.module),
        "\n\n# ---- the runtime\n\nimport importlib.abc\nimport importlib.util\n\n",
        f"_PACKAGE = {package!r}\n_FILES = {{}}\n",
        *(_embedded(package, name, text) for name, text in files.items()),
        _LOADER,
        *imports,
        f"_check = _runtime({_CHECK!r})\n",
        *statements,
        f"\nTENSORS = {pprint.pformat(given | tensors, width=120, sort_dicts=False)}\n",
        f"EXPORTED = _check.Exported(\n    {names[0]!r}, run, reference, TENSORS,\n    inputs={compiled.inputs!r},\n"
        f"    outputs={compiled.outputs!r},\n    given={tuple(given)!r},\n)\n",
        '\nif __name__ == "__main__":\n    sys.exit(_check.main(EXPORTED))\n',
    ]
    return "".join(parts)


def _parts(text: str, module: ast.Module) -> tuple[list[str], list[str], list[str]]:
    """A generated module's functions, its imports from the runtime as assignments, and its other statements, as text."""
    lines = text.splitlines(keepends=True)
    functions, imports, statements = [], [], []
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            functions.append("".join(lines[first - 1 : node.end_lineno]) + "\n\n")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            for alias in node.names:
                name, base = alias.asname or alias.name, (node.module or "").removeprefix(f"{_PACKAGE}.")
                is_file = (_ROOT / base.replace(".", "/") / f"{alias.name}.py").exists()
                found = f"_runtime({f'{base}.{alias.name}'!r})" if is_file else f"_runtime({base!r}).{alias.name}"
                imports.append(f"{name} = {found}\n")
        elif isinstance(node, ast.Assign):
            statements.append("".join(lines[node.lineno - 1 : node.end_lineno]))
    return functions, imports, statements


def _reference(text: str) -> str:
    """The graph's module as a function ``reference``; tensors that it makes are on the device of those it is given."""
    text = text.replace("device(type='DEVICE')", "device(type='cuda' if torch.cuda.is_available() else 'cpu')")
    if "torch.ops.prims." in text:
        text = "import torch._inductor.inductor_prims  # defines some of torch.ops.prims\n" + text
    return text.replace("def graph(*inputs):", "\n\ndef reference(*inputs):").strip() + "\n"


def _embedded(package: str, name: str, text: str) -> str:
    # Names in the text of messages stay; only what is imported has another name here.
    own = re.sub(rf"^(\s*(?:from|import) ){_PACKAGE}\b", rf"\1{package}", text, flags=re.MULTILINE)
    quoted = f"r'''{own}'''" if "'''" not in own and not own.endswith(("'", "\\")) else repr(own)
    return f"_FILES[_PACKAGE + {f'.{name}'!r}] = {quoted}\n"


def _closure(module: ast.Module) -> dict[str, str]:
    """Text by name ("runtime.launcher") of all files of this package that a module and its check come to import."""
    found: dict[str, str] = {}
    todo = [*_imported(module, ""), _CHECK]
    while todo:
        name = todo.pop()
        path = _ROOT / f"{name.replace('.', '/')}.py"
        if name not in found and path.exists():
            found[name] = path.read_text(encoding="utf-8")
            todo += _imported(ast.parse(found[name]), name)
    return found


def _imported(tree: ast.Module, name: str) -> Iterator[str]:
    """Names of what may be files of this package among the imports of the file ``name``, relative to the package."""
    folder = name.split(".")[:-1]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = [*folder[: len(folder) - node.level + 1], *(node.module.split(".") if node.module else [])]
        elif (node.module or "").split(".")[0] == _PACKAGE:
            base = (node.module or "").split(".")[1:]
        else:
            continue
        yield ".".join(base)
        yield from (".".join([*base, alias.name]) for alias in node.names)
