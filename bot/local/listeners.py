"""Stop taking connections without losing one that has just come."""

import asyncio
from collections.abc import Iterable


async def close_listeners(servers: Iterable[asyncio.Server]) -> None:
    """Close the listening sockets of this loop's servers once all they accepted stand among the
    protocol's connections.

    `Server.close` alone leaves what was accepted in the loop's last round open and unanswered.
    """
    servers = tuple(servers)
    loop = asyncio.get_running_loop()
    for server in servers:
        for listener in server.sockets:
            loop.remove_reader(listener)
    for _ in range(3):  # from accepted over a transport to a protocol
        await asyncio.sleep(0)
    for server in servers:
        server.close()
