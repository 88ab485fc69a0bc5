"""Gold answers are compared right: a digit in an id or in a longer figure is no answer."""

import pytest

from benchmarks.sql_gold import said


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("There are 9 of them [F1.1].", [[9]], True),
        ("There are 19 of them [F9.9], or 9.5.", [[9]], False),
        ("Revenue: 1,234,567.5 in total", [[1234567.5]], True),
        ("Revenue: 12.50", [[12.5]], True),
        ("T016 (Ace), T017", [["T016"], ["T017"]], True),
        ("T0161", [["T016"]], False),
        ("Acme, Inc. has 3", [["Acme, Inc.", 3]], True),
        ("Nothing was found.", [], False),
    ],
)
def test_an_answer_is_right_where_each_value_stands_in_it(
    text: str, answer: list[list[object]], right: bool
) -> None:
    assert said(text, answer) is right
