"""The project's rules that no linter checks."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("bot", "scopes", "subagents", "config")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def nodes(paths: Iterable[Path], *words: str) -> Iterator[tuple[Path, ast.AST]]:
    """Yield the nodes of the modules that contain one of these words."""
    for path in paths:
        text = path.read_text("utf-8")
        if any(word in text for word in words):
            yield from ((path, node) for node in ast.walk(ast.parse(text)))


def test_only_config_reads_the_environment() -> None:
    readers = [
        f"{name_of(path)}:{node.lineno}"
        for path, node in nodes(MODULES, "environ", "getenv")
        if not path.is_relative_to(ROOT / "config")
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"))
        or (isinstance(node, ast.alias) and node.name in ("environ", "environb", "getenv"))
    ]
    assert readers == []


def test_dbos_is_imported_in_one_place_only() -> None:
    importers = set()
    for path, node in nodes((*MODULES, *(ROOT / "benchmarks").rglob("*.py")), "dbos"):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.partition(".")[0] == "dbos" for name in names):
            importers.add(name_of(path))
    assert importers == {"bot/runs/durable.py"}


def test_only_one_module_normalizes_unicode() -> None:
    """Python's normalization takes quadratic time; `scopes.clean.unified` bounds it."""
    callers = {
        name_of(path)
        for path, node in nodes(MODULES, "normalize", "is_normalized")
        if not path.is_relative_to(ROOT / "bot" / "local")
        if isinstance(node, ast.Attribute) and node.attr in ("normalize", "is_normalized")
    }
    assert callers == {"scopes/clean.py"}


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_lock_files_pin_every_dependency_by_hash_and_contain_no_urls_or_paths(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert not re.search(r"://|^\s*-(?!-hash=sha256:)|(?:^|[\s=])[/~]", text, re.MULTILINE)
    entries = re.split(r"\n(?=[a-z0-9])", text)[1:]
    assert all(re.match(r"[a-z0-9-]+==\S", entry) for entry in entries)
    assert all("--hash=sha256:" in entry for entry in entries)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extra = {"requirements.txt": [], "requirements-dev.txt": project["dependency-groups"]["dev"]}
    wanted = project["project"]["dependencies"] + extra[name]
    locked = {entry.partition("==")[0] for entry in entries}
    assert {re.split(r"[\[<>=]", line)[0] for line in wanted} <= locked
