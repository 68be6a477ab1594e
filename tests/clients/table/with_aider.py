"""The command aider, as the lines of the guide configure it."""

import os
import pathlib

from columns import BASE, FAIL, TOKEN, WORDS, column, report
from commands import Running, stops, streams

os.environ.update(OPENAI_API_BASE=BASE, OPENAI_API_KEY=TOKEN)
# By default aider writes instructions below each message, and the rehearsal takes `rehearse` for a message of its own alone.
pathlib.Path(".aider.model.settings.yml").write_text("- name: openai/belay\n  reminder: sys\n", encoding="utf-8")
AIDER = ["aider", "--model", "openai/belay", "--no-pretty", "--message"]


@column
def stop():
    stops(AIDER)


@column
def stream():
    streams(AIDER)


@column
def error():
    """Judged by its text alone, because aider repeats each error of a stream for a minute (docs/reference/clients.md)."""
    with Running([*AIDER, FAIL]) as running:
        running.shows(WORDS)


report()
