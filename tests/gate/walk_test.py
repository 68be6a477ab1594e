"""The walk of a message in docs/ARCHITECTURE.md: its numbers agree with its names, and its names with the files."""

import re
import unittest

from gate.output import ROOT

PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALK = PAGE.split("### The walk, counted\n")[1].split("\n### ")[0]
ROW = re.compile(r"^\| [^|]+ \| (`[^|]+) \| (\d+) \|$", re.MULTILINE)


class Walk(unittest.TestCase):
    def test_each_file_is_there_and_counts_once(self):
        found, sum_of_rows = [], 0
        for names, count in ROW.findall(WALK):
            row = []
            for group in names.split("; "):
                files, crate = group.rstrip("]").split(" [")
                row += [ROOT / "crates" / crate / "src" / name.strip("`") for name in files.split(", ")]
            self.assertEqual(len(row), int(count), names)
            found, sum_of_rows = found + row, sum_of_rows + int(count)
        self.assertEqual([str(path) for path in found if not path.is_file()], [])
        self.assertEqual(len(set(found)), len(found))
        self.assertIn(f"**{sum_of_rows} files**", WALK)

    def test_each_box_is_a_struct(self):
        forward, back = re.search(r"Forward: (.*)\. Back: (.*?)\.", WALK, re.DOTALL).groups()
        boxes = [re.findall(r"`(\w+)`", names) for names in (forward, back)]
        self.assertIn(f"**{len(boxes[0])} + {len(boxes[1])} boxes**", WALK)
        crates = ["gateway", "protocol", "agent", "run"]
        files = [path for crate in crates for path in (ROOT / "crates" / crate / "src").rglob("*.rs")]
        text = "\n".join(path.read_text(encoding="utf-8") for path in files)
        self.assertEqual([name for name in sum(boxes, []) if not re.search(rf"\bstruct {name}\b", text)], [])
