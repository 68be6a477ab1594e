#!/usr/bin/env bash
# Guess: the MCP SDK for Python uses httpx, so `except httpx.ConnectError` around a client catches a server that is away.
# Seen with mcp 2.3.0: it depends on httpx2, a package of another name, and httpx is not even installed. Where httpx is installed for
# another library, the old handler is imported without an error and never catches anything.
# Output seen:
#   httpx installed: False
#   httpx2.ConnectError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/python"
"$folder/python/bin/pip" install --quiet --disable-pip-version-check mcp==2.3.0
"$folder/python/bin/python" - >"$folder/seen" <<'PY'
import asyncio, importlib.util, socket
from mcp import Client

def leaves(error):
    return [leaf for part in error.exceptions for leaf in leaves(part)] if isinstance(error, BaseExceptionGroup) else [error]

async def main():
    with socket.socket() as nobody:  # bound and not listening: a connection is refused
        nobody.bind(("127.0.0.1", 0))
        try:
            async with Client(f"http://127.0.0.1:{nobody.getsockname()[1]}/mcp") as client:
                await client.list_tools()
        except BaseException as error:
            for leaf in leaves(error):
                print(f"{type(leaf).__module__}.{type(leaf).__name__}")

print("httpx installed:", importlib.util.find_spec("httpx") is not None)
asyncio.run(main())
PY
cat "$folder/seen"
diff "$folder/seen" - <<'SEEN'
httpx installed: False
httpx2.ConnectError
SEEN
