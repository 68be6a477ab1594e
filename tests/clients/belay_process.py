"""The belay binary as a child process, for scripts. Standard library only."""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import traceback

READY = re.compile(r"ready on (http://[0-9.:]+)")
READY_LIMIT_S = 300
END_LIMIT_S = 300


class Failure(Exception):
    """Something is not as it should be; the text says what."""


class Belay:
    """One daemon's home: a directory of its own, settings, and nothing of the caller's environment.

    Use it with `with`: at the end the daemon has ended and the directory is gone.
    """

    def __init__(self, binary, settings, secrets=None):
        self.binary = str(pathlib.Path(binary).resolve())
        self.settings = {"gateway.listen": "127.0.0.1:0", "channels.stdin.enabled": "false", **settings}
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="belay-"))
        self.secrets = secrets or {}
        self.log = collections.deque(maxlen=200)
        self.process = None
        self.url = None

    def environment(self):
        kept = {key: os.environ[key] for key in ("PATH", "TMPDIR", "RUST_BACKTRACE") if key in os.environ}
        home = str(self.home)
        own = {"HOME": home, "XDG_DATA_HOME": home + "/data", "XDG_CONFIG_HOME": home + "/config", "XDG_RUNTIME_DIR": home}
        return {**kept, **own, **self.secrets}

    def command(self, *arguments):
        sets = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        return [self.binary, *arguments, *sets]

    def run_with_input(self, text, timeout_s):
        """Starts the daemon with `text` as its standard input and lets it run to its end. Returns its output."""
        self.settings["channels.stdin.enabled"] = "true"
        with subprocess.Popen(
            self.command("run"), env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                output, log = process.communicate(text, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                _, log = process.communicate()
                raise Failure(f"the daemon did not end within {timeout_s} s:\n{log}") from None
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise Failure(f"the daemon ended with {process.returncode}:\n{log}")
        return output

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command("run"), env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        ready = threading.Event()
        threading.Thread(target=self.read_log, args=(ready,), daemon=True).start()
        if not ready.wait(READY_LIMIT_S) or self.url is None:
            self.stop()
            raise Failure("the daemon is not ready:\n" + "".join(self.log))
        return self

    def read_log(self, ready):
        """Reads until the daemon ends, so that it never waits for us."""
        for line in self.process.stderr:
            self.log.append(line)
            if self.url is None and (found := READY.search(line)):
                self.url = found[1]
                ready.set()
        ready.set()

    def stop(self):
        """Asks the daemon to end, and kills it when it does not. Its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failure(f"the daemon had to be killed:\n{''.join(self.log)}") from None
        finally:
            self.remove()

    def remove(self):
        shutil.rmtree(self.home, ignore_errors=True)

    def __exit__(self, *_):
        self.stop()


def until(what, condition, limit_s):
    """Waits until `condition()` is something, and returns it."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise Failure(f"{what}: not within {limit_s} s")


def judge(binary, secrets, tests, prepare):
    """Runs each test with what `prepare` makes of a running daemon, a stand-in for a model in it, prints a line for each and the sums, and returns
    the exit status."""
    passed = failed = 0
    with Belay(binary, {"llm.provider": "rehearsal"}, secrets) as belay:
        for function in tests:
            name, begin = function.__name__.replace("_", " "), time.monotonic()
            try:
                function(prepare(belay))
                passed += 1
                print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            except Exception:  # a test may fail in any way; the next one runs all the same
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        status = belay.stop()
        if status != 0:
            failed += 1
            print(f"FAILED the daemon ended with {status}\n{''.join(belay.log)}", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0
