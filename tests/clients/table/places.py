"""Where the packages of a row are, which are installed first, below build/. Standard library only."""

import os
import shutil
import subprocess
import sys

from gate.install import DOWNLOADS, NODE, node_places, python_with
from gate.output import ROOT, say
from table.rows import FOLDER, HERE

PACKAGES = ROOT / "build" / FOLDER / "npm"
# No questions to people, and no reports to the makers.
QUIET = {
    "AIDER_ANALYTICS_DISABLE": "true",
    "AIDER_CHECK_UPDATE": "false",
    "AIDER_GIT": "false",
    "AIDER_SHOW_MODEL_WARNINGS": "false",
    "AIDER_YES_ALWAYS": "true",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}


# The largest client is 700 MB.
INSTALL_LIMIT_S = 1800


class Place:
    """Where a row runs: its interpreter, the folder of its scripts, and its PATH."""

    def __init__(self, interpreter, scripts, programs):
        self.interpreter, self.scripts, self.programs = str(interpreter), scripts, programs

    def environment(self, home, more):
        """Variables with a home of its own, and nothing of the caller's but what programs need."""
        kept = {key: value for key, value in os.environ.items() if key in ("TMPDIR", "LANG", "LC_ALL", "SSL_CERT_FILE")}
        path = os.pathsep.join([str(self.programs), os.environ.get("PATH", os.defpath)])
        return {**kept, **QUIET, "HOME": str(home), "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}


def place_of(row):
    """Installs what is missing. Raises when that cannot be done."""
    DOWNLOADS.limit_s = INSTALL_LIMIT_S
    if not row.script.endswith(".mjs"):
        python = python_with(row.requirements, row.folder)
        return Place(python, HERE, python.parent)
    python_with(NODE, "node")
    programs = node_places()[0]
    PACKAGES.mkdir(parents=True, exist_ok=True)
    install_packages(programs)
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, PACKAGES)
    return Place(programs / "node", PACKAGES, programs)


def install_packages(programs):
    """`npm ci` for the lock file, unless it was done."""
    lock = (HERE / "package-lock.json").read_bytes()
    stamp = PACKAGES / "installed-lock.json"
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    for file in ("package.json", "package-lock.json"):
        shutil.copy(HERE / file, PACKAGES)
    command = [str(programs / "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    say(f"$ npm ci   (in {PACKAGES.relative_to(ROOT)})")
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    status = DOWNLOADS.download(command, cwd=PACKAGES, env={**os.environ, "PATH": path}, stdout=sys.stderr)
    if status != 0:
        raise subprocess.CalledProcessError(status, command)
    stamp.write_bytes(lock)
