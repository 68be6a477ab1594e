#!/usr/bin/env python3
"""Prints the processor time of the daemon for a chat completion with 36 tools of its client, beside that of one without.

    tests/clients/tools_time.py --belay target/release/belay

The rounds of both take turns, and the median of their ratios counts, because other work on the machine changes both. Linux, standard
library only.
"""

import argparse
import http.client
import json
import os
import pathlib
import statistics
import sys

sys.path[:1] = [str(pathlib.Path(__file__).resolve().parents[at]) for at in (0, 1)]
from belay_process import Belay  # noqa: E402
from webui.model import Model  # noqa: E402

# As many as Open WebUI 0.12.4 sends with each chat (recorded), and about as large: 18 KB.
FUNCTIONS = 36
WARM_UP, REQUESTS, ROUNDS = 20, 100, 7
MARK = 1.3


def function(number):
    fields = {name: {"type": "string", "description": f"The {name} that the function works with, as text."} for name in ("query", "knowledge")}
    parameters = {"type": "object", "properties": {**fields, "count": {"type": "integer", "default": 5}}, "required": ["query"]}
    words = f"Search the notes, files and earlier chats of kind {number}, and return the best matches with their ids."
    return {"type": "function", "function": {"name": f"search_{number}", "description": words, "parameters": parameters}}


def used_s(pid):
    """Source: Linux, proc_pid_stat(5): user and system time in ticks. The name of the process may contain anything."""
    times = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def chats(connection, tools, requests):
    body = json.dumps({"model": "belay", "messages": [{"role": "user", "content": "hello"}], "tools": tools})
    for _ in range(requests):
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"HTTP {answer.status}: {text[:300]}")


def main(binary):
    model = Model()
    settings = {"llm.provider": "openai", "llm.base_url": f"{model.url}/v1", "llm.model": "scripted"}
    lists = [[], [function(number) for number in range(FUNCTIONS)]]
    ratios = []
    with Belay(binary, settings) as belay:
        connection = http.client.HTTPConnection(belay.url.removeprefix("http://"))
        for tools in lists:
            chats(connection, tools, WARM_UP)
        for _ in range(ROUNDS):
            took = []
            for tools in lists:
                before = used_s(belay.process.pid)
                chats(connection, tools, REQUESTS)
                took.append((used_s(belay.process.pid) - before) * 1000 / REQUESTS)
            ratios.append(took[1] / took[0])
            print(f"without {took[0]:.2f} ms, with {FUNCTIONS} tools {took[1]:.2f} ms: {ratios[-1]:.2f}", flush=True)
    model.close()
    print(f"{statistics.median(ratios):.2f} in the median (mark: at most {MARK})")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--belay", default="target/release/belay", help="the program")
    main(arguments.parse_args().belay)
