"""On a terminal: one line that says what is being done, and for how long. Elsewhere it prints nothing. Standard library only."""

import contextlib
import os
import shutil
import sys
import threading
import time

# Begins the line of the cursor anew.
CLEAR = "\r\x1b[K"
# Seconds between two drawings.
EVERY_S = 1.0
# Columns that a piece of work gets.
WIDEST = 36


def clock(seconds):
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def cut(text, columns):
    """A text of at most so many columns."""
    return text if len(text) <= columns else f"{text[: columns - 1]}…"


def on_a_terminal():
    """Whether a line can be drawn again."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and os.environ.get("CI") != "true"


class Progress:
    """The work that is being done, the oldest first. The line is drawn below what `say` prints, which goes above it."""

    def __init__(self, now=time.monotonic):
        self.now = now
        self.lock = threading.Lock()
        self.works = {}
        self.hiding = 0
        self.ended = threading.Event()
        self.ticking = None

    def say(self, line):
        """Prints a line."""
        with self.lock:
            sys.stdout.write(f"{CLEAR if on_a_terminal() else ''}{line}\n")
            self.draw()
            sys.stdout.flush()

    @contextlib.contextmanager
    def doing(self, what):
        """Shows a piece of work while it is done."""
        key = object()
        with self.lock:
            self.works[key] = (what, self.now())
            self.redraw()
            if on_a_terminal() and self.ticking is None:
                self.ticking = threading.Thread(target=self.tick, daemon=True)
                self.ticking.start()
        try:
            yield
        finally:
            with self.lock:
                del self.works[key]
                self.redraw()

    @contextlib.contextmanager
    def hidden(self):
        """Shows nothing while a program draws a line of its own, as cargo does where its errors go to a terminal."""
        mine = int(sys.stderr.isatty())
        with self.lock:
            self.hiding += mine
            self.redraw()
        try:
            yield
        finally:
            with self.lock:
                self.hiding -= mine
                self.redraw()

    def end(self):
        """Ends the drawing for good."""
        self.ended.set()
        if self.ticking:
            self.ticking.join()

    def tick(self):
        while not self.ended.wait(EVERY_S):
            with self.lock:
                self.redraw()

    def redraw(self):
        if on_a_terminal() and not self.hiding:
            sys.stdout.write(CLEAR)
            self.draw()
            sys.stdout.flush()

    def draw(self):
        """Draws the line, and leaves the cursor at its beginning: what other programs print replaces it."""
        if self.works and not self.hiding and on_a_terminal():
            now = self.now()
            line = ", ".join(f"{clock(now - begin)} {cut(what, WIDEST)}" for what, begin in self.works.values())
            sys.stdout.write(cut(f"  {line}", shutil.get_terminal_size().columns - 1) + "\r")


PROGRESS = Progress()
