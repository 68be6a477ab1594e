#!/usr/bin/env bash
# Guess: a library that lists the dates of a weekly meeting (iCalendar, RFC 5545) applies the changes in its file: an
# added date (RDATE), one cancelled date, a date that was moved to the next month, and a move of "this and all future"
# dates.
# Seen with recurring-ical-events 3.8.2 and icalevents 0.3.1 for Python, node-ical 0.27.2 and ical-expander 3.2.0 for
# Node: all four list the cancelled date too, and a program has to look at its status. icalevents and node-ical leave
# out the added date, and move only the first of "this and all future" dates. When a date has moved to February,
# icalevents lists its old day in January, and ical-expander leaves out the later days of January. No library gives an
# error or a warning. Only recurring-ical-events is right in the other three cases.
# Output seen (Python 3.11, Node 20.20.2): the days in January 2027 of a meeting on 4, 11, 18 and 25 January, with the
# 20th added; with the 11th cancelled; with the 11th moved to February; with all from the 11th moved to the next day
#   by RFC 5545: 4 11 18 20 25 | 4 18 25 | 4 18 25 | 4 12 19 26
#   recurring-ical-events: 4 11 18 20 25 | 4 11 18 25 | 4 18 25 | 4 12 19 26
#   icalevents: 4 11 18 25 | 4 11 18 25 | 4 11 18 25 | 4 12 18 25
#   node-ical: 4 11 18 25 | 4 11 18 25 | 4 18 25 | 4 12 18 25
#   ical-expander: 4 11 18 20 25 | 4 11 18 25 | 4 | 4 12 19 26
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TZ=UTC
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts node-ical@0.27.2 ical-expander@3.2.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check recurring-ical-events==3.8.2 icalendar==7.3.2 icalevents==0.3.1 \
    tzdata==2026.3 2>errors
cat >days.py <<'PY'
import datetime, json, pathlib
import icalendar, icalevents.icalevents, recurring_ical_events

SERIES = ("DTSTART:20270104T090000Z", "DTEND:20270104T100000Z", "RRULE:FREQ=WEEKLY;COUNT=4")


def event(*lines):
    return ["BEGIN:VEVENT", "UID:1", "DTSTAMP:20261101T000000Z", "SUMMARY:meeting", *lines, "END:VEVENT"]


def times(day, hour):
    return f"DTSTART:2027{day}T{hour}0000Z", f"DTEND:2027{day}T{hour}3000Z"


CHANGES = {  # each with the days that are left by RFC 5545
    "added": (event(*SERIES, "RDATE:20270120T090000Z"), "4 11 18 20 25"),
    "cancelled": (event(*SERIES) + event("RECURRENCE-ID:20270111T090000Z", *times("0111", "09"), "STATUS:CANCELLED"), "4 18 25"),
    "moved": (event(*SERIES) + event("RECURRENCE-ID:20270111T090000Z", *times("0225", "15")), "4 18 25"),
    "all moved": (
        event(*SERIES) + event("RECURRENCE-ID;RANGE=THISANDFUTURE:20270111T090000Z", *times("0112", "15")), "4 12 19 26"),
}
START, END = datetime.datetime(2027, 1, 1), datetime.datetime(2027, 2, 1)
calendars = ["\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//example//EN", *lines, "END:VCALENDAR", ""])
             for lines, _ in CHANGES.values()]


def with_recurring(text):
    return [date["DTSTART"].dt for date in recurring_ical_events.of(icalendar.Calendar.from_ical(text)).between(START, END)]


def with_icalevents(text):
    return [date.start for date in icalevents.icalevents.events(string_content=text.encode(), start=START, end=END)]


print(f"by RFC 5545: {' | '.join(days for _, days in CHANGES.values())}")
for name, read in (("recurring-ical-events", with_recurring), ("icalevents", with_icalevents)):
    print(f"{name}: {' | '.join(' '.join(str(time.day) for time in sorted(read(text))) for text in calendars)}")
pathlib.Path("calendars.json").write_text(json.dumps(calendars))
PY
cat >days.js <<'JS'
import { readFileSync } from 'node:fs';
import Expander from 'ical-expander';
import ical from 'node-ical';

const from = new Date('2027-01-01T00:00:00Z');
const to = new Date('2027-01-31T23:59:59Z');
const reads = {
  'node-ical': (text) => {
    const events = Object.values(ical.sync.parseICS(text)).filter(({ type }) => type === 'VEVENT');
    return events.flatMap((event) => ical.expandRecurringEvent(event, { from, to })).map(({ start }) => start);
  },
  'ical-expander': (text) => {
    const { events, occurrences } = new Expander({ ics: text }).between(from, to);
    return [...events, ...occurrences].map(({ startDate }) => startDate.toJSDate());
  },
};
const calendars = JSON.parse(readFileSync('calendars.json', 'utf8'));
for (const [name, read] of Object.entries(reads)) {
  const days = calendars.map((text) => read(text).map((time) => new Date(time).getUTCDate()).sort((a, b) => a - b).join(' '));
  console.log(`${name}: ${days.join(' | ')}`);
}
JS
{ v/bin/python days.py 2>>errors && node days.js 2>>errors; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
by RFC 5545: 4 11 18 20 25 | 4 18 25 | 4 18 25 | 4 12 19 26
recurring-ical-events: 4 11 18 20 25 | 4 11 18 25 | 4 18 25 | 4 12 19 26
icalevents: 4 11 18 25 | 4 11 18 25 | 4 11 18 25 | 4 12 18 25
node-ical: 4 11 18 25 | 4 11 18 25 | 4 18 25 | 4 12 18 25
ical-expander: 4 11 18 20 25 | 4 11 18 25 | 4 | 4 12 19 26
TEXT
