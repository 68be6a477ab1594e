#!/usr/bin/env python3
"""Checks `make static`, and the static binary if there is one: tests/packages/static.py

A static build compiles everything a second time, so this suite builds nothing. It checks the command that `make static` would run. The
newest binary in target/*-linux-{gnu,musl}/ is run: it must be static, print its version, accept its settings, and answer by the built-in
stand-in for a model, with a command in the sandbox. $STATIC_BIN names another binary. Prints a line for each check, then
"N passed, N failed, N skipped". Standard library only.
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from belay_process import Belay, Failure  # noqa: E402

LIMIT_S = 300
OF_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PROFILE", "STATIC_TARGET"}
SETTINGS = {"llm.provider": "rehearsal", "gateway.listen": "off", "approvals.rules": '[{tool="run_command",ask="never"}]'}


def expect(fact, words):
    """Fails with these words unless the fact holds."""
    if not fact:
        raise Failure(words)


def output(*command, code=0, **more):
    """The output of a command that has to end with this code."""
    # The options and variables of the `make` that has started this suite are not those of this command.
    environment = {name: value for name, value in more.pop("env", os.environ).items() if name not in OF_MAKE}
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, env=environment, **more
    )
    expect(done.returncode == code, f"{command} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def make_static_links_for_an_explicit_target(_binary):
    for profile, folder in (("dist", "dist"), ("release", "release"), ("dev", "debug")):
        for target in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-musl"):
            variables = [f"PROFILE={profile}", f"STATIC_TARGET={target}", "CARGO=cargo", "TARGET=target"]
            build, said = output("make", "--dry-run", "--no-print-directory", "static", *variables).splitlines()
            expect("-C target-feature=+crt-static" in build, build)
            # Without --target the flag would reach build scripts, which cannot be linked with it.
            expect(f" --profile {profile} --target {target} " in build, build)
            expect(said == f"echo target/{target}/{folder}/belay", said)
    expect("--profile dist" in output("make", "--dry-run", "--no-print-directory", "static"), "the default profile is another one")


def the_binary_is_static(binary):
    # The first bytes of a program name its loader, if it has one.
    expect(b"/ld-linux" not in binary.read_bytes()[:4096] and b"/ld-musl" not in binary.read_bytes()[:4096], "it has a loader")
    done = subprocess.run(["ldd", str(binary)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    expect("statically linked" in done.stdout or "not a dynamic executable" in done.stdout, done.stdout)


def it_prints_its_version(binary):
    said = output(str(binary), "--version")
    expect(said.startswith("belay "), said)


def it_accepts_its_settings(binary):
    belay = Belay(binary, SETTINGS)
    try:
        output(*belay.command("check"), env=belay.environment())
    finally:
        belay.remove()


def it_answers_and_runs_a_command_in_the_sandbox(binary):
    belay = Belay(binary, SETTINGS)
    try:
        text = 'calculate 17*23\ncall run_command {"argv":["sh","-c","echo $((6*7)) in $PWD"]}\n/quit\n'
        said = belay.run_with_input(text, LIMIT_S)
    finally:
        belay.remove()
    expect("391" in said and "42 in /workspace" in said, said)


OF_BINARY = [
    the_binary_is_static,
    it_prints_its_version,
    it_accepts_its_settings,
    it_answers_and_runs_a_command_in_the_sandbox,
]


def newest():
    """The newest static binary, or `None`. One that is older than the sources says nothing about them."""
    if named := os.environ.get("STATIC_BIN"):
        return pathlib.Path(named)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    found = [path for end in ("gnu", "musl") for path in target.glob(f"*-unknown-linux-{end}/*/belay")]
    binary = max(found, key=lambda path: path.stat().st_mtime, default=None)
    sources = max(path.stat().st_mtime for path in (ROOT / "crates").rglob("*") if path.suffix in {".rs", ".sql", ".js", ".toml"})
    return binary if binary and binary.stat().st_mtime >= sources else None


def main():
    binary, passed, failed = newest(), 0, 0
    checks = [make_static_links_for_an_explicit_target, *(OF_BINARY if binary else [])]
    if binary is None:
        print("there is no static binary; `make static` builds one")
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            check(binary)
            passed += 1
            print(f"ok {name}", flush=True)
        except (Failure, OSError, subprocess.SubprocessError) as why:
            failed += 1
            print(f"FAILED {name} ({binary}): {why}", flush=True)
    print(f"{passed} passed, {failed} failed, {len(OF_BINARY) + 1 - len(checks)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
