#!/usr/bin/env python3
"""Makes the changelog of the notes in docs/changes (docs/changes/README.md has their form).

    tests/changelog.py             prints what the notes say together
    tests/changelog.py --check     only reads them
    tests/changelog.py 1.2.3       writes them into CHANGELOG.md as a version of today, and removes them

Ends with 1 when a note is not as it has to be; then nothing is written. Standard library only.
"""

import datetime
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
KINDS = ["Added", "Changed", "Removed", "Fixed", "Security"]
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.md")
UNRELEASED = "## Unreleased\n"


def items_of(text):
    """The items of a note by heading. Raises `ValueError` with a line that says what is wrong with it."""
    found, kind = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            kind = line.removeprefix("## ")
            if kind not in KINDS:
                raise ValueError(f"line {number}: {line!r} is none of the headings: {', '.join('## ' + kind for kind in KINDS)}")
            found.setdefault(kind, [])
        elif line.startswith("- ") and kind:
            found[kind].append(line)
        elif line.startswith("  ") and kind and found[kind]:
            found[kind][-1] += "\n" + line
        elif line.strip():
            raise ValueError(f"line {number}: neither a heading nor a part of an item (`- …`): {line!r}")
    if empty := [kind for kind, items in found.items() if not items] or ([] if found else ["the note"]):
        raise ValueError(f"{empty[0]} has no item")
    return found


def notes(root):
    """The files of the notes, in order."""
    return sorted(path for path in (root / "docs" / "changes").iterdir() if path.name != "README.md")


def section(root):
    """What all notes say: the headings in their order, each with the items by the names of the files; and what is wrong."""
    items, wrong = {kind: [] for kind in KINDS}, []
    for path in notes(root):
        try:
            if not NAME.fullmatch(path.name):
                raise ValueError("a name has lower case, digits and hyphens, and ends in .md")
            for kind, of_kind in items_of(path.read_text(encoding="utf-8")).items():
                items[kind] += map(from_the_root, of_kind)
        except ValueError as why:
            wrong.append(f"{path.relative_to(root)}: {why}")
    parts = [f"### {kind}\n\n" + "\n".join(of_kind) + "\n" for kind, of_kind in items.items() if of_kind]
    return "\n".join(parts), wrong


def from_the_root(item):
    """An item whose links lead from CHANGELOG.md instead of from docs/changes.

    >>> from_the_root("- [a](../guide/a.md#b), [c](../../README.md), [d](https://example.com)")
    '- [a](docs/guide/a.md#b), [c](README.md), [d](https://example.com)'
    """
    return item.replace("](../../", "](").replace("](../", "](docs/")


def released(changelog, version, day, text):
    """The changelog with a version, which has the notes and what was not released before. Raises `ValueError` if it is there."""
    head, found, rest = changelog.partition(UNRELEASED)
    if not found or f"\n## {version} " in changelog:
        raise ValueError(f"CHANGELOG.md has no line {UNRELEASED.strip()!r}, or {version} already")
    return f"{head}{UNRELEASED}\n## {version} – {day}\n\n" + "\n".join(part for part in (text, rest.lstrip("\n")) if part)


def main(arguments, root=ROOT, day=None):
    text, wrong = section(root)
    version = next((argument for argument in arguments if not argument.startswith("--")), None)
    if version and not re.fullmatch(r"\d+\.\d+\.\d+", version):
        wrong.append(f"{version} is no version such as 1.2.3")
    if wrong or "--check" in arguments:
        pass
    elif version:
        changelog = root / "CHANGELOG.md"
        day = day or datetime.datetime.now(datetime.timezone.utc).date()
        try:
            changelog.write_text(released(changelog.read_text(encoding="utf-8"), version, day, text), encoding="utf-8")
        except ValueError as why:
            wrong.append(str(why))
        else:
            for path in notes(root):
                path.unlink()
    else:
        print(text or "docs/changes has no notes.")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
