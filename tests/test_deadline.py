"""Work that takes too long is told to stop, and left alone if it does not."""

from __future__ import annotations

import time
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


def test_work_that_takes_too_long_is_told_to_stop_and_left_if_it_does_not() -> None:
    stopped = Event()

    def waiting() -> None:
        stopped.wait(10)

    with pytest.raises(Late) as late:
        within(0.05, waiting, stopped.set)
    assert not late.value.stuck
    with pytest.raises(Late) as late:
        within(0.05, lambda: time.sleep(1), stopped.set)
    assert late.value.stuck
