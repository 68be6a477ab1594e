#!/usr/bin/env python3
"""Does the feedback of a strike help? A small local model in ten scripted loops: with the feedback, with the former one, without.

    tests/feedback/feedback.py --belay target/debug/belay --model http://127.0.0.1:8080/v1 [--seeds 8] [--minutes 30] [--log FILE]

Each run is a run of the real daemon with tools of a scripted environment (worlds.py). The model's part is scripted until a stop rule
strikes. Then the local model replies, at most twice. Counted are runs in which one of its replies **leaves** the loop (a call with a result
that the loop did not give, or an answer in text), and runs that **reach** the call that solves the environment. The seeds are the
same in each arm. Says with each share the interval of Wilson (95 %). Outside of the tests: its figures depend on the model. Standard library only.
"""

import argparse
import json
import math
import pathlib
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from belay_process import Belay, Failure  # noqa: E402

from servers import Model, Tools  # noqa: E402
from worlds import WORLDS  # noqa: E402

ARMS = ("none", "former", "new")
RUN_LIMIT_S = 600


def settings(model, tools):
    rule = '[{ tool = "mcp_world_*", ask = "never", allow_untrusted = true }]'
    return {
        "llm.provider": "openai", "llm.base_url": model.url + "/v1", "llm.model": model.name,
        "llm.context_tokens": 8192, "tools.mcp": f'{{ world = {{ url = "{tools.url}", approval = "never" }} }}', "approvals.rules": rule,
        "agent.system_prompt": "You solve a task with tools.", "agent.max_tool_iterations": 60, "limits.active_s": RUN_LIMIT_S, "telemetry.log": "error",
    }


def post(url, body):
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=RUN_LIMIT_S) as answer:
        return json.load(answer)


def wilson(hits, runs):
    """The interval of a share, in percent."""
    if runs == 0:
        return "–"
    z, share = 1.96, hits / runs
    middle, half = share + z * z / (2 * runs), z * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    low, high = (middle - half) / (1 + z * z / runs), (middle + half) / (1 + z * z / runs)
    return f"{100 * share:.0f} % ({100 * max(low, 0):.0f}–{100 * min(high, 1):.0f})"


def outcome(world, model):
    """Whether the replies of the real model left the loop, and whether one was the call that solves the environment."""
    calls = world.calls[-sum("name" in reply for reply in model.replies):] if any("name" in r for r in model.replies) else []
    news = any(text not in model.known for _, _, text in calls)
    return news or any("answer" in reply for reply in model.replies), any(name == world.goal for name, _, _ in calls)


def play(world, arms, options, note):
    """Runs one environment with one seed in each arm."""
    with Tools(world) as tools, Model(world, options.model, options.name, options.steps, options.temperature) as model:
        with Belay(options.belay, settings(model, tools)) as belay:
            for seed in arms["seeds"]:
                for arm in ARMS:
                    model.begin(arm, seed)
                    body = {"session": f"{arm}-{seed}", "text": world.task, "wait_ms": RUN_LIMIT_S * 1000}
                    run = post(f"{belay.url}/api/v1/messages", body)
                    if model.notice is None:
                        raise Failure(f"{world.name}: no strike in {model.scripted} calls ({len(world.calls)} executed): {run.get('reason')}")
                    left, reached = outcome(world, model)
                    note({
                        "world": world.name, "arm": arm, "seed": seed, "left": left, "reached": reached, "scripted": model.scripted,
                        "notice": model.notice, "replies": model.replies, "reason": run.get("reason"),
                    })


def table(rows, options):
    """The table in Markdown."""
    lines = [f"| environment | {' | '.join(f'{arm}: leaves' for arm in ARMS)} | {' | '.join(f'{arm}: reaches' for arm in ARMS)} |"]
    lines.append("|---|" + "---:|" * 6)

    def cell(found, arm, key):
        found = [row for row in found if row["arm"] == arm]
        return f"{sum(row[key] for row in found)}/{len(found)}"

    for world in WORLDS:
        found = [row for row in rows if row["world"] == world.name]
        if found:
            cells = [cell(found, arm, key) for key in ("left", "reached") for arm in ARMS]
            lines.append(f"| {world.name.replace('_', ' ')} | {' | '.join(cells)} |")
    total = []
    for key in ("left", "reached"):
        for arm in ARMS:
            found = [row[key] for row in rows if row["arm"] == arm]
            total.append(wilson(sum(found), len(found)))
    lines.append(f"| **all**, 95 % interval | {' | '.join(total)} |")
    seeds = len({row["seed"] for row in rows})
    head = f"{options.name}, temperature {options.temperature}, {seeds} seeds in each environment and arm, at most {options.steps} replies after the strike; {len(rows)} runs."
    return head + "\n\n" + "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="Measures whether the feedback of a strike helps a local model.")
    parser.add_argument("--belay", required=True, help="the daemon's binary")
    parser.add_argument("--model", default="http://127.0.0.1:8080/v1", help="base URL of an OpenAI-compatible server")
    parser.add_argument("--name", default="smollm2-135m-instruct", help="the model's name")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="replies of the model after a strike")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--minutes", type=float, default=60, help="no environment begins later")
    parser.add_argument("--only", help="one environment")
    parser.add_argument("--log", type=pathlib.Path, help="a file for one JSON line for each run")
    options = parser.parse_args()
    rows, end = [], time.monotonic() + 60 * options.minutes

    def note(row):
        rows.append(row)
        if options.log:
            with options.log.open("a") as log:
                log.write(json.dumps(row) + "\n")

    # Two seeds of each environment at a time: whatever the time allows, the environments have about as many runs each.
    try:
        for first in range(1, options.seeds + 1, 2):
            for world in (world for world in WORLDS if options.only in (None, world.name)):
                if time.monotonic() < end:
                    play(world, {"seeds": range(first, min(first + 2, options.seeds + 1))}, options, note)
    except (Failure, OSError) as why:
        print(f"feedback: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    print(table(rows, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
