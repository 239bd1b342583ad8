"""The rules of the floors, checked on syntax trees: which file may import what, function-local imports included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = "helion_inductor"
STAGES = ("lowering", "scheduling", "codegen", "runtime")
# From the ground up. A name is a file or a folder of the package; a unit may import its own floor and those below.
FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "block_math",
        "random_math",
        "unsigned_math",
        "scalar_math",
        "option_rules",
        "options",
        "device",
        "compat",
    ),
    ("ir",),
    STAGES,
    ("signatures", "pieces", "pipeline", "inspecting", "tuning", "report", "exporting"),
    ("fx_sizes", "fx_nested", "fx_bridge", "fx_repairs", "fx_peak", "fx_memory", "fx_memory_rule", "region_pass"),
    ("backend",),
    ("__init__", "__main__", "demo", "demo_models", "demo_table", "doctor", "explaining"),
)
LEVEL = {unit: level for level, floor in enumerate(FLOORS) for unit in floor}
TOP = len(FLOORS) - 1

LIBRARIES = {"torch", "triton", "sympy"}
PRIVATE_TORCH = {"_inductor", "_dynamo", "_functorch", "_guards", "_subclasses", "_higher_order_ops"}
PRIVATE_TORCH_FILES = {"backend.py", "lowering/inductor_loops.py", "compat.py"}
# What generated and exported modules need; these units import one another, torch, triton and the standard library only.
STANDALONE = {"runtime", "errors", "block_math", "random_math", "unsigned_math", "scalar_math"}
ENVIRONMENT = {"environ", "environb", "getenv", "putenv", "unsetenv"}
ENVIRONMENT_FILES = {"options.py"}
MAX_LINES = 400


@dataclass(frozen=True)
class Import:
    """``module`` is absolute, such as "helion_inductor.ir.index", or a name inside one ("torch._inductor")."""

    module: str
    line: int


def violations(package: Path) -> list[str]:
    """Every broken rule in the package at the folder ``package``, one line of text each, sorted by file."""
    found: list[str] = []
    graph: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        imports = list(dict.fromkeys(_imports(tree, file, package)))
        found += [f"{file}: {problem}" for problem in _file_problems(file, text, tree, imports)]
        graph[file] = {target for item in imports if (target := _file_of(item.module, package)) and target != file}
    return found + _cycles(graph)


def _file_problems(file: str, text: str, tree: ast.Module, imports: list[Import]) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > MAX_LINES:
        yield f"{lines} lines, over {MAX_LINES}"
    unit = _unit(file)
    if unit not in LEVEL:
        yield f"{unit!r} is on no floor; give it one in {Path(__file__).name}"
        return
    for item in imports:
        root = item.module.split(".")[0]
        problem = _own_import(unit, item.module) if root == PACKAGE else _outside_import(unit, file, item.module)
        if problem:
            yield f"line {item.line}: {problem}"
    if file not in PRIVATE_TORCH_FILES:
        yield from (f"line {line}: uses {name}, private to torch" for name, line in _private_attributes(tree))
    if file not in ENVIRONMENT_FILES:
        yield from (f"line {line}: reads the environment" for line in _environment_uses(tree))


def _own_import(unit: str, module: str) -> str:
    target = module.split(".")[1] if "." in module else "__init__"
    if target not in LEVEL:
        return f"imports {module}, which is on no floor"
    if unit in STANDALONE and target not in STANDALONE:
        return f"{unit} imports {module}; it must stand alone"
    if LEVEL[target] > LEVEL[unit]:
        return f"imports {module} from a higher floor"
    if target != unit and target in STAGES and unit in STAGES:
        return f"imports {module}, another stage"
    return ""


def _outside_import(unit: str, file: str, module: str) -> str:
    parts = module.split(".")
    if parts[0] == "torch" and len(parts) > 1 and parts[1] in PRIVATE_TORCH and file not in PRIVATE_TORCH_FILES:
        return f"imports {module}, private to torch"
    if parts[0] in sys.stdlib_module_names:
        return ""
    allowed = LIBRARIES - {"sympy"} if unit in STANDALONE else LIBRARIES
    if LEVEL[unit] == TOP:
        allowed = allowed | {"transformers"}
    return "" if parts[0] in allowed else f"imports {module}, not a library that this file may use"


def _imports(tree: ast.Module, file: str, package: Path) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file)
            yield from (Import(_named(base, alias.name, package), node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0] if node.args else None
            if name in {"import_module", "__import__"} and isinstance(first, ast.Constant):
                yield Import(str(first.value), node.lineno)


def _absolute(node: ast.ImportFrom, file: str) -> str:
    if not node.level:
        return node.module or ""
    folders = [PACKAGE, *file.split("/")[:-1]]
    base = folders[: len(folders) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def _named(base: str, name: str, package: Path) -> str:
    """What ``from base import name`` reaches: the module base.name where that is one, else base itself."""
    if base == "torch" and name in PRIVATE_TORCH:
        return f"{base}.{name}"
    own = base.split(".")[0] == PACKAGE
    folder = package.joinpath(*base.split(".")[1:]) if own else package
    is_module = own and ((folder / f"{name}.py").exists() or (folder / name).is_dir())
    return f"{base}.{name}" if is_module else base


def _file_of(module: str, package: Path) -> str:
    if module.split(".")[0] != PACKAGE:
        return ""
    path = package.joinpath(*module.split(".")[1:])
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    return file.relative_to(package).as_posix() if file.exists() else ""


def _unit(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def _private_attributes(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE_TORCH and isinstance(node.value, ast.Name):
            if node.value.id == "torch":
                yield f"torch.{node.attr}", node.lineno


def _environment_uses(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT and isinstance(node.value, ast.Name):
            if node.value.id == "os":
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            if any(alias.name in ENVIRONMENT for alias in node.names):
                yield node.lineno


def _cycles(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [f"import cycle: {' -> '.join(reversed(error.args[1]))}"]
    return []
