#!/usr/bin/env python3
"""Which tools a real model chooses for the requests of the tool-choice suite, by the system prompt and the tools that Belay sends.

    tests/toolchoice/main.py --belay target/debug/belay [--against BINARY] [--url URL] [--json] [--save]

Takes the prompt and the tools from the first request of a daemon to a stand-in for a model, and sends them with each request of
`requests.jsonl` to the model at --url or $REAL_LLM_URL (`make local-model` starts a small one). Compares with the prompt of another
binary, or else with the recorded result, `recorded.json`, which --save writes.

A request with a right tool is asked with `tool_choice` "required" and with the template argument `tool_first`: a small model
answers otherwise with text. One without is asked with "auto". `find_tools` is right for a deferred tool. The figures depend on the model: those of
one with 135 million parameters say only whether a prompt is worse than another one.

Standard library only. Every process that it starts is gone afterwards.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "clients"), str(HERE.parent / "feedback")]
from belay_process import Belay, Failure  # noqa: E402
from servers import Server  # noqa: E402

RECORDED = HERE / "recorded.json"
ANSWER_LIMIT_S = 300
FIND_TOOLS = "find_tools"
# Enough for the name of a tool; the arguments are not judged.
MAX_TOKENS = 48
NO_MODEL = 69


class StandIn(Server):
    """A model that keeps the first request."""

    request = None

    def post(self, body):
        self.request = self.request or body
        message = {"role": "assistant", "content": "hi"}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}


def exchange(url, body, limit_s=ANSWER_LIMIT_S):
    data = json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=limit_s) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise Failure(f"{url}: HTTP {error.code}: {error.read().decode(errors='replace')}") from None
    except OSError as error:
        raise Failure(f"{url}: {error}") from None


def offer_of(binary):
    """What a daemon with the default settings sends with the first message of a conversation."""
    with StandIn() as model:
        settings = {"llm.provider": '"openai"', "llm.base_url": f'"{model.url}/v1"', "llm.model": '"stand-in"'}
        with Belay(binary, settings) as belay:
            exchange(f"{belay.url}/api/v1/messages", {"session": "first", "text": "hi", "wait_ms": 60_000})
        if not model.request:
            raise Failure("the daemon has not asked the model")
        return model.request


def size(value):
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


class Offer:
    """The prompt and the tools of a binary."""

    def __init__(self, binary):
        request = offer_of(binary)
        self.prompt, self.tools = request["messages"][0], request["tools"]
        self.bytes = {"request": size(request), "tools": size(self.tools), "prompt": size(self.prompt["content"])}
        descriptions = {tool["function"]["name"]: tool["function"]["description"] for tool in self.tools}
        self.deferred = set(re.findall(r"\w+", descriptions.get(FIND_TOOLS, "").partition(": ")[2]))

    def ask(self, url, case):
        """What the model does for a case."""
        forced = {"tool_choice": "required", "parallel_tool_calls": False, "chat_template_kwargs": {"tool_first": True}}
        body = {
            "messages": [self.prompt, {"role": "user", "content": case["text"]}],
            "tools": self.tools,
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
            **(forced if case["tool"] else {"tool_choice": "auto"}),
        }
        answer = exchange(f"{url}/chat/completions", body)
        calls = answer["choices"][0]["message"].get("tool_calls") or []
        chosen = calls[0]["function"]["name"] if calls else None
        found = chosen == FIND_TOOLS and case["tool"] in self.deferred
        usage = answer.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return {**case, "chosen": chosen, "right": found or chosen == case["tool"], "prompt_tokens": usage.get("prompt_tokens"), "cached": cached}


def measure(binary, url, cases, show):
    """The result of a binary: a row for each case, the bytes, and the sums."""
    offer, rows = Offer(binary), []
    for case in cases:
        rows.append(offer.ask(url, case))
        show(rows[-1])
    return {"bytes": offer.bytes, "sums": sums(rows), "rows": rows}


def sums(rows):
    def of(some):
        return {"right": sum(row["right"] for row in some), "all": len(some)}

    read = [row for row in rows[1:] if row["cached"] is not None and row["prompt_tokens"]]
    cached = round(100 * sum(row["cached"] for row in read) / sum(row["prompt_tokens"] for row in read)) if read else None
    with_tool = [row for row in rows if row["tool"]]
    return {"with a tool": of(with_tool), "without one": of([row for row in rows if not row["tool"]]), "percent of prompt tokens cached": cached}


def line(row):
    return f"{'right' if row['right'] else 'WRONG'}  {row['tool'] or '-':15} {row['chosen'] or '-':15} {row['text']}"


def report(name, result):
    parts = [f"{found['right']} of {found['all']} {kind}" for kind, found in result["sums"].items() if isinstance(found, dict)]
    cached = result["sums"]["percent of prompt tokens cached"]
    tokens = "" if cached is None else f"; {cached} % of the prompt's tokens were in the server's cache"
    return f"{name}: right for {', for '.join(parts)}; {result['bytes']['request']} bytes of request{tokens}"


def other(arguments, url, cases):
    """The result to compare with, and its name."""
    if arguments.against:
        return arguments.against, measure(arguments.against, url, cases, lambda _: None)
    if RECORDED.exists():
        return "recorded", json.loads(RECORDED.read_text())
    return None, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--belay", required=True)
    parser.add_argument("--against", help="another binary")
    parser.add_argument("--url", default=os.environ.get("REAL_LLM_URL"), help="of the model, with its /v1")
    parser.add_argument("--every", type=int, default=1, help="asks every Nth request only, on a slow machine")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true", help=f"write {RECORDED.name}")
    arguments = parser.parse_args()
    if not arguments.url:
        print("REAL_LLM_URL is not set: start a model (make local-model), and set it to http://127.0.0.1:8080/v1", file=sys.stderr)
        return NO_MODEL
    url = arguments.url.rstrip("/")
    cases = [json.loads(text) for text in (HERE / "requests.jsonl").read_text().splitlines()][:: arguments.every]
    try:
        result = measure(arguments.belay, url, cases, lambda row: None if arguments.json else print(line(row), flush=True))
        name, before = other(arguments, url, cases)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    if arguments.save:
        kept = [{key: row[key] for key in ("text", "tool", "chosen", "right")} for row in result["rows"]]
        RECORDED.write_text(json.dumps({**result, "rows": kept}, indent=1, ensure_ascii=False) + "\n")
    if arguments.json:
        print(json.dumps({"now": result, "before": before, "before_is": name}, indent=2, ensure_ascii=False))
        return 0
    print(report("now", result))
    if before:
        print(report(name, before))
        was = {row["text"]: row["right"] for row in before["rows"]}
        changed = [row for row in result["rows"] if was.get(row["text"], row["right"]) != row["right"]]
        print("\n".join(["changed:", *map(line, changed)]) if changed else "no request has changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
