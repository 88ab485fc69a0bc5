"""Labels form a lattice: a join only ever grows more careful."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from scopes.label import PUBLIC, TRUSTED, Label

PEOPLE = st.frozensets(st.sampled_from("ABCD"), max_size=4)
LABELS = st.builds(
    Label,
    untrusted=st.booleans(),
    readers=st.one_of(st.just(PUBLIC), PEOPLE),
    sources=st.frozensets(st.sampled_from(["C1", "C2", "C3"]), max_size=3),
)


def can_read(label: Label, person: str) -> bool:
    return label.readers == PUBLIC or person in label.readers


@given(LABELS, LABELS, LABELS)
def test_the_order_of_joins_does_not_matter(a: Label, b: Label, c: Label) -> None:
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(a) == a
    assert TRUSTED.join(a) == a


@given(LABELS, LABELS)
def test_a_join_never_lets_more_people_read_and_never_forgets(a: Label, b: Label) -> None:
    joined = a.join(b)
    for person in "ABCDE":
        assert can_read(joined, person) == (can_read(a, person) and can_read(b, person))
    assert joined.untrusted == (a.untrusted or b.untrusted)
    assert joined.sources == a.sources | b.sources


@given(LABELS, LABELS)
def test_within_means_that_all_who_may_read_the_one_may_read_the_other(a: Label, b: Label) -> None:
    people = "ABCDE"  # E stands for everybody whom no label names
    assert a.within(b) == all(can_read(a, p) for p in people if can_read(b, p))
    assert a.within(a.join(b))


@given(LABELS)
def test_a_stored_label_comes_back_as_it_was(label: Label) -> None:
    assert Label.of(json.loads(json.dumps(label.to_json()))) == label
