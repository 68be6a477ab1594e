"""What `make test` would install here, and where; said before it installs anything. Standard library only."""

import os
import shutil

from gate import install
from gate.output import ROOT

# Packages of Python, each with its folder in build/.
PYTHON = {
    install.OPENAI: "clients",
    install.ANTHROPIC: "anthropic",
    install.LANGCHAIN: "langchain",
    install.WEBSOCKETS: "websocket",
    install.MCP: "mcp",
    install.SCHEMATHESIS: "schemathesis",
    install.KUBERNETES: "kubernetes",
    install.OTLP: "telemetry",
    install.GENERATOR: "generators",
}
# Folders that other steps fill: what they get.
FOLDERS = {
    "node": "Node",
    "console": "packages of Node for the console's tests",
    "typescript": "packages of Node for the TypeScript client",
    "generated": "packages of Node for generated clients",
    "editor": "packages of Node for the editor of the Agent Client Protocol",
    "service": "a small Debian or Ubuntu that is booted (root)",
    "image": "the base of the OCI image (root)",
}


def packages():
    """The packages of Debian and Ubuntu that are missing: installed ones, and those of which only a program is taken out."""
    system = {package for program, package in install.PROGRAMS.items() if install.which(program) is None}
    if not any(map(shutil.which, install.CHROMIUM)):
        system.add(install.CHROMIUM_PACKAGE)
    tools = (install.PROMTOOL, install.KUBECTL, *install.PROXIES.values())
    taken = {package for package, path in tools if not shutil.which(os.path.basename(path)) and not (ROOT / "build" / package / path).exists()}
    return sorted(system), sorted(taken)


def lines():
    """What will be installed, a line for each place; none if nothing is missing."""
    system, taken = packages()
    python = [package for package, folder in PYTHON.items() if not (ROOT / "build" / folder / package).exists()]
    wanted = [folder for folder in FOLDERS if not (ROOT / "build" / folder).exists()]
    folders = [f"build/{folder}: {FOLDERS[folder]}" for folder in wanted if folder != "node" or shutil.which("npm") is None]
    may = os.geteuid() == 0 and shutil.which("apt-get") is not None
    found = []
    if system and may:
        found.append(f"by apt-get, on this machine: {', '.join(system)}")
    elif system:
        found.append(f"not, since only root on Debian or Ubuntu can: {', '.join(system)}; the tests that need them are skipped or fail")
    if taken and shutil.which("apt-get"):
        found.append(f"into build/, out of packages of Debian: {', '.join(taken)}")
    if python:
        found.append(f"into build/, each with a Python environment: {', '.join(python)}")
    found += folders
    if not found:
        return []
    return ["To be installed (`make test QUICK=1` installs nothing; interrupt now if you do not want it):", *(f"  {line}" for line in found)]
