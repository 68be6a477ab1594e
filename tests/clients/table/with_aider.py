"""The command aider, as the lines of the guide configure it."""

import json
import os
import pathlib

from columns import BASE, FAIL, LOOK, TOKEN, WORDS, column, read, report, saw
from commands import Running, printed, stops, streams
from samples import PDF, PICTURE, READ_PDF, READ_TEXT, TEXT

os.environ.update(OPENAI_API_BASE=BASE, OPENAI_API_KEY=TOKEN)
# By default aider writes instructions below each message, and the rehearsal takes `rehearse` for a message of its own alone.
pathlib.Path(".aider.model.settings.yml").write_text("- name: openai/belay\n  reminder: sys\n", encoding="utf-8")
# By default aider sends pictures and PDF to models alone that it knows.
KNOWN = {"openai/belay": {"litellm_provider": "openai", "mode": "chat", "supports_vision": True, "supports_pdf_input": True}}
pathlib.Path(".aider.model.metadata.json").write_text(json.dumps(KNOWN), encoding="utf-8")
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


def asked_about(*files):
    return printed([*AIDER, LOOK, *(word for file in files for word in ("--read", file))])


@column
def images():
    saw(asked_about(PICTURE))


@column
def files():
    """A PDF is a part of the form for pictures. A text file stands in a message."""
    read(asked_about(PDF, TEXT), READ_PDF, READ_TEXT)


report()
