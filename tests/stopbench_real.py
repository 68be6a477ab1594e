#!/usr/bin/env python3
"""Judges recordings of real agents by the stop rules of Belay and of other programs, and prints the table of docs/stopbench.md.

usage: stopbench_real.py --bin PROGRAM DIRECTORY [--ablation] [--failures] [--json]

DIRECTORY has loops/, healthy/ and successes/ with NNN.jsonl.gz, and labels.json: "loops/NNN" to its kind, its steps and, of a loop, the
onset: the step that repeats first. The runs are no part of the repository.
"""
import argparse
import collections
import gzip
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from stopbench_chart import chart

GROUPS = ("loops", "healthy", "successes")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--bin", required=True, help="the program belay-stopbench")
    parser.add_argument("--ablation", action="store_true", help="compare with Belay without each part of its analysis, not with other programs")
    parser.add_argument("--failures", action="store_true", help="name each missed loop and each healthy run that is struck")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def unpack(runs, labels, root):
    """Writes the runs, all labelled as healthy: then each strike is listed with its event."""
    for group in GROUPS:
        (root / group).mkdir()
        with open(root / group / "labels.jsonl", "w", encoding="utf8") as rows:
            for key in sorted(key for key in labels if key.startswith(group + "/")):
                (root / f"{key}.jsonl").write_bytes(gzip.decompress((runs / f"{key}.jsonl.gz").read_bytes()))
                rows.write(json.dumps({"file": key.split("/")[1] + ".jsonl", "label": "healthy"}) + "\n")


def judge(program, root, ablation):
    command = [program, str(root), "--json", "--mutations", "0"] + (["--without", "all"] if ablation else [])
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for one in json.loads(printed)["sets"]:
        yield one["name"], {failure["file"].removesuffix(".jsonl"): failure for failure in one["failures"]}


def calls(root, key):
    """The number of the line of each call."""
    with open(root / f"{key}.jsonl", encoding="utf8") as lines:
        return [at for at, line in enumerate(lines) if "tool" in json.loads(line)]


def works_later(root, key, at):
    """Whether a call after this event succeeded."""
    events = (root / f"{key}.jsonl").read_text(encoding="utf8").splitlines()[at + 1 :]
    return any(json.loads(event).get("tool_result", {}).get("ok") for event in events)


def row(name, strikes, labels, lines):
    """The figures of one rule set. Delay: calls from the onset to the strike; a strike more than one call before it is early."""
    found = [key for key in strikes if key.startswith("loops/")]
    by_loop = {key: sum(line <= strikes[key]["at_event"] for line in lines[key]) - 1 - labels[key]["onset_step"] for key in found}
    delays = sorted(by_loop.values())
    return {
        "rules": name,
        "loops": len(found),
        "early": sum(delay < -1 for delay in delays),
        "median": statistics.median_low(delays) if delays else None,
        "p90": delays[int(0.9 * len(delays))] if delays else None,
        "successes": sum(key.startswith("successes/") for key in strikes),
        "healthy": sum(key.startswith("healthy/") for key in strikes),
        "by rule": dict(collections.Counter(strikes[key]["rule"] for key in found).most_common()),
        "by kind": dict(collections.Counter(labels[key]["kind"] for key in found)),
        "found": sorted(found),
        "delays": by_loop,
        "missed": sorted(key for key in labels if key.startswith("loops/") and key not in strikes),
        "wrong": {key: strikes[key]["rule"] for key in strikes if not key.startswith("loops/")},
    }


def table(rows, sizes, kinds):
    share = lambda part, group: f"{100 * part / sizes[group]:.1f} % ({part}/{sizes[group]})"
    lines = ["| rule set | loops found | early | delay: median | p90 | successes struck | healthy failures struck |", "|---|---:|---:|---:|---:|---:|---:|"]
    for one in rows:
        cells = (one["rules"], share(one["loops"], "loops"), one["early"], one["median"], one["p90"], share(one["successes"], "successes"), share(one["healthy"], "healthy"))
        lines.append("| " + " | ".join("–" if cell is None else str(cell) for cell in cells) + " |")
    lines += ["", "| kind of loop | runs | " + " | ".join(one["rules"] for one in rows) + " |", "|---|---:|" + "---:|" * len(rows)]
    for kind, count in kinds.most_common():
        lines.append(f"| {kind} | {count} | " + " | ".join(str(one["by kind"].get(kind, 0)) for one in rows) + " |")
    ours = rows[0]["by rule"]
    return "\n".join(lines + ["", "Found by: " + ", ".join(f"{rule} {count}" for rule, count in ours.items())])


def effects(rows):
    """By part: what is found, and struck wrongly, only with it."""
    ours = rows[0]
    lines = ["", "| part | loops found only with it | successes struck only with it | healthy failures struck only with it |", "|---|---:|---:|---:|"]
    for one in rows[1:]:
        wrong = [key for key in ours["wrong"] if key not in one["wrong"]]
        struck = [str(sum(key.startswith(group) for key in wrong)) for group in ("successes/", "healthy/")]
        cells = [one["rules"].removeprefix("without "), str(len(set(ours["found"]) - set(one["found"]))), *struck]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    given = arguments()
    if not (given.directory / "labels.json").exists():
        sys.exit(f"{given.directory}: no labels.json, so there are no recorded runs to judge (RUNS= names their directory)")
    labels = json.loads((given.directory / "labels.json").read_text(encoding="utf8"))
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        unpack(given.directory, labels, root)
        lines = {key: calls(root, key) for key in labels if key.startswith("loops/")}
        sets = list(judge(given.bin, root, given.ablation))
        rows = [row(name, strikes, labels, lines) for name, strikes in sets]
        worked = {key: works_later(root, key, sets[0][1][key]["at_event"]) for key in rows[0]["wrong"]}
    if given.json:
        return print(json.dumps(rows, indent=2))
    sizes = collections.Counter(key.split("/")[0] for key in labels)
    kinds = collections.Counter(labels[key]["kind"] for key in labels if key.startswith("loops/"))
    print(table(rows, sizes, kinds))
    loops = [key for key in labels if key.startswith("loops/")]
    print("\n" + chart([(labels[key]["kind"], rows[0]["delays"].get(key)) for key in loops]))
    if given.ablation:
        print(effects(rows))
    if given.failures:
        print("\nmissed:", *(f"{key} ({labels[key]['kind']})" for key in rows[0]["missed"]), sep="\n  ")
        after = lambda key: "a later call succeeded" if worked[key] else "no later call succeeded"
        print("struck wrongly:", *(f"{key} ({rule}; {after(key)})" for key, rule in rows[0]["wrong"].items()), sep="\n  ")


if __name__ == "__main__":
    main()
