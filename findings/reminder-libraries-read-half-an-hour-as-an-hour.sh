#!/usr/bin/env bash
# Guess: a library that reads a time in a person's words gives the right time, or nothing where it does not understand. A reminder is then
# set right, or the person is asked.
# Seen with dateparser 1.5.0, parsedatetime 2.6 and timefhuman 0.1.5 for Python, and chrono-node 2.10.3: each of them gives a wrong time
# where it understands a part, without a sign. Two read "in half an hour" as an hour, three "in an hour and a half". dateparser drops the
# hour of "tomorrow at 9", since it has no "am", and fills in the present time. On the last day of a month it puts "at 9am" on the first
# day of that month, though future times are preferred. chrono-node reads "three quarters of an hour" as three quarters of a year.
# Output seen (Python 3.11, Node 20); "now" is Monday, 30 November 2026, 13:45, future times are preferred where there is a setting, and "-"
# is nothing:
#                                right        dateparser   parsedatetime  timefhuman   chrono-node
#   in half an hour              11-30 14:15  -            11-30 14:45    11-30 14:45  right
#   in an hour and a half        11-30 15:15  -            11-30 14:45    11-30 14:45  11-30 14:45
#   in three quarters of an hour 11-30 14:30  -            11-30 14:45    11-30 14:45  2027-08-30 13:45
#   an hour before 5pm           11-30 16:00  11-30 17:00  right          11-30 14:45  right
#   tonight at 8                 11-30 20:00  11-30 13:45  11-30 21:00    right        right
#   8 in the evening             11-30 20:00  right        11-30 18:00    11-30 18:00  right
#   at 9am                       12-01 09:00  11-01 09:00  11-30 09:00    right        right
#   tomorrow at 9                12-01 09:00  12-01 13:45  right          right        right
#   tomorrow afternoon at 3      12-01 15:00  12-01 13:45  12-01 13:00    right        right
#   this time tomorrow           12-01 13:45  -            12-01 09:00    12-01 00:00  right
#   the day after tomorrow at 8  12-02 08:00  12-02 13:45  12-01 09:00    12-01 08:00  right
#   monday at 9am                12-07 09:00  right        right          11-30 09:00  right
#   a week from friday at 9am    12-11 09:00  -            right          12-07 13:45  12-07 13:45
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check dateparser==1.5.0 parsedatetime==2.6 timefhuman==0.1.5
npm init --yes >log
npm install --silent --no-audit --no-fund chrono-node@2.10.3 >log
cat >phrases <<'TEXT'
in half an hour|11-30 14:15
in an hour and a half|11-30 15:15
in three quarters of an hour|11-30 14:30
an hour before 5pm|11-30 16:00
tonight at 8|11-30 20:00
8 in the evening|11-30 20:00
at 9am|12-01 09:00
tomorrow at 9|12-01 09:00
tomorrow afternoon at 3|12-01 15:00
this time tomorrow|12-01 13:45
the day after tomorrow at 8|12-02 08:00
monday at 9am|12-07 09:00
a week from friday at 9am|12-11 09:00
TEXT
cat >read.mjs <<'JS'
import { readFileSync } from 'node:fs';
import * as chrono from 'chrono-node';

for (const line of readFileSync('phrases', 'utf8').trim().split('\n')) {
  const date = chrono.parseDate(line.split('|')[0], new Date(2026, 10, 30, 13, 45), { forwardDate: true });
  console.log(date ? date.toISOString().slice(0, 16) : ''); // The zone is UTC.
}
JS
cat >read.py <<'PY'
import subprocess
from datetime import datetime
import dateparser, parsedatetime
from timefhuman import tfhConfig, timefhuman

now = datetime(2026, 11, 30, 13, 45)
calendar = parsedatetime.Calendar()
settings = {"RELATIVE_BASE": now, "PREFER_DATES_FROM": "future"}


def with_dateparser(text):
    return dateparser.parse(text, languages=["en"], settings=settings)


def with_parsedatetime(text):
    time, understood = calendar.parseDT(text, sourceTime=now)
    return time if understood else None


def with_timefhuman(text):
    return next(iter(timefhuman(text, tfhConfig(now=now))), None)


def show(time, right):
    if time is None:
        return "-"
    shown = f"{time:%m-%d %H:%M}" if time.year == now.year else f"{time:%Y-%m-%d %H:%M}"
    return "right" if shown == right else shown


others = subprocess.run(["node", "read.mjs"], capture_output=True, text=True, check=True).stdout.split("\n")
print(f"{'':28} {'right':12} {'dateparser':12} {'parsedatetime':14} {'timefhuman':12} chrono-node")
for line, other in zip(open("phrases"), others):
    phrase, right = line.rstrip("\n").split("|")
    row = [show(read(phrase), right) for read in (with_dateparser, with_parsedatetime, with_timefhuman)]
    row.append(show(datetime.fromisoformat(other) if other else None, right))
    print(f"{phrase:28} {right:12} {row[0]:12} {row[1]:14} {row[2]:12} {row[3]}")
PY
TZ=UTC v/bin/python read.py | tee seen
diff seen - <<'TEXT'
                             right        dateparser   parsedatetime  timefhuman   chrono-node
in half an hour              11-30 14:15  -            11-30 14:45    11-30 14:45  right
in an hour and a half        11-30 15:15  -            11-30 14:45    11-30 14:45  11-30 14:45
in three quarters of an hour 11-30 14:30  -            11-30 14:45    11-30 14:45  2027-08-30 13:45
an hour before 5pm           11-30 16:00  11-30 17:00  right          11-30 14:45  right
tonight at 8                 11-30 20:00  11-30 13:45  11-30 21:00    right        right
8 in the evening             11-30 20:00  right        11-30 18:00    11-30 18:00  right
at 9am                       12-01 09:00  11-01 09:00  11-30 09:00    right        right
tomorrow at 9                12-01 09:00  12-01 13:45  right          right        right
tomorrow afternoon at 3      12-01 15:00  12-01 13:45  12-01 13:00    right        right
this time tomorrow           12-01 13:45  -            12-01 09:00    12-01 00:00  right
the day after tomorrow at 8  12-02 08:00  12-02 13:45  12-01 09:00    12-01 08:00  right
monday at 9am                12-07 09:00  right        right          11-30 09:00  right
a week from friday at 9am    12-11 09:00  -            right          12-07 13:45  12-07 13:45
TEXT
