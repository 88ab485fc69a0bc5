"""What several ask at one time is done in one go, and nobody is left waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot.storage.database import BatchWriter


async def test_what_is_asked_meanwhile_is_done_in_one_go() -> None:
    gone: list[Sequence[int]] = []

    async def work(given: Sequence[int]) -> Sequence[int | Exception]:
        gone.append(given)
        await asyncio.sleep(0)
        return [ValueError("odd") if n % 2 else 10 * n for n in given]

    together = BatchWriter(work)
    made = await asyncio.gather(*(together.ask(n) for n in range(4)), return_exceptions=True)
    assert [made[0], made[2]] == [0, 20]
    assert [str(made[1]), str(made[3])] == ["odd", "odd"]
    alone = together.ask(4)
    await asyncio.sleep(0)
    rest = [together.ask(n) for n in (6, 8)]
    rest[0].cancel()
    await together.aclose()
    assert (await alone, await rest[1]) == (40, 80)
    assert gone == [[0, 1, 2, 3], [4], [6, 8]]


async def test_what_the_work_raises_is_told_to_all_and_the_next_are_served() -> None:
    async def work(given: Sequence[int]) -> Sequence[int]:
        if 0 in given:
            raise OSError("the disk is full")
        return given

    together = BatchWriter(work)
    failed = await asyncio.gather(together.ask(0), together.ask(1), return_exceptions=True)
    assert [str(each) for each in failed] == ["the disk is full"] * 2
    assert await together.ask(1) == 1


def test_who_asks_as_the_loop_ends_is_not_left_waiting() -> None:
    """The end of a loop cancels all tasks at once: the work, and who asks on the way out."""
    ended: list[str] = []

    async def main() -> None:
        together = BatchWriter(work)

        async def books() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(await asked_in_vain(together))

        leaving = [asyncio.create_task(books()) for _ in range(5)]
        await asyncio.sleep(0)
        together.ask(0)
        leaving += [asyncio.create_task(books()) for _ in range(5)]
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(ended) == 10
    assert "left waiting" not in ended


async def work(given: Sequence[int]) -> Sequence[int]:
    """Takes an hour for 0."""
    await asyncio.sleep(3600 if 0 in given else 0)
    return given


async def asked_in_vain(together: BatchWriter[int, int]) -> str:
    try:
        async with asyncio.timeout(5):
            return f"got {await together.ask(1)}"
    except TimeoutError:
        return "left waiting"
    except asyncio.CancelledError:
        return "cancelled"
