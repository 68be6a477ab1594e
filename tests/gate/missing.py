"""Names what `make test` would install here, where, and how large it is, before it installs anything. Standard library only."""

import os
import re
import shutil
import subprocess

from gate import install
from gate.output import CI, ROOT

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
    "oauth": "packages of Node for a login server",
    "mcp_tasks_server": "packages of Node for an MCP server with tasks",
    "service": "a small Debian or Ubuntu that is booted",
    "image": "the base of the OCI image",
}
# Folders that only root on Debian or Ubuntu can fill.
OF_ROOT = {"service", "image"}
# Megabytes of the folders of build/ after every suite has run in a clone without them, by `du -sm build/*` in November
# 2026. Others were not measured.
SIZES = {
    "clients": 154,
    "anthropic": 79,
    "langchain": 144,
    "websocket": 27,
    "mcp": 70,
    "schemathesis": 94,
    "kubernetes": 144,
    "telemetry": 29,
    "generators": 84,
    "prometheus": 95,
    "nginx": 2,
    "caddy": 36,
    "ngircd": 1,
    "libident": 1,
    "console": 18,
    "typescript": 48,
    "generated": 38,
    "editor": 18,
    "oauth": 4,
    "mcp_tasks_server": 32,
    "service": 195,
    "image": 200,
}
# Seconds for apt-get to say what it would download. It asks no server for that.
ASK_LIMIT_S = 30


def packages():
    """The missing packages of Debian and Ubuntu: those to install, and those of which only a program is taken out."""
    system = {package for program, package in install.PROGRAMS.items() if install.which(program) is None}
    if not any(map(shutil.which, install.CHROMIUM)):
        system.add(install.CHROMIUM_PACKAGE)
    tools = (install.PROMTOOL, install.KUBECTL, *install.PROXIES.values(), install.NGIRCD, install.LIBIDENT)
    taken = {package for package, path in tools if not shutil.which(os.path.basename(path)) and not (ROOT / "build" / package / path).exists()}
    return sorted(system), sorted(taken)


def size(folders):
    """About how many megabytes these folders of build/ get: "1,234 MB". Empty where none of them was measured."""
    known = [SIZES[folder] for folder in folders if folder in SIZES]
    more = "" if len(known) == len(list(folders)) else "more than "
    return f"{more}{sum(known):,} MB" if known else ""


def to_download(system):
    """The download of these packages and of those that they need: "123 MB to download". Empty if apt-get knows none of them."""
    command = ["apt-get", "--print-uris", "-qq", "--yes", "--no-install-recommends", "install", *system]
    try:
        printed = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=ASK_LIMIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    # 'http://…' name_version.deb 12345 MD5Sum:…
    bytes_of = [int(count) for count in re.findall(r"^'[^']*' \S+ (\d+) ", printed, re.MULTILINE)]
    return f"{-(-sum(bytes_of) // 1_000_000):,} MB to download" if bytes_of else ""


def with_size(what, measured):
    """A place, with the size of what it gets where that is known."""
    return f"{what} ({measured})" if measured else what


def lines():
    """A line for each place that gets something, and one for what cannot be installed; none if nothing is missing.

    In continuous integration each line stands for itself, and one names all of build/.
    """
    system, taken = packages()
    has_apt_get = shutil.which("apt-get") is not None
    is_root = os.geteuid() == 0 and has_apt_get
    python = {package: folder for package, folder in PYTHON.items() if not (ROOT / "build" / folder / package).exists()}
    folders = missing_folders(is_root)
    taken = taken if has_apt_get else []
    found, impossible = [], []
    if system and is_root:
        found.append(f"{with_size('by apt-get, on this machine', to_download(system))}: {', '.join(system)}")
    elif system:
        impossible.append(f"missing, and only root on Debian or Ubuntu installs them: {', '.join(system)}; the tests that need them are skipped or fail")
    everything = [*taken, *python.values(), *folders]
    if everything and CI:
        found.append(f"{with_size('into build/', size(everything))}: {', '.join(everything)}")
    elif everything:
        found += of_build(taken, python, folders)
    if CI:
        return [*(f"to be installed {line}" for line in found), *impossible]
    total = f", {size(everything)} of it in build/" if size(everything) else ""
    title = [f"To be installed{total} (`make test QUICK=1` installs nothing):"] if found else []
    return [*title, *(f"  {line}" for line in found), *impossible]


def missing_folders(is_root):
    """The folders that other steps fill here and that are not there. Those of root never appear for another user."""
    wanted = [folder for folder in FOLDERS if is_root or folder not in OF_ROOT]
    there = {folder for folder in wanted if (ROOT / "build" / folder).exists()}
    return [folder for folder in wanted if folder not in there and (folder != "node" or shutil.which("npm") is None)]


def of_build(taken, python, folders):
    """A line for each kind of what build/ gets."""
    if taken:
        yield f"{with_size('into build/, out of packages of Debian', size(taken))}: {', '.join(taken)}"
    if python:
        yield f"{with_size('into build/, each with a Python environment', size(python.values()))}: {', '.join(python)}"
    for folder in folders:
        yield f"{with_size(f'build/{folder}', size([folder]))}: {FOLDERS[folder]}"
