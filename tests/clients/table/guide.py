"""The lines of docs/guide/clients.md, by their marks. Standard library only.

A comment `<!-- MARK -->` stands on the line before a block of code, which configures the client and prints one answer for each of its rows.
"""

import re

from gate.output import ROOT

PAGE = ROOT / "docs" / "guide" / "clients.md"
BLOCK = re.compile(r"^<!-- ([a-z-]+) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN_URL, WRITTEN_KEY = "http://127.0.0.1:8787", "unused-without-a-token"


def blocks():
    """Mark → the language and the lines."""
    return {mark: (language, lines) for mark, language, lines in BLOCK.findall(PAGE.read_text(encoding="utf-8"))}


def lines_for(mark, url, token):
    """The language of a block, and its lines for this daemon."""
    language, lines = blocks()[mark]
    return language, lines.replace(WRITTEN_URL, url).replace(WRITTEN_KEY, token)
