"""Reads what a Linux program is made of: the bytes of its machine code, in all and by crate. Standard library only."""

import collections
import pathlib
import re
import struct

# The beginning of a symbol that the linker has taken from C or from an assembler, and the library that it belongs to.
FOREIGN = (("aws_lc", "aws-lc (C)"), ("sqlite3", "SQLite (C)"), ("fts5", "SQLite (C)"), ("ZSTD", "zstd (C)"))
OTHERS = "other C, and the program's start"
SYMBOLS, NAMES, FUNCTION = 2, 3, 2
# The crate of a mangled symbol is the first name of its path. Of `<Type as Trait>::method` it is that of the type; of any type, that of the trait.
LEGACY = re.compile(r"^_ZN(\d+)(.*)$")
CURRENT = re.compile(r"^_R.*?C(?:s[0-9A-Za-z]*_)?(\d+)_?([A-Za-z_].*)$")
IN_TYPE = re.compile(r"([A-Za-z]\w*)\.\.")


class NoProgram(Exception):
    """The file is no 64-bit program of Linux with the lowest byte first."""


class Program:
    """The sections of a program."""

    def __init__(self, file):
        self.data = pathlib.Path(file).read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise NoProgram(f"{file} is no 64-bit program of Linux with the lowest byte first")
        (start,) = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self.data, start + size * index) for index in range(count)]
        # Of each section: its name, its kind, its place in the file, its size, and the section that it refers to.
        self.sections = [(self.text(headers[names][4] + h[0]), h[1], h[4], h[5], h[6]) for h in headers]

    def text(self, at):
        return self.data[at : self.data.index(b"\0", at)].decode("utf-8", "replace")

    def code_bytes(self):
        """Bytes of machine code. Debug information and names, which `strip` takes away, do not count."""
        return sum(size for name, _, _, size, _ in self.sections if name == ".text")

    def by_crate(self):
        """Bytes of machine code by crate, the largest first. Generic code counts for the crate that has written it."""
        found, seen = collections.Counter(), set()
        for _, kind, begin, size, link in self.sections:
            if kind != SYMBOLS:
                continue
            strings = self.sections[link][2]
            for name, info, _, _, place, bytes_of in struct.iter_unpack("<IBBHQQ", self.data[begin : begin + size]):
                # Functions that the linker has found to be equal have one place.
                if info & 15 == FUNCTION and bytes_of and place not in seen:
                    seen.add(place)
                    found[crate_of(self.text(strings + name))] += bytes_of
        return found.most_common()


def crate_of(symbol):
    """The crate of a symbol.

    >>> crate_of("_ZN9belay_run4core3runE"), crate_of("_ZN48_$LT$belay_run..X$u20$as$u20$core..fmt..Debug$GT$3fmtE")
    ('belay-run', 'belay-run')
    >>> crate_of("_ZN42_$LT$$RF$T$u20$as$u20$core..fmt..Debug$GT$3fmtE")
    'core'
    >>> crate_of("_RNvCs1234_7mycrate3foo"), crate_of("_RNvMs_NtCs12_5tokio4timeNtB5_5Sleep4poll")
    ('mycrate', 'tokio')
    >>> crate_of("aws_lc_0_47_0_f"), crate_of("main")
    ('aws-lc (C)', "other C, and the program's start")
    """
    if found := LEGACY.match(symbol) or CURRENT.match(symbol):
        name = found[2][: int(found[1])]
        if inside := IN_TYPE.search(name) if "$LT$" in name else re.match(r"\w+", name):
            return inside[inside.lastindex or 0].replace("_", "-")
    return next((library for begin, library in FOREIGN if symbol.lstrip("_").startswith(begin)), OTHERS)
