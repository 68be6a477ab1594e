"""Tests that the table of clients and its page in the guide agree."""

import base64
import contextlib
import dataclasses
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from gate.output import ROOT

sys.path.insert(0, str(ROOT / "tests" / "clients"))
from table import guide, model, samples, show  # noqa: E402
from table.rows import COLUMNS, HERE, RECORDED, REHEARSED, ROWS  # noqa: E402
from table.judge import Cell, cell_of, judged, result  # noqa: E402
from table.places import Place  # noqa: E402
from webui.model import Asked  # noqa: E402

PAGE = guide.PAGE.read_text(encoding="utf-8")


class Clients(unittest.TestCase):
    def test_each_client_has_its_lines_and_each_block_its_client(self):
        self.assertEqual(set(guide.blocks()), {row.mark for row in ROWS})

    def test_the_lines_have_an_address_and_a_key_that_the_runner_replaces(self):
        for mark in guide.blocks():
            _, lines = guide.lines_for(mark, "http://here", "token")
            self.assertIn("http://here", lines, mark)
            self.assertIn("token", lines, mark)

    def test_the_page_names_the_versions_that_are_installed(self):
        sections = {mark: PAGE[: PAGE.index(f"<!-- {mark} -->")].rsplit("\n\n", 2)[-2] for mark in guide.blocks()}
        for row in ROWS:
            for version in row.version.split(" + "):
                self.assertIn(version, sections[row.mark], row.mark)
            self.assertIn(f"\n| {row.client} | {row.version} | {show.FACES[row.face]} | works |", PAGE, row.mark)

    def test_each_row_has_a_script_which_judges_what_can_work(self):
        for row in ROWS:
            script = (HERE / row.script).read_text(encoding="utf-8")
            for column in set(COLUMNS) - {"hello"} - set(row.cannot):
                self.assertTrue(re.search(rf"def {column}\(|\b{column}\(\) {{|\b{column}: (async )?\(", script), f"{row.script}, {column}")

    def test_packages_of_node_are_installed_as_they_are_pinned(self):
        pinned = json.loads((HERE / "package.json").read_bytes())["dependencies"]
        locked = json.loads((HERE / "package-lock.json").read_bytes())["packages"]
        self.assertEqual(pinned, {name: locked[f"node_modules/{name}"]["version"] for name in pinned})

    def test_what_the_lines_and_the_script_do_not_show_fails_with_a_reason(self):
        """A row whose lines do not find their package, and whose script ends in its second column."""
        row = dataclasses.replace(next(row for row in ROWS if row.mark == "aider"), mark="openai", script="broken.py")
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            home.joinpath("openai.py").write_text("raise SystemExit('no such package')")
            home.joinpath("broken.py").write_text("""print('{"column": "stream", "why": null}'); raise SystemExit("no more")""")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                cells = judged(row, Place(sys.executable, home, home), home, "http://127.0.0.1:1", REHEARSED)
        self.assertEqual({column for column, cell in cells.items() if cell.works}, {"stream"})
        self.assertEqual({column for column, cell in cells.items() if cell.cannot}, {"tools", "structured"})
        self.assertIn("no such package", cells["hello"].why)
        self.assertEqual(cells["stop"].why, "broken.py says nothing about it: no more")
        self.assertIn("no more", printed.getvalue())

    def test_a_client_that_has_a_part_of_a_column_is_judged_by_that_part(self):
        aider = next(row for row in ROWS if row.mark == "aider")
        works, fails = (cell_of(aider, "error", {"error": cell}, "") for cell in (Cell(True), Cell(False, why="no words")))
        self.assertEqual(works, Cell(True, partly=True, why=aider.partly["error"]))
        self.assertEqual(fails, Cell(False, why="no words"))
        self.assertEqual(cell_of(aider, "stop", {"stop": Cell(True)}, ""), Cell(True))
        self.assertIn(f"\n- aider-chat, error: {aider.partly['error']}\n", PAGE)

    def test_a_script_judges_the_columns_that_it_is_asked_for(self):
        """The second daemon has no answers for the columns of the rehearsal. Its lines run where they configure a command."""
        row = next(row for row in ROWS if row.mark == "llm")
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            checks = "".join(f"@column\ndef {name}():\n    pathlib.Path({name!r}).touch()\n" for name in COLUMNS)
            home.joinpath(row.script).write_text(f"import pathlib\nfrom columns import column, report\n{checks}report()")
            home.joinpath("llm").write_text("#!/bin/sh\ntouch configured\n")
            home.joinpath("llm").chmod(0o755)
            for name in ("columns.py", "samples.py"):
                shutil.copy(HERE / name, home)
            cells = judged(row, Place(sys.executable, home, home), home, "http://127.0.0.1:1", RECORDED)
            made = {name for name in (*COLUMNS, "configured") if home.joinpath(name).exists()}
        self.assertEqual(cells, {column: Cell(True) for column in RECORDED})
        self.assertEqual(made, {*RECORDED, "configured"})

    def test_the_scripted_model_says_what_it_got_and_nothing_else(self):
        url = model.DATA + base64.b64encode(samples.picture()).decode()
        picture = {"type": "image_url", "image_url": {"url": url}}
        text = {"type": "text", "text": f"The word is {samples.TEXT_WORD}."}
        for parts, said in (([picture, text], f"{samples.SEEN}\n{samples.READ_TEXT}"), ([], samples.NOTHING)):
            asked = Asked({"messages": [{"role": "user", "content": parts}]})
            self.assertEqual(model.answer_to(asked), said)
        other = samples.picture().replace(b"IHDR\0\0\0\x15", b"IHDR\0\0\0\x16")
        self.assertEqual(samples.described(other), f"picture 22 x {samples.HEIGHT} #{samples.COLOUR}")
        self.assertIn(samples.PDF_WORD.encode(), samples.pdf(samples.PDF_WORD))

    def test_the_scripts_for_node_know_the_same_samples(self):
        script = (HERE / "columns.mjs").read_text(encoding="utf-8")
        for value in (samples.PICTURE, samples.PDF, samples.TEXT, samples.SEEN, samples.READ_PDF, samples.READ_TEXT):
            self.assertIn(f"'{value}'", script)

    def test_a_client_that_cannot_be_installed_fails_in_each_column(self):
        with mock.patch("table.judge.place_of", side_effect=subprocess.CalledProcessError(1, "pip")):
            cells = result(ROWS[0], "no-such-program")
        self.assertEqual({(cell.works, cell.cannot) for cell in cells.values()}, {(False, False)})
        self.assertIn("it cannot be installed: Command 'pip'", cells["hello"].why)

    def test_a_program_beside_is_shown_where_it_differs(self):
        now = {column: Cell(True) for column in COLUMNS}
        then = {**now, "tools": Cell(False, why="HTTP 400")}
        self.assertIn("| works | works | fails → works | works |", show.markdown([(ROWS[0], now, then)]))
        self.assertNotIn("→", show.markdown([(ROWS[0], now, now)]))
        beside = json.loads(show.as_json([(ROWS[0], now, then)]))["clients"][0]["beside"]
        self.assertEqual(beside["tools"], {"works": False, "partly": False, "cannot": False, "why": "HTTP 400"})

    def test_a_cell_that_does_not_work_has_its_reason_below_the_table(self):
        cells = {column: Cell(True) for column in COLUMNS}
        cells["tools"], cells["stop"] = Cell(False, cannot=True, why="it has none"), Cell(False, why="the run goes on")
        printed = show.text([(ROWS[0], cells)], coloured=False)
        self.assertIn("  works  works   –      works       fails  works", printed)
        self.assertTrue(printed.endswith("openai (Python), tools: it has none\nopenai (Python), chat completions, stop: the run goes on"), printed)
        self.assertNotIn("\033", printed)
        self.assertIn("\033[31mfails", show.text([(ROWS[0], cells)], coloured=True))


if __name__ == "__main__":
    unittest.main()
