#!/usr/bin/env python3
"""Checks what a real daemon gives to Prometheus, and what we ship for it.

    BELAY_BIN=target/debug/belay tests/metrics.py

Starts a daemon without a model, lets it answer, stops a run, and has promtool check the page of metrics, the alert rules and their tests.
Each metric that a rule or the dashboard names must be on the page or in the reference. The last line counts. Standard library only; needs
promtool, which the package prometheus of Debian and Ubuntu has.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
NAME = re.compile(r"\b(?:belay|process)_[a-z0-9_]+")
# What Prometheus adds to the name of a histogram.
PARTS = re.compile(r"_(bucket|count|sum)$")
LIMIT_S = 300
# Series that are computed when the page is read.
GAUGES = [
    *(f'belay_runs{{state="{state}"}}' for state in ("running", "queued", "paused")),
    "belay_oldest_waiting_message_seconds",
    "belay_open_reservations",
    "belay_open_reservations_usd",
    'belay_spent_today_usd{purpose="chat"}',
    "belay_model_up",
    "belay_disk_free_bytes",
    *(f'belay_troubles{{part="{part}"}}' for part in ("store", "disk", "model", "freeze", "channel", "sandbox")),
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_threads",
    "process_start_time_seconds",
    *(f'belay_store_size_bytes{{file="{file}"}}' for file in ("database", "wal")),
]

results = {"passed": 0, "failed": 0}


def check(name, is_fine, detail=""):
    results["passed" if is_fine else "failed"] += 1
    print(f"{'ok' if is_fine else 'FAILED'} {name}")
    if not is_fine and detail:
        print(detail)


def promtool(name, arguments, text=None):
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, cwd=DEPLOY / "prometheus")
    check(name, done.returncode == 0, done.stdout + done.stderr)


def post(address, path, body):
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.load(answer)


def page():
    """The metrics of a daemon that has answered a message, called a tool and stopped a run."""
    belay = pathlib.Path(os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")).resolve()
    with tempfile.TemporaryDirectory() as home:
        settings = ["llm.provider=rehearsal", "gateway.listen=127.0.0.1:0", "channels.stdin.enabled=false"]
        arguments = [argument for setting in settings for argument in ("--set", setting)]
        environment = {"HOME": home, "PATH": os.environ["PATH"], "XDG_STATE_HOME": f"{home}/state", "XDG_RUNTIME_DIR": home}
        daemon = subprocess.Popen(
            [str(belay), "run", *arguments], env=environment, cwd=home, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            address = None
            for line in daemon.stderr:
                match = re.search(r"127\.0\.0\.1:(\d+)", line)
                if match and match[1] != "0":
                    address = f"http://127.0.0.1:{match[1]}"
                    break
            if address is None:
                raise RuntimeError("the daemon has ended before it listened")
            until = time.monotonic() + LIMIT_S
            while True:
                try:
                    urllib.request.urlopen(f"{address}/readyz", timeout=LIMIT_S).close()
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)
            post(address, "/api/v1/messages", {"session": "metrics", "text": "calculate 6*7", "wait_ms": 30000})
            with urllib.request.urlopen(f"{address}/metrics", timeout=LIMIT_S) as answer:
                return answer.read().decode()
        finally:
            daemon.terminate()
            daemon.communicate(timeout=LIMIT_S)


def main():
    if shutil.which("promtool") is None:
        print("promtool is missing: it comes with the package prometheus of Debian and Ubuntu")
        missing_is_failure = os.environ.get("CI") == "true"
        print(f"0 passed, {int(missing_is_failure)} failed, {int(not missing_is_failure)} skipped")
        return int(missing_is_failure)
    text = page()
    promtool("promtool finds no fault in the page of metrics", ["check", "metrics"], text)
    promtool("promtool finds no fault in the alert rules", ["check", "rules", "alerts.yml"])
    promtool("each alert fires on its fault and not beside it", ["test", "rules", "alerts.test.yml"])
    shown = {PARTS.sub("", name) for name in NAME.findall(text)}
    for part in ("run_duration", "queue_wait", "model_call_duration", "model_first_token", "tool_call_duration", "store_commit_duration"):
        count = re.search(rf"^belay_{part}_seconds_count\S* ([1-9]\d*)$", text, re.MULTILINE)
        check(f"the histogram belay_{part}_seconds has counted", count is not None, text)
    for series in GAUGES:
        check(f"the series {series} is on the page", re.search(rf"^{re.escape(series)} [0-9.e+-]+$", text, re.MULTILINE) is not None, text)
    reference = set(NAME.findall((ROOT / "docs" / "reference" / "http-api.md").read_text()))
    check("each metric of the page is in the reference", shown <= reference, str(sorted(shown - reference)))
    for file in ("prometheus/alerts.yml", "grafana/belay.json"):
        used = {PARTS.sub("", name) for name in NAME.findall((DEPLOY / file).read_text())}
        check(f"each metric of deploy/{file} exists", bool(used) and used <= reference, str(sorted(used - reference)))
    dashboard = json.loads((DEPLOY / "grafana" / "belay.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
            rule = {"groups": [{"name": "panel", "rules": [{"record": "panel", "expr": expression}]}]}
            with tempfile.NamedTemporaryFile("w", suffix=".yml") as written:
                json.dump(rule, written)
                written.flush()
                promtool(f"the dashboard's panel \"{panel['title']}\" {target['refId']}", ["check", "rules", written.name])
    print(f"{results['passed']} passed, {results['failed']} failed, 0 skipped")
    return int(results["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
