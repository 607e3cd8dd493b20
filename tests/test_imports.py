"""Imports point down only, and what is heavy or optional is imported where it is used."""

import ast
from pathlib import Path

import pytest

import gradless

ROOT = Path(gradless.__file__).parent
LAYERS = [  # from the bottom; a module imports from layers below, and from its own
    {"types", "settings", "machine"},
    {"acceptance", "apart", "jaxprs", "proposals", "threefry"},
    {"kernels", "signal_norm", "faster"},
    {"engine"},
    {"problem", "problems", "runs", "minimize", "workers", "asktell", "command", "sklearn", "pytorch"},
    {"experiments", "report", "bench"},
    {"cli", "__main__"},
]
APART = {"models": set(), "data": set(), "records": set(), "plots": {"records"}}  # and what of gradless they import
FRONT_ENDS = {  # where an optional library may be imported at the top of a file: in a part, or in a file of its own
    "torch": {"pytorch", "bench/torch_eager.py"},
    "sklearn": {"sklearn"},
    "flax": {"flax"},
    "matplotlib": {"plots"},
}
FILES = sorted(ROOT.rglob("*.py"))


def part(path: Path) -> str:
    """Return the top-level part of gradless that a file belongs to; "" for the package's own __init__."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py").replace("__init__", "")


def level(name: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if name in names)


def imports(path: Path, everywhere: bool) -> set[str]:
    """Return the dotted names that a file imports, at module level or everywhere in it."""
    found = set()
    package = ["gradless", *path.relative_to(ROOT).parts[:-1]]
    nodes = list(ast.parse(path.read_text()).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{stem}.{alias.name}" for alias in node.names}
        elif everywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            nodes += [] if is_for_types else list(ast.iter_child_nodes(node))
        elif isinstance(node, ast.ClassDef):
            nodes += list(node.body)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down_only(path):
    own = part(path)
    if own == "":
        return
    names = [name.split(".") for name in imports(path, everywhere=True)]
    wanted = {name[1] for name in names if name[0] == "gradless" and len(name) > 1} - {own, "__version__"}
    if own in APART:
        assert wanted <= APART[own]
    else:
        assert own in set().union(*LAYERS), f"{own} has no place in LAYERS: give it one"
        upward = {name for name in wanted - APART.keys() if level(name) > level(own)}
        assert not upward
        assert level(own) >= level("engine") or not wanted & APART.keys()
        assert own != "engine" or wanted & APART.keys() <= {"records"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_optional_libraries_are_imported_where_they_are_used(path):
    at_top = {name.split(".")[0] for name in imports(path, everywhere=False)}
    places = {part(path), str(path.relative_to(ROOT))}
    assert not {library for library, homes in FRONT_ENDS.items() if library in at_top and not places & homes}
    if part(path) in {"records", "plots"}:
        assert not {name for name in imports(path, everywhere=True) if name.split(".")[0] in {"jax", "jaxlib", "optax"}}


def test_type_checkers_of_users_read_the_annotations():
    assert (ROOT / "py.typed").is_file()
