"""What takes too long is ended where that can be, and left alone where it cannot."""

from __future__ import annotations

import time
from itertools import count
from threading import Event

import pytest

from scopes.databases.deadline import Late, within


def test_what_ends_in_time_has_its_ending() -> None:
    done = Event()
    within(10, done.set, done.clear)
    assert done.is_set()
    with pytest.raises(ZeroDivisionError):
        within(10, lambda: print(1 / 0), done.clear)


def test_what_hardly_gets_a_processor_gets_more_time() -> None:
    stopped = Event()
    within(0.2, lambda: time.sleep(0.4), stopped.set)
    assert not stopped.is_set()


def test_code_without_an_end_is_ended_and_a_call_of_a_library_is_left() -> None:
    def counting() -> None:
        try:
            for _ in count():
                pass
        finally:
            ended.set()

    ended, stopped = Event(), Event()
    with pytest.raises(Late):
        within(0.05, counting, stopped.set)
    assert ended.wait(5)
    assert stopped.is_set()
    with pytest.raises(Late) as late:
        within(0.05, lambda: time.sleep(1), stopped.set)
    assert late.value.stuck
