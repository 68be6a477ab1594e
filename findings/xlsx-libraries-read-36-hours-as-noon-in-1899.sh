#!/usr/bin/env bash
# Guess: a library that reads a workbook (xlsx) gives a date as this date and 36 hours ([h]:mm) as 36 hours, also
# west of UTC and in a workbook with the date system 1904 of Excel for Mac. The text of a cell is what the sheet shows.
# Seen with openpyxl 3.1.5, python-calamine 0.9.1 and markitdown 0.1.9 for Python, exceljs 4.4.0, xlsx 0.18.5 (SheetJS),
# read-excel-file 9.3.17 and officeparser 8.1.1 for Node: in New York, openpyxl and python-calamine do what the
# guess says, and markitdown writes 36 hours as `1 days 12:00:00`. Of those for Node, only `sheet_to_csv` of SheetJS
# does. 36 hours are noon on 31 December 1899 with exceljs and read-excel-file. The `text` of a cell of exceljs is the
# day before. SheetJS gives a date as the number 46363, and with `cellDates` a date of 2026 in a workbook of 1904 as
# one of 2022. The text of officeparser has numbers for both, so a model reads 46363 or 44901 for the same day. No
# library gives an error.
# Output seen (Python 3.11, Node 20.20.2, with TZ=America/New_York): the date 2026-12-07, 36 hours, and the same two in
# a workbook of 1904
#   openpyxl: 2026-12-07 00:00:00 | 1 day, 12:00:00 | 2026-12-07 00:00:00 | 1 day, 12:00:00
#   python-calamine: 2026-12-07 | 1 day, 12:00:00 | 2026-12-07 | 1 day, 12:00:00
#   markitdown: 2026-12-07 | 1 days 12:00:00 | 2026-12-07 | 1 days 12:00:00
#   exceljs, value: 2026-12-07T00:00 | 1899-12-31T12:00 | 2026-12-07T00:00 | 1904-01-02T12:00
#   exceljs, text: Sun Dec 06 2026 19:00 | Sun Dec 31 1899 07:00 | Sun Dec 06 2026 19:00 | Sat Jan 02 1904 07:00
#   SheetJS, sheet_to_json: 46363 | 1.5 | 44901 | 1.5
#   SheetJS, cellDates: 2026-12-07T05:00 | 1899-12-31T17:00 | 2022-12-06T05:00 | 1899-12-31T17:00
#   SheetJS, sheet_to_csv: 2026-12-07 | 36:00 | 2026-12-07 | 36:00
#   read-excel-file: 2026-12-07T00:00 | 1899-12-31T12:00 | 2026-12-07T00:00 | 1904-01-02T12:00
#   officeparser: 46363 | 1.5 | 44901 | 1.5
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TZ=America/New_York
echo '{"private":true,"type":"commonjs"}' >package.json
npm install --no-audit --no-fund --ignore-scripts exceljs@4.4.0 xlsx@0.18.5 read-excel-file@9.3.17 officeparser@8.1.1 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check openpyxl==3.1.5 python-calamine==0.9.1 'markitdown[xlsx]==0.1.9' \
    pandas==3.1.1 xlsxwriter==3.2.9 2>errors
cat >read.py <<'PY'
import datetime
import markitdown, openpyxl, python_calamine, xlsxwriter

FILES = ("1900.xlsx", "1904.xlsx")
for name in FILES:
    book = xlsxwriter.Workbook(name, {"date_1904": name == "1904.xlsx"})
    sheet = book.add_worksheet("plan")
    sheet.write_row(0, 0, ["day", "duration"])
    sheet.write_datetime(1, 0, datetime.datetime(2026, 12, 7), book.add_format({"num_format": "yyyy-mm-dd"}))
    sheet.write_number(1, 1, 1.5, book.add_format({"num_format": "[h]:mm"}))
    book.close()


def with_openpyxl(name):
    return list(openpyxl.load_workbook(name, data_only=True)["plan"].iter_rows(values_only=True))[1]


def with_calamine(name):
    return python_calamine.CalamineWorkbook.from_path(name).get_sheet_by_name("plan").to_python()[1]


def with_markitdown(name):
    row = markitdown.MarkItDown().convert(name).text_content.splitlines()[-1]
    return [cell.strip() for cell in row.strip("| ").split("|")]


for name, read in (("openpyxl", with_openpyxl), ("python-calamine", with_calamine), ("markitdown", with_markitdown)):
    print(f"{name}: {' | '.join(str(value) for file in FILES for value in read(file))}")
PY
cat >read.js <<'JS'
const Excel = require('exceljs');
const { parseOffice } = require('officeparser');
const { readSheet } = require('read-excel-file/node');
const Sheets = require('xlsx');

const cells = async (name) => {
  const book = new Excel.Workbook();
  await book.xlsx.readFile(name);
  const row = book.getWorksheet('plan').getRow(2);
  return [row.getCell(1), row.getCell(2)];
};
const sheet = (name, options) => Sheets.readFile(name, options).Sheets.plan;
const reads = {
  'exceljs, value': async (name) => (await cells(name)).map(({ value }) => value),
  'exceljs, text': async (name) => (await cells(name)).map(({ text }) => text.slice(0, 21)),
  'SheetJS, sheet_to_json': (name) => Sheets.utils.sheet_to_json(sheet(name), { header: 1 })[1],
  'SheetJS, cellDates': (name) => Sheets.utils.sheet_to_json(sheet(name, { cellDates: true }), { header: 1 })[1],
  'SheetJS, sheet_to_csv': (name) => Sheets.utils.sheet_to_csv(sheet(name)).split('\n')[1].split(','),
  'read-excel-file': async (name) => (await readSheet(name))[1],
  officeparser: async (name) => (await (await parseOffice(name)).to('text')).value.trim().split('\n').pop().split('\t'),
};
const show = (value) => (value instanceof Date ? value.toISOString().slice(0, 16) : String(value));
(async () => {
  for (const [name, read] of Object.entries(reads)) {
    const values = [...(await read('1900.xlsx')), ...(await read('1904.xlsx'))];
    console.log(`${name}: ${values.map(show).join(' | ')}`);
  }
  process.exit();
})();
JS
{ v/bin/python read.py 2>>errors && node read.js 2>>errors; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
openpyxl: 2026-12-07 00:00:00 | 1 day, 12:00:00 | 2026-12-07 00:00:00 | 1 day, 12:00:00
python-calamine: 2026-12-07 | 1 day, 12:00:00 | 2026-12-07 | 1 day, 12:00:00
markitdown: 2026-12-07 | 1 days 12:00:00 | 2026-12-07 | 1 days 12:00:00
exceljs, value: 2026-12-07T00:00 | 1899-12-31T12:00 | 2026-12-07T00:00 | 1904-01-02T12:00
exceljs, text: Sun Dec 06 2026 19:00 | Sun Dec 31 1899 07:00 | Sun Dec 06 2026 19:00 | Sat Jan 02 1904 07:00
SheetJS, sheet_to_json: 46363 | 1.5 | 44901 | 1.5
SheetJS, cellDates: 2026-12-07T05:00 | 1899-12-31T17:00 | 2022-12-06T05:00 | 1899-12-31T17:00
SheetJS, sheet_to_csv: 2026-12-07 | 36:00 | 2026-12-07 | 36:00
read-excel-file: 2026-12-07T00:00 | 1899-12-31T12:00 | 2026-12-07T00:00 | 1904-01-02T12:00
officeparser: 46363 | 1.5 | 44901 | 1.5
TEXT
