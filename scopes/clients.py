"""The clients of one run, some of which are opened when a tool first needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

Opener = Callable[[], object]


def name_of(kind: type) -> str:
    """Return the name of a kind of client: `scopes.sandbox:Sandbox`."""
    return f"{kind.__module__}:{kind.__qualname__}"


def names_in(clients: Mapping[type, object]) -> set[str]:
    """Return the names of all kinds that these clients include, whether open or not."""
    unopened = clients.unopened if isinstance(clients, Clients) else {}
    return {*map(name_of, clients), *unopened}


class Clients(Mapping[type, object]):
    """Clients by their kind. Iteration yields the open ones; a look-up opens one.

    The others are known by name, so that nothing of theirs is imported before it is needed.
    """

    def __init__(self, opened: Mapping[type, object], unopened: Mapping[str, Opener]) -> None:
        self._opened = dict(opened)
        self.unopened = dict(unopened)
        """Name of a kind -> what opens it."""

    def __getitem__(self, kind: type) -> object:
        if kind not in self._opened and (opener := self.unopened.get(name_of(kind))):
            self._opened[kind] = opener()
            del self.unopened[name_of(kind)]
        return self._opened[kind]

    def __contains__(self, kind: object) -> bool:
        known = kind in self._opened
        return known or (isinstance(kind, type) and name_of(kind) in self.unopened)

    def __iter__(self) -> Iterator[type]:
        return iter(list(self._opened))

    def __len__(self) -> int:
        return len(self._opened)


def with_clients(clients: Mapping[type, object], more: Mapping[type, object]) -> Clients:
    """Return these clients with others added."""
    both = [each.unopened for each in (clients, more) if isinstance(each, Clients)]
    return Clients({**clients, **more}, {n: o for each in both for n, o in each.items()})
