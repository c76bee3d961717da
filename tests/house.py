"""Measures the house: who imports whom, how long and how deep the code is, and how much of it there is.

    python tests/house.py  ->  room        files  lines of code
                               frontend        8            900
                               ...
                               and below it what breaks a rule: minicc/kernel/tile.py:12: what, by how much

Each rule is a function from a `Source` to the complaints it has, so a test is one line. The code is read with
`ast` and `tokenize`, never imported: a file that does not import yet can still be measured. Linters check
lines and names; which room may look into which is ours alone, so it is kept here, as a table.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FILE_LINES, FUNCTION_LINES, COLUMNS, NESTING = 400, 45, 110, 4
# The most lines of code: of the compiler, which is what one reads in a weekend, and of what stands around it.
COMPILER_LINES, FRONTEND_LINES, TOOLS_LINES = 12900, 4600, 2400

# Which rooms of minicc/ a room may import: down the list, never up, and the two machines not each other.
BASE = {"errors", "trace"}
ROOMS = ("frontend", "graph", "kernel", "tpu", "gpu")
COMPILER = {"compiler", "devices", "slots", "structure", "report"}  # compiler.py, and what it is made of
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "trace": set(),
    "frontend": BASE | {"graph"} | COMPILER,  # a lazy tensor compiles itself; the compiler sees no tensor
    "graph": BASE,
    "kernel": BASE | {"graph"},
    "tpu": BASE | {"graph", "kernel"},
    "gpu": BASE | {"graph", "kernel"},
    **{part: BASE | set(ROOMS) | COMPILER for part in COMPILER},
    "minicc": BASE | {"face"},
    "face": BASE | set(ROOMS) | COMPILER | {"tools"},  # of tools, only MINICC_DEBUG
    "tools": BASE | set(ROOMS) | COMPILER | {"minicc"},
    "__main__": {"tools"},
    "viz": BASE | set(ROOMS) | COMPILER | {"minicc", "tools"},
    "lessons": BASE | set(ROOMS) | COMPILER | {"minicc", "tools"},
}
# viz and lessons are reached from here alone, by name and when asked for; so minicc/ itself needs only numpy.
DOOR = "minicc/tools/commands.py"
OURS = ("minicc", "viz", "lessons")
OUTSIDE = {"minicc": {"numpy"}, "viz": {"numpy", "graphviz"}, "lessons": {"numpy", "pytest"}}

# Spelled so that this file does not itself match.
MACHINE_PATHS = re.compile(
    "|".join((r"(?<![\w.])/(work|tmp|root|home)" + "/", r"[A-Z]:\\+Users" + r"\\", "file:" + "//"))
)

BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NOT_CODE = {
    getattr(tokenize, kind) for kind in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")
}


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the checkout's root, with forward slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def room(self) -> str:
        """The part of minicc that the file belongs to: a room, a file at its top, or viz, lessons, tests."""
        top, *below = self.path.removesuffix(".py").split("/")
        if top != "minicc" or below == ["__init__"]:
            return top
        return below[0]

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, FUNCTIONS))

    def at(self, node: ast.stmt | ast.expr) -> str:
        return f"{self.path}:{node.lineno}"


def sources(*tops: str) -> list[Source]:
    """Every Python file below these folders of the checkout, sorted by path."""
    found = sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))
    return [source(path.relative_to(ROOT).as_posix()) for path in found]


def source(path: str) -> Source:
    """One file of the checkout."""
    return Source(path, (ROOT / path).read_text(encoding="utf-8"))


# ---- imports ----

def imports(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    """Each import statement with the full dotted name that it loads; `from a import b` gives `a.b`.

    >>> [name for _, name in imports(Source("minicc/gpu/lower.py", "from . import ir\\nimport numpy as np"))]
    ['minicc.gpu.ir', 'numpy']
    """
    package = source.path.removesuffix(".py").removesuffix("/__init__").split("/")
    if not source.path.endswith("__init__.py"):
        package = package[:-1]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join(above + ([node.module] if node.module else []))
            yield from ((node, f"{module}.{alias.name}") for alias in node.names)


def room_of_module(name: str) -> str:
    """The room that a dotted name of ours lies in; a name of the public face lies in `minicc`."""
    parts = name.split(".")
    known = len(parts) > 1 and (parts[1] in MAY_IMPORT)
    return parts[1] if known else "minicc"


def wrong_imports(source: Source) -> list[str]:
    """Imports that go up or sideways, or reach a library this part may not need."""
    if source.room not in MAY_IMPORT:
        return [f"{source.path}: MAY_IMPORT in tests/house.py has no row for {source.room}"]
    wrong = []
    outside = OUTSIDE[source.path.split("/")[0]] | set(sys.stdlib_module_names)
    for node, name in imports(source):
        top = name.split(".")[0]
        target = room_of_module(name) if top == "minicc" else top
        if top == "minicc":
            if target != source.room and target not in MAY_IMPORT[source.room]:
                wrong.append(f"{source.at(node)}: {source.room} imports {name}; {_allowed(source.room)}")
        elif top in ("viz", "lessons"):
            wrong.append(f"{source.at(node)}: imports {name}; it is called minicc.{name}")
        elif top not in outside:
            wrong.append(f"{source.at(node)}: imports {name}, which minicc does not depend on")
    return wrong


def _allowed(room: str) -> str:
    return "it may import " + (", ".join(sorted(MAY_IMPORT[room])) or "nothing of minicc")


def hidden_imports(source: Source) -> list[str]:
    """Imports inside functions, `import *`, and strings that name viz or lessons outside the door to them."""
    hidden = [
        f"{source.at(node)}: import inside {function.name}; put it at the top"
        for function in source.functions()
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    hidden += [f"{source.at(node)}: import *" for node, name in imports(source) if name.endswith(".*")]
    if source.path == DOOR:
        return hidden
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and node.value in ("minicc.viz", "minicc.lessons"):
            hidden.append(f"{source.at(node)}: names {node.value!r}; only {DOOR} reaches it")
    return hidden


# ---- sizes ----

def docstring_lines(tree: ast.Module) -> set[int]:
    """The numbers of all lines that docstrings occupy."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node) is not None:
            lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def code_lines(source: Source) -> int:
    """Lines that hold code: not blank, not only a comment, not in a docstring.

    >>> code_lines(Source("a.py", '\"\"\"Doc.\"\"\"\\n\\n# why\\nx = (1 +\\n     2)\\n'))
    2
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(source.tree))


def long_files(source: Source) -> list[str]:
    lines = len(source.text.splitlines())
    return [f"{source.path}: {lines} lines, {lines - FILE_LINES} over"] if lines > FILE_LINES else []


def long_lines(source: Source) -> list[str]:
    return [
        f"{source.path}:{number}: {len(line)} columns, {len(line) - COLUMNS} over"
        for number, line in enumerate(source.text.splitlines(), 1)
        if len(line) > COLUMNS
    ]


def long_functions(source: Source) -> list[str]:
    """Functions of too many lines, their docstrings not counted."""
    documented = docstring_lines(source.tree)
    found = []
    for function in source.functions():
        lines = len(set(range(function.lineno, (function.end_lineno or 0) + 1)) - documented)
        if (over := lines - FUNCTION_LINES) > 0:
            found.append(f"{source.at(function)}: {function.name} has {lines} lines, {over} over")
    return found


def nesting(node: ast.AST, depth: int = 0) -> int:
    """How many for, while, if, with, try and match stand inside each other; a function inside starts anew.

    >>> nesting(ast.parse("for a in b:\\n  if a:\\n    c\\n  elif d:\\n    e"))
    2
    """
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            deeper = isinstance(child, BLOCKS) and not _is_elif(node, child)
            deepest = max(deepest, nesting(child, depth + deeper))
    return deepest


def _is_elif(node: ast.AST, child: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]


def deep_functions(source: Source) -> list[str]:
    return [
        f"{source.at(function)}: {function.name} nests {depth} deep, {depth - NESTING} over"
        for function in source.functions()
        if (depth := nesting(function)) > NESTING
    ]


# ---- manners ----

def unannotated(source: Source) -> list[str]:
    """Public functions and methods that leave an argument or the result without a type."""
    found = []
    for function in _public_functions(source.tree):
        spec = function.args
        given = [*spec.posonlyargs, *spec.args, spec.vararg, *spec.kwonlyargs, spec.kwarg]
        named = [arg for arg in given if arg is not None and arg.arg not in ("self", "cls")]
        bare = [arg.arg for arg in named if arg.annotation is None]
        bare += ["its result"] if function.returns is None else []
        if bare:
            found.append(f"{source.at(function)}: {function.name} leaves {', '.join(bare)} without a type")
    return found


def _public_functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, *FUNCTIONS)) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from _public_functions(node)
            else:
                yield node


def undocumented(source: Source) -> list[str]:
    return [] if ast.get_docstring(source.tree) else [f"{source.path}: no module docstring"]


def tracked() -> list[str]:
    """Every file that git tracks; without git, every Python file of ours."""
    asked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.splitlines() or [source.path for source in sources(*OURS, "tests")]


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Path and text of every tracked file that is text."""
    for name in tracked():
        path = ROOT / name
        if path.is_file() and b"\0" not in (data := path.read_bytes()):
            yield name, data.decode("utf-8")


def machine_paths(name: str, text: str) -> list[str]:
    """Lines that name a folder of some machine, which no other machine has."""
    return [
        f"{name}:{number}: {match.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        if (match := MACHINE_PATHS.search(line))
    ]


# ---- the table ----

def table() -> list[tuple[str, int, int]]:
    """(room, files, lines of code) for each part of minicc/, in the order in which data walks through."""
    counts: dict[str, list[int]] = {room: [] for room in ROOMS}
    for source in sources("minicc"):
        room = source.room if source.path.count("/") > 1 else "at the top"
        counts.setdefault(room, []).append(code_lines(source))
    return [(room, len(lines), sum(lines)) for room, lines in counts.items()]


def show_table() -> str:
    rows = table()
    lines = [f"{'room':12}{'files':>6}{'lines of code':>15}"]
    lines += [f"{room:12}{files:6}{code:15}" for room, files, code in rows]
    lines += [f"{part:18}{code:15}  of {most}" for part, code, most in totals()]
    return "\n".join(lines)


def totals() -> list[tuple[str, int, int]]:
    """(part of minicc/, its lines of code, the most it may have)."""
    code = {room: lines for room, _, lines in table()}
    frontend, tools = code.pop("frontend"), code.pop("tools")
    return [("compiler", sum(code.values()), COMPILER_LINES), ("frontend", frontend, FRONTEND_LINES),
            ("tools", tools, TOOLS_LINES)]


OURS_ONLY = (wrong_imports, hidden_imports, unannotated, undocumented)  # for minicc/, viz/ and lessons/
EVERYWHERE = (long_files, long_lines, long_functions, deep_functions)  # for tests/ too


def complaints() -> list[str]:
    """All that breaks a rule, in the files as they are now."""
    ours, tests = sources(*OURS), sources("tests")
    found = [line for rule in OURS_ONLY for source in ours for line in rule(source)]
    found += [line for rule in EVERYWHERE for source in ours + tests for line in rule(source)]
    return found + [line for name, text in tracked_texts() for line in machine_paths(name, text)]


if __name__ == "__main__":
    print(show_table())
    print("\n".join(complaints()) or "no rule is broken")
