"""Partial answers: the `fields` parameter that all of Google's APIs take."""

import re
from typing import Any

from bot.local.google.api import GoogleRefused

Tree = dict[str, Any]

MAX_DEPTH = 20
_TOKEN = re.compile(r"\s*([A-Za-z0-9_.*]+|[(),/])")


def selected(body: Any, fields: str) -> Any:
    """What is left of an answer; `id,messages(id,payload/headers)` and `*` are understood."""
    if not fields.strip():
        return body
    tokens = _TOKEN.findall(fields)
    if "".join(tokens) != re.sub(r"\s+", "", fields):
        raise GoogleRefused("invalidArgument", f"Invalid field selection {fields}")
    return _kept(body, _Reader(tokens).tree(0))


def _kept(value: Any, tree: Tree) -> Any:
    """The parts of a value that a tree names; a leaf of the tree keeps all below it."""
    if not tree:
        return value
    if isinstance(value, list):
        return [_kept(each, tree) for each in value]
    if not isinstance(value, dict):
        return value
    named = {name: tree.get(name, tree.get("*")) for name in value}
    return {name: _kept(value[name], inner) for name, inner in named.items() if inner is not None}


class _Reader:
    """Reads a selection from its tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0

    def tree(self, depth: int) -> Tree:
        """The fields up to the closing bracket or the end."""
        tree: Tree = {}
        while True:
            self._path(tree, depth)
            end = self._next()
            if end == (")" if depth else ""):
                return tree
            if end != ",":
                self._fail()

    def _path(self, tree: Tree, depth: int) -> None:
        while True:
            name = self._next()
            if name in ("", "(", ")", ",", "/") or depth > MAX_DEPTH:
                self._fail()
            tree = tree.setdefault(name, {})
            if self._tokens[self._at] == "(":
                self._at += 1
                tree |= self.tree(depth + 1)
                return
            if self._tokens[self._at] != "/":
                return
            self._at += 1

    def _next(self) -> str:
        token = self._tokens[min(self._at, len(self._tokens) - 1)]
        self._at += 1
        return token

    def _fail(self) -> None:
        raise GoogleRefused("invalidArgument", "Invalid field selection")
