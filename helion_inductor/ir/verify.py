"""``verify_program``: the rules that every tile program keeps, by name; those about one nest are in ``verify_nest``.

A program rule yields what is wrong and where: a position ``(nest, statement)``, the name of a buffer, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..errors import VerifyError
from .printer import buffer_text, header_lines, nest_lines
from .tile_ir import Atomic, Load, Store, TileProgram
from .verify_nest import problems, rule_name

Place = tuple[int, int] | str | None
CONTEXT = 3


def verify_program(program: TileProgram) -> None:
    """Raises ``VerifyError`` for the first rule that ``program`` breaks; the message shows the lines around it."""
    for rule in DECLARATION_RULES:
        _check(rule, program)
    for position, nest in enumerate(program.nests):
        if problem := next(problems(nest, program), None):
            line = _line(program, (position, -1 if problem.stmt is None else problem.stmt))
            fail(problem.rule, problem.detail, program_lines(program), line)
    for rule in FLOW_RULES:
        _check(rule, program)


def _check(rule: Callable[[TileProgram], Iterator[tuple[Place, str]]], program: TileProgram) -> None:
    for place, detail in rule(program):
        fail(rule_name(rule), detail, program_lines(program), _line(program, place))


def fail(rule: str, detail: str, lines: Sequence[str], at: int) -> None:
    """Raise ``VerifyError`` with the lines around ``lines[at]``, which gets a mark."""
    around = range(max(0, at - CONTEXT), min(len(lines), at + CONTEXT + 1))
    shown = "\n".join(f"{'>' if k == at else ' '} {k + 1:4} | {lines[k]}" for k in around)
    raise VerifyError(detail, rule=rule, neighbourhood=shown)


def program_lines(program: TileProgram) -> list[str]:
    return [*header_lines(program), *(line for nest in program.nests for line in nest_lines(nest))]


def _line(program: TileProgram, place: Place) -> int:
    head = header_lines(program)
    if isinstance(place, tuple):
        nest, stmt = place
        return len(head) + sum(1 + len(n.body) for n in program.nests[:nest]) + 1 + stmt
    if place is None:
        return 0
    named = [buffer_text(b) for b in program.buffers if b.name == place]
    return next(k for k, line in enumerate(head) if named[-1] in line)


def name_unique(program: TileProgram) -> Iterator[tuple[Place, str]]:
    """Buffers have different names, and so have sizes, and so have nests."""
    seen: set[str] = set()
    for b in program.buffers:
        if b.name in seen:
            yield b.name, f"two buffers are called {b.name}"
        seen.add(b.name)
    sizes = [s.name for s in program.sizes]
    yield from ((None, f"two sizes are called {s}") for s in sizes if sizes.count(s) > 1)
    nests: set[str] = set()
    for position, n in enumerate(program.nests):
        if n.name in nests:
            yield (position, -1), f"two nests are called {n.name}"
        nests.add(n.name)


def buffer_kind(program: TileProgram) -> Iterator[tuple[Place, str]]:
    """A buffer is ``in``, ``out`` or ``temp``."""
    for b in program.buffers:
        if b.kind not in ("in", "out", "temp"):
            yield b.name, f"{b.name} is neither in, out nor temp"


def buffer_rank(program: TileProgram) -> Iterator[tuple[Place, str]]:
    """A buffer has one stride for each dimension."""
    for b in program.buffers:
        if len(b.shape) != len(b.stride):
            yield b.name, f"{b.name} has {len(b.shape)} dimensions and {len(b.stride)} strides"


def buffer_sizes(program: TileProgram) -> Iterator[tuple[Place, str]]:
    """Shapes and strides mention declared sizes only."""
    sizes = {s.name for s in program.sizes}
    for b in program.buffers:
        unknown = {s.name for e in (*b.shape, *b.stride) for s in e.free_symbols} - sizes
        if unknown:
            yield b.name, f"{b.name} mentions {', '.join(sorted(unknown))}, not a declared size"


def alias_known(program: TileProgram) -> Iterator[tuple[Place, str]]:
    """Only an ``out`` aliases; it aliases an ``in`` buffer of its dtype."""
    buffers = program.by_name()
    for b in program.buffers:
        if b.aliases is None:
            continue
        target = buffers.get(b.aliases)
        if b.kind != "out":
            yield b.name, f"{b.name} aliases {b.aliases}, but is not an out"
        elif target is None or target.kind != "in":
            yield b.name, f"{b.name} aliases {b.aliases}, which is not an in"
        elif target.dtype != b.dtype:
            yield b.name, f"{b.name} aliases {b.aliases}, whose dtype is another"


def in_not_written(program: TileProgram) -> Iterator[tuple[Place, str]]:
    """No nest stores to an ``in`` buffer; in-place updates go to an ``out`` that aliases it."""
    given = {b.name for b in program.buffers if b.kind == "in"}
    for n, nest in enumerate(program.nests):
        for k, stmt in enumerate(nest.body):
            if isinstance(stmt, (Store, Atomic)) and stmt.buffer in given:
                yield (n, k), f"{stmt.buffer} is an in"


def out_written(program: TileProgram) -> Iterator[tuple[Place, str]]:
    """Some nest stores to every ``out`` buffer that is not known to be empty."""
    written = {b for nest in program.nests for b in nest.writes()}
    for b in program.buffers:
        if b.kind == "out" and b.name not in written and 0 not in b.shape:
            yield b.name, f"nothing stores to {b.name}"


def temp_written_before_read(program: TileProgram) -> Iterator[tuple[Place, str]]:
    """What the region makes is stored before it is loaded or added to; a buffer known to be empty need not be."""
    made = {b.name for b in program.buffers if b.kind != "in" and b.aliases is None and 0 not in b.shape}
    written: set[str] = set()
    for n, nest in enumerate(program.nests):
        for k, stmt in enumerate(nest.body):
            if isinstance(stmt, (Load, Atomic)) and stmt.buffer in made - written:
                yield (n, k), f"nothing has been stored to {stmt.buffer} yet"
            if isinstance(stmt, Store):
                written.add(stmt.buffer)


ProgramRule = Callable[[TileProgram], Iterator[tuple[Place, str]]]
DECLARATION_RULES: tuple[ProgramRule, ...] = (name_unique, buffer_kind, buffer_rank, buffer_sizes, alias_known)
FLOW_RULES: tuple[ProgramRule, ...] = (in_not_written, out_written, temp_written_before_read)
