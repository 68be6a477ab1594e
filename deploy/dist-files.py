#!/usr/bin/env python3
"""Writes a bill of materials and checksums for files that are given away: deploy/dist-files.py DIRECTORY

DIRECTORY gets `belay.cdx.json` (CycloneDX 1.5: every crate that is compiled into belay on this platform, from `cargo metadata` and
Cargo.lock) and `SHA256SUMS` of all its files, for `sha256sum --check`. Equal sources give equal files. Needs Python 3.11; standard library
only.

A script, because cargo-cyclonedx would have to be compiled first and reads the same metadata.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = "belay-daemon"


def metadata():
    """What cargo says of the crates for this platform."""
    cargo = os.environ.get("CARGO", "cargo")
    host = next(
        line.split()[1] for line in subprocess.check_output(["rustc", "-vV"], text=True).splitlines() if line.startswith("host:")
    )
    command = [cargo, "metadata", "--locked", "--format-version=1", f"--filter-platform={host}"]
    return json.loads(subprocess.check_output(command, cwd=ROOT))


def reached(found):
    """The ids of the crates that the program is built from, development dependencies left out."""
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    start = next(package["id"] for package in found["packages"] if package["name"] == PROGRAM)
    seen, waiting = {start}, [start]
    while waiting:
        for edge in nodes[waiting.pop()]["deps"]:
            if edge["pkg"] not in seen and any(kind["kind"] != "dev" for kind in edge["dep_kinds"]):
                seen.add(edge["pkg"])
                waiting.append(edge["pkg"])
    return start, seen, nodes


def reference(package):
    """The package URL of a crate."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, digests, kind="library"):
    """A crate as CycloneDX has it."""
    made = {"type": kind, "bom-ref": reference(package), "name": package["name"], "version": package["version"], "purl": reference(package)}
    if package.get("license"):
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if digest := digests.get((package["name"], package["version"])):
        made["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return made


def bill():
    """The bill of materials."""
    found = metadata()
    start, seen, nodes = reached(found)
    packages = {package["id"]: package for package in found["packages"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    digests = {(one["name"], one["version"]): one.get("checksum") for one in lock["package"]}
    order = sorted(seen, key=lambda name: reference(packages[name]))
    edges = {name: sorted({reference(packages[one]) for one in nodes[name]["dependencies"] if one in seen}) for name in order}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(packages[start], digests, "application")},
        "components": [component(packages[name], digests) for name in order if name != start],
        "dependencies": [{"ref": reference(packages[name]), "dependsOn": edges[name]} for name in order],
    }


def main(directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "belay.cdx.json").write_text(json.dumps(bill(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    sums = []
    for file in sorted(directory.iterdir()):
        if file.is_file() and file.name != "SHA256SUMS":
            with open(file, "rb") as opened:
                sums.append(f"{hashlib.file_digest(opened, 'sha256').hexdigest()}  {file.name}\n")
    (directory / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} DIRECTORY")
    main(sys.argv[1])
