#!/usr/bin/env bash
# Guess: `journalctl --output=json` gives the text of each entry as a string in MESSAGE, whatever its length. A program that reads the
# journal for an agent takes what `journalctl` shows a person.
# Seen with systemd 252 (Debian 12): a message of 4100 letters is null, without a mark that there was one; `--all` gives it. A message with
# colours, as many programs write them, is a list of numbers, with and without `--all`, and so is one with a carriage return, as progress
# bars have it. A message that an entry has twice is a list of both, and then a list may be in the list. A person sees the words of the long
# message and of the one with colours. So a reader of the JSON asks for `--all` and takes four kinds of values; journalctl(1) has them under
# "json".
# Output seen, by the entry's message: MESSAGE in the JSON, and the line of `--output=short`
#   short: string, with --all string, for a person text
#   two lines: string, with --all string, for a person text
#   4000 letters: string, with --all string, for a person text
#   4100 letters: null, with --all string, for a person text
#   colours: list of 11 numbers, with --all list of 11 numbers, for a person text
#   carriage return: list of 8 numbers, with --all list of 8 numbers, for a person [8B blob data]
#   two values: list (string, string), with --all list (string, string), for a person text
#   two values, one with colours: list (list of 11 numbers, string), with --all list (list of 11 numbers, string), for a person text
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download systemd libsystemd-shared systemd-journal-remote libmicrohttpd12 >log 2>&1 ||
    { cat log; echo "needs Debian 12, after apt-get update" >&2; exit 1; }
for package in *.deb; do
    [[ $package == libmicrohttpd12* || $(dpkg-deb --field "$package" Version) == 252.* ]]
    dpkg-deb --extract "$package" root
done
libraries=$(find "$PWD/root" -name '*.so*' -printf '%h\n' | sort --unique | paste --serial --delimiters=:)
cat >entries.py <<'PY'
import struct, sys

MESSAGES = {
    "short": [b"short"],
    "two lines": [b"two\nlines"],
    "4000 letters": [b"x" * 4000],
    "4100 letters": [b"x" * 4100],
    "colours": [b"\x1b[32mok\x1b[0m"],
    "carriage return": [b"50%\r100%"],
    "two values": [b"one", b"two"],
    "two values, one with colours": [b"one", b"\x1b[32mok\x1b[0m"],
}
write = sys.stdout.buffer.write
for number, (name, values) in enumerate(MESSAGES.items()):
    write(b"__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n" % (1796083200000000 + number, number))
    write(b"_BOOT_ID=%032x\nNAME=%s\n" % (1, name.encode()))
    for value in values:  # the export format of the journal, in its form for any bytes
        write(b"MESSAGE\n" + struct.pack("<Q", len(value)) + value + b"\n")
    write(b"\n")
PY
cat >show.py <<'PY'
import json, subprocess, sys


def read(*options):
    command = [sys.argv[1], "--file=entries.journal", "--utc", "--no-pager", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def kind(value):
    if isinstance(value, list):
        parts = [kind(part) for part in value]
        return f"list of {len(parts)} numbers" if set(parts) == {"int"} else f"list ({', '.join(parts)})"
    return {str: "string", type(None): "null", int: "int"}[type(value)]


entries = [{entry["NAME"]: entry["MESSAGE"] for entry in map(json.loads, read("--output=json", *options))} for options in ([], ["--all"])]
for name, message in entries[0].items():
    shown = [line for line in read("--output=short", f"NAME={name}")]
    person = "text" if "blob data" not in shown[0] else "[" + shown[0].split("[")[-1]
    print(f"{name}: {kind(message)}, with --all {kind(entries[1][name])}, for a person {person}")
PY
export LD_LIBRARY_PATH=$libraries
python3 entries.py | root/lib/systemd/systemd-journal-remote --output=entries.journal - 2>log || { cat log; exit 1; }
python3 show.py "$PWD/root/bin/journalctl" | tee seen
diff seen - <<'TEXT'
short: string, with --all string, for a person text
two lines: string, with --all string, for a person text
4000 letters: string, with --all string, for a person text
4100 letters: null, with --all string, for a person text
colours: list of 11 numbers, with --all list of 11 numbers, for a person text
carriage return: list of 8 numbers, with --all list of 8 numbers, for a person [8B blob data]
two values: list (string, string), with --all list (string, string), for a person text
two values, one with colours: list (list of 11 numbers, string), with --all list (list of 11 numbers, string), for a person text
TEXT
