#!/usr/bin/env bash
# Guess: a tool of a server that the MCP SDK for Python makes may return a model with a `datetime`, a `time` or a `timedelta`. The SDK
# writes the output schema and the result from the same annotation, so every official client accepts the result.
# Seen with mcp 2.3.0 for Python, and @modelcontextprotocol/client 2.4.0 and @modelcontextprotocol/sdk 1.32.2 for TypeScript: the schemas
# say `format: date-time`, `time` and `duration`. The client for Python does not check formats, as JSON Schema 2020-12 has it by default.
# Those for TypeScript check them: they refuse a date or a time without a zone, a negative duration and one with half a second. The newer
# one accepts some of these with its validator for workers. A float that is not a number arrives as null, and every client refuses it. A
# price of 19.99 with `multiple_of=0.01` is refused too, except by the validator for workers. All this happens when the tool has done its
# work: `callTool` throws an error, though the server has sent a result, and a model that reads the error calls again.
# Output seen (Python 3.11, Node 20); "workers" is the newer client with that validator, and the result is what a client shows that
# accepts it:
#   tool              result                          Python    TS 1.32   TS 2.4    workers
#   date              "2026-11-30"                    accepted  accepted  accepted  accepted
#   with_zone         "2026-11-30T12:00:00Z"          accepted  accepted  accepted  accepted
#   without_zone      "2026-11-30T12:00:00"           accepted  refused   refused   refused
#   time              "09:00:00"                      accepted  refused   refused   accepted
#   an_hour           "PT1H"                          accepted  accepted  accepted  accepted
#   half_a_second     "PT0.5S"                        accepted  refused   refused   accepted
#   minute_ago        "-PT1M"                         accepted  refused   refused   refused
#   not_a_number                                      refused   refused   refused   refused
#   price             19.99                           refused   refused   refused   accepted
#   each tool ran 4 times
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check mcp==2.3.0
npm init --yes >log
npm install --silent --no-audit --no-fund @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/sdk@1.32.2 >log
cat >server.py <<'PY'
import math
from datetime import date, datetime, time, timedelta, timezone
from typing import Annotated
from mcp.server.mcpserver import MCPServer
from pydantic import Field, create_model

server = MCPServer("times")
day = datetime(2026, 11, 30, 12)


def add(name, kind, value):
    Answer = create_model("Answer", value=(kind, ...))

    def tool() -> Answer:
        with open("ran", "a") as file:
            file.write(f"{name}\n")
        return Answer(value=value)

    server.add_tool(tool, name=name)


add("date", date, day.date())
add("with_zone", datetime, day.replace(tzinfo=timezone.utc))
add("without_zone", datetime, day)
add("time", time, time(9))
add("an_hour", timedelta, timedelta(hours=1))
add("half_a_second", timedelta, timedelta(seconds=0.5))
add("minute_ago", timedelta, timedelta(minutes=-1))
add("not_a_number", float, math.nan)
add("price", Annotated[float, Field(multiple_of=0.01)], 19.99)
if __name__ == "__main__":
    server.run()
PY
cat >client.py <<'PY'
import asyncio, json, sys
from mcp import Client, StdioServerParameters, stdio_client


async def main():
    async with Client(stdio_client(StdioServerParameters(command=sys.executable, args=["server.py"]))) as client:
        for tool in (await client.list_tools()).tools:
            try:
                result = await client.call_tool(tool.name, {})
                assert not result.is_error
                print(tool.name, "accepted", json.dumps(result.structured_content["value"]))
            except RuntimeError as error:
                assert "Invalid structured content" in str(error), error
                print(tool.name, "refused")


asyncio.run(main())
PY
cat >client.mjs <<'JS'
const [version, validator] = process.argv.slice(2);
const name = version === '1' ? '@modelcontextprotocol/sdk/client' : '@modelcontextprotocol/client';
const { Client } = await import(version === '1' ? `${name}/index.js` : name);
const { StdioClientTransport } = await import(version === '1' ? `${name}/stdio.js` : `${name}/stdio`);
const options = {};
if (validator) {
  const { CfWorkerJsonSchemaValidator } = await import(`${name}/validators/cf-worker`);
  options.jsonSchemaValidator = new CfWorkerJsonSchemaValidator();
}
const client = new Client({ name: 'client', version: '1' }, options);
await client.connect(new StdioClientTransport({ command: 'v/bin/python', args: ['server.py'], stderr: 'ignore' }));
for (const tool of (await client.listTools()).tools) {
  let verdict = 'accepted';
  let value = '';
  try {
    const result = await client.callTool({ name: tool.name, arguments: {} });
    if (result.isError) throw new Error('the tool failed');
    value = JSON.stringify(result.structuredContent.value);
  } catch (error) {
    if (!/Structured content does not match/.test(error.message)) throw error;
    verdict = 'refused';
  }
  console.log(tool.name, verdict, value);
}
await client.close();
JS
v/bin/python client.py >python
node client.mjs 1 >first 2>log
node client.mjs 2 >second 2>log
node client.mjs 2 workers >workers 2>log
{
    printf '%-17s %-31s %-9s %-9s %-9s %s\n' tool result Python 'TS 1.32' 'TS 2.4' workers
    while read -r tool _; do
        row=("$(cat python workers | awk -v tool="$tool" '$1 == tool && $3 { print $3; exit }')")
        for file in python first second workers; do row+=("$(awk -v tool="$tool" '$1 == tool { print $2 }' $file)"); done
        printf '%-17s %-31s %-9s %-9s %-9s %s\n' "$tool" "${row[@]}"
    done <python
    echo "each tool ran $(sort ran | uniq -c | awk '{ print $1 }' | sort -u | xargs) times"
} | tee seen
diff seen - <<'TEXT'
tool              result                          Python    TS 1.32   TS 2.4    workers
date              "2026-11-30"                    accepted  accepted  accepted  accepted
with_zone         "2026-11-30T12:00:00Z"          accepted  accepted  accepted  accepted
without_zone      "2026-11-30T12:00:00"           accepted  refused   refused   refused
time              "09:00:00"                      accepted  refused   refused   accepted
an_hour           "PT1H"                          accepted  accepted  accepted  accepted
half_a_second     "PT0.5S"                        accepted  refused   refused   accepted
minute_ago        "-PT1M"                         accepted  refused   refused   refused
not_a_number                                      refused   refused   refused   refused
price             19.99                           refused   refused   refused   accepted
each tool ran 4 times
TEXT
