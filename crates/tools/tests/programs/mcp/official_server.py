"""A server by the official Python SDK: over standard input and output, or over HTTP on a port that it prints.

    server.py stdio | server.py http TOKEN
"""

import asyncio
import os
import socket
import sys

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("official")


@server.tool(description="Adds two numbers.", annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    return a + b


@server.tool(description="Says where it runs.")
def where() -> dict[str, int]:
    return {"pid": os.getpid()}


@server.tool(description="Fails.")
def fail(why: str) -> str:
    raise ValueError(why)


@server.tool(description="Sleeps until it is cancelled, and says so in a file.")
async def sleep(file: str) -> str:
    with open(file, "w") as began:
        began.write("began")
    try:
        await asyncio.sleep(1000)
    except BaseException:
        with open(file, "w") as ended:
            ended.write("cancelled")
        raise
    return "slept"


def with_token(app, token):
    """Lets in whoever has the token."""

    async def guarded(scope, receive, send):
        if scope["type"] == "http" and (b"authorization", b"Bearer " + token.encode()) not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return guarded


def http(token):
    import uvicorn

    app = with_token(server.streamable_http_app(), token)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if sys.argv[1] == "http":
    http(sys.argv[2])
else:
    server.run("stdio")
