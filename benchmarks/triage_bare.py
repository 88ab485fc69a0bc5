"""The calls of a triage by a client that does nothing else: what the machine and servers take."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from benchmarks.workload import settings_for
from bot.local.google.server import TOKEN

MAIL = {"authorization": f"Bearer {TOKEN}"}
MODEL = {"x-api-key": "bench", "anthropic-version": "2023-06-01"}
SYSTEM = "You judge one thread of mail for the reader of the mailbox. " * 100
"""About as long as what each subagent is sent besides its thread."""


async def bare_s(gmail: str, model: str, workers: int) -> float:
    """Seconds for the listing, each thread with one model call, and a last model call."""
    free, name = asyncio.Semaphore(workers), settings_for(1).models.fast
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def read(path: str) -> Any:
            async with session.get(f"{gmail}/gmail/v1/users/me/{path}", headers=MAIL) as answer:
                return await answer.json()

        async def ask(text: str) -> None:
            said = [{"role": "user", "content": text}]
            body = {"model": name, "max_tokens": 1_000, "system": SYSTEM, "messages": said}
            async with session.post(f"{model}/v1/messages", json=body, headers=MODEL) as answer:
                await answer.json()

        async def judge(thread: str) -> None:
            async with free:
                found = await read(f"threads/{thread}?format=full")
            await ask(" ".join(map(_text, found["messages"])))

        began = time.perf_counter()
        await read("profile")
        listed = await read("threads?maxResults=500")
        await asyncio.gather(*(judge(each["id"]) for each in listed["threads"]))
        await ask("Write the digest.")
        return time.perf_counter() - began


def _text(message: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64decode(message["payload"]["body"]["data"]).decode()
