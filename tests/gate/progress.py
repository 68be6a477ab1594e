"""On a terminal: one line that names the work in progress and its time. Elsewhere it prints nothing. Standard library only."""

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
    end = "..."[: max(columns, 0)]
    return text if len(text) <= columns else text[: max(columns - len(end), 0)] + end


def on_a_terminal():
    """Whether a line can be drawn again."""
    return sys.stdout.isatty() and (os.environ.get("TERM") or "dumb") != "dumb" and os.environ.get("CI") != "true"


def escaped(text):
    """A text in which the characters that the output cannot show are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def write(text):
    """Writes a text at once, and never raises: a character that the output cannot show is escaped."""
    # The output may be closed, full or gone. Then the exit status still says how the work ended.
    with contextlib.suppress(OSError, ValueError):
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:
            sys.stdout.write(escaped(text))
        sys.stdout.flush()


class Progress:
    """The work that is being done, the oldest first. The line is drawn below what `say` prints, which goes above it."""

    def __init__(self, now=time.monotonic):
        self.now = now
        self.lock = threading.Lock()
        self.works = {}
        self.hiding = 0
        # Whether a line stands where the cursor is.
        self.is_drawn = False
        # Draws the line each second while there is work, until its event is set.
        self.ticking = None
        self.ended = threading.Event()

    def say(self, line):
        """Prints a line. It replaces the line of a program that draws one while ours is hidden, and that draws it again."""
        with self.lock:
            clear = CLEAR if self.is_drawn or (self.hiding and on_a_terminal()) else ""
            write(f"{clear}{line}\n{self.drawn()}")

    @contextlib.contextmanager
    def doing(self, what):
        """Shows a piece of work while it is done."""
        key = object()
        try:
            with self.lock:
                self.works[key] = (what, self.now())
                self.redraw()
                self.begin_to_tick()
            yield
        finally:
            with self.lock:
                self.works.pop(key, None)
                self.redraw()
                if not self.works:
                    self.end_ticking()

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
        """Ends the drawing of all work that is in progress."""
        with self.lock:
            self.works.clear()
            self.redraw()
            ticking = self.end_ticking()
        if ticking:
            ticking.join()

    def begin_to_tick(self):
        if self.ticking is None and on_a_terminal():
            self.ended = threading.Event()
            self.ticking = threading.Thread(target=self.tick, args=(self.ended,), daemon=True)
            self.ticking.start()

    def end_ticking(self):
        """Has the thread end, and returns it."""
        self.ended.set()
        ticking, self.ticking = self.ticking, None
        return ticking

    def tick(self, ended):
        while not ended.wait(EVERY_S):
            with self.lock:
                self.redraw()

    def redraw(self):
        """Draws the line again. Where none is drawn, the cursor's line belongs to another program, and stays."""
        if text := (CLEAR if self.is_drawn else "") + self.drawn():
            write(text)

    def drawn(self):
        """The text of the line, which leaves the cursor at its beginning: what other programs print replaces it."""
        self.is_drawn = bool(self.works) and not self.hiding and on_a_terminal()
        if not self.is_drawn:
            return ""
        now = self.now()
        line = ", ".join(f"{clock(now - begin)} {cut(escaped(what), WIDEST)}" for what, begin in self.works.values())
        return cut(f"  {line}", shutil.get_terminal_size().columns - 1) + "\r"


PROGRESS = Progress()
