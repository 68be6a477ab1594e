#!/usr/bin/env python3
"""Draws the delays of the stop rules by kind of loop.

usage: stopbench_chart.py --bin PROGRAM [DIRECTORY]

DIRECTORY (tests/stopbench) has pathologies/ with NAME.jsonl and labels.jsonl: file, onset and family. PROGRAM is belay-stopbench.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

COLUMNS = (("early", None, -2), ("0", -1, 0), *((str(n), n, n) for n in range(1, 6)), ("6–10", 6, 10), ("11–20", 11, 20), ("more", 21, None))


def calls(file):
    """The number of the line of each call; of each step, if the run calls nothing."""
    events = [json.loads(line) for line in file.read_text(encoding="utf8").splitlines() if line.strip()]
    called = [at for at, event in enumerate(events) if "tool" in event]
    return called or [at for at, event in enumerate(events) if "turn" in event]


def chart(loops):
    """`loops`: kind and delay of each loop, in calls from its onset; None: it was missed."""
    kinds = {}
    for kind, delay in loops:
        kinds.setdefault(kind, []).append(delay)
    names = [name for name, _, _ in COLUMNS] + ["missed"]
    wide = max(map(len, kinds), default=0) + 2
    lines = ["loops by their delay in calls", " " * wide + "".join(f"{name:>7}" for name in names)]
    for kind, delays in [*sorted(kinds.items(), key=lambda one: -len(one[1])), ("all", [delay for _, delay in loops])]:
        inside = lambda least, most: sum(d is not None and (least is None or d >= least) and (most is None or d <= most) for d in delays)
        counts = [inside(least, most) for _, least, most in COLUMNS] + [delays.count(None)]
        lines.append(f"{kind:<{wide}}" + "".join(f"{count or '·':>7}" for count in counts))
    return "\n".join(lines)


def of_set(program, directory):
    """The kind and the delay of each pathology of a set. All are judged as healthy, so that each strike is listed."""
    rows = [json.loads(line) for line in (directory / "pathologies/labels.jsonl").read_text(encoding="utf8").splitlines() if line.strip()]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for row in rows:
            (root / row["file"]).write_bytes((directory / "pathologies" / row["file"]).read_bytes())
        (root / "labels.jsonl").write_text("".join(json.dumps({"file": row["file"], "label": "healthy"}) + "\n" for row in rows))
        printed = subprocess.run([program, folder, "--json", "--mutations", "0"], check=True, capture_output=True, text=True).stdout
        strikes = {failure["file"]: failure["at_event"] for failure in json.loads(printed)["sets"][0]["failures"]}
        for row in rows:
            at, places = strikes.get(row["file"]), calls(root / row["file"])
            before = lambda event: sum(place <= event for place in places)
            yield row["family"], None if at is None else before(at) - before(row["onset"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", required=True, help="the program belay-stopbench")
    parser.add_argument("directory", type=pathlib.Path, nargs="?", default=pathlib.Path("tests/stopbench"))
    given = parser.parse_args()
    print(chart(list(of_set(given.bin, given.directory))))


if __name__ == "__main__":
    sys.exit(main())
