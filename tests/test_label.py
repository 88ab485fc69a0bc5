"""Labels form a lattice: a join only ever grows more careful."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopes.label import INTERNET, TRUSTED, WORKSPACE, Label, Readers

STRANGER = "a reader of the internet"
PEOPLE = st.frozensets(st.sampled_from("ABCD"), max_size=4)
LABELS = st.builds(
    Label,
    untrusted=st.booleans(),
    readers=st.one_of(st.just(INTERNET), st.just(WORKSPACE), PEOPLE),
    sources=st.frozensets(st.sampled_from(["C1", "C2", "C3"]), max_size=3),
    outside=st.booleans(),
)


def can_read(label: Label, person: str) -> bool:
    if person == STRANGER:
        return label.readers == INTERNET
    return isinstance(label.readers, str) or person in label.readers


@given(LABELS, LABELS, LABELS)
def test_the_order_of_joins_does_not_matter(a: Label, b: Label, c: Label) -> None:
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(a) == a
    assert TRUSTED.join(a) == a


@given(LABELS, LABELS)
def test_a_join_never_lets_more_people_read_and_never_forgets(a: Label, b: Label) -> None:
    joined = a.join(b)
    for person in (*"ABCDE", STRANGER):
        assert can_read(joined, person) == (can_read(a, person) and can_read(b, person))
    assert joined.untrusted == (a.untrusted or b.untrusted)
    assert joined.sources == a.sources | b.sources
    assert joined.outside == (a.outside or b.outside)


@given(LABELS, LABELS)
def test_within_means_that_all_who_may_read_the_one_may_read_the_other(a: Label, b: Label) -> None:
    people = (*"ABCDE", STRANGER)  # E stands for every member whom no label names
    assert a.within(b) == all(can_read(a, p) for p in people if can_read(b, p))
    assert a.within(a.join(b))


@given(LABELS)
def test_a_stored_label_comes_back_as_it_was(label: Label) -> None:
    assert Label.of(json.loads(json.dumps(label.to_json()))) == label


@pytest.mark.parametrize("untrusted", [False, True])
def test_a_label_of_an_earlier_version_is_read_with_care(untrusted: bool) -> None:
    """It did not tell the workspace from the internet, nor who had written a text."""
    stored = {"untrusted": untrusted, "readers": "public", "sources": ["C1"]}
    assert Label.of(stored) == Label(untrusted, WORKSPACE, frozenset({"C1"}), outside=untrusted)
    of_one = {**stored, "readers": ["A"]}
    assert Label.of(of_one).readers == frozenset({"A"})


@pytest.mark.parametrize(
    ("readers", "outside", "guarded"),
    [
        (INTERNET, False, False),
        (INTERNET, True, False),
        (WORKSPACE, False, False),
        (WORKSPACE, True, True),
        (frozenset("A"), False, True),
        (frozenset("A"), True, True),
    ],
)
def test_what_the_internet_must_not_learn_by_being_asked(
    readers: Readers, outside: bool, guarded: bool
) -> None:
    assert Label(True, readers, outside=outside).is_guarded is guarded
