#!/usr/bin/env bash
# Guess: libraries that expand repeated events give the dates of RFC 5545 (3.3.5 and 3.3.10): a date that does not exist, as 30 February,
# is left out, BYSETPOS=-1 takes the last of the named weekdays, and a time that the clocks skip is read with the offset before the gap or
# is left out, as the RFC has a sentence for each.
# Seen with recurring-ical-events 3.8.2 and python-dateutil 2.9.0.post0 for Python, ical.js 2.2.1, rrule 2.8.1, rrule-temporal 2.2.8 and
# ts-ics 2.4.6 for Node, on events that begin with a date of their rule: three of the six do. ts-ics moves the 30th to 28 February and stays
# on the 28th, leaves out the first of the last working days and has the others earlier and at midnight, and adds 24 hours a day, so that
# 02:30 is 03:30 after the clocks change. ical.js has a yearly 29 February on 1 March. A skipped 02:30 is 01:30 for dateutil and ical.js,
# 03:30 for recurring-ical-events and rrule, and no time for rrule-temporal. So one calendar has other dates in two programs, and a date
# that one of them computes is missing for the other.
# Output seen (Python 3.11, Node 20.20.2), in UTC, without what the RFC allows:
#   recurring-ical-events: as in the RFC
#   dateutil, daily at 02:30: 27-03-13 07:30, 27-03-14 06:30, 27-03-15 06:30
#   ical.js, yearly on 29 February: 28-02-29 09:00, 29-03-01 09:00
#   ical.js, daily at 02:30: 27-03-13 07:30, 27-03-14 06:30, 27-03-15 06:30
#   rrule: as in the RFC
#   rrule-temporal: as in the RFC
#   ts-ics, monthly on the 30th: 27-01-30 09:00, 27-02-28 09:00, 27-03-28 09:00
#   ts-ics, yearly on 29 February: 28-02-29 09:00, 29-02-28 09:00
#   ts-ics, last working day: 26-12-30 00:00, 27-01-28 00:00, 27-02-25 00:00
#   ts-ics, daily at 02:30: 27-03-13 07:30, 27-03-14 07:30, 27-03-15 07:30
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TZ=UTC
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts ical.js@2.2.1 rrule@2.8.1 rrule-temporal@2.2.8 @js-temporal/polyfill@0.5.1 \
    ts-ics@2.4.6 luxon@3.7.2 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check recurring-ical-events==3.8.2 icalendar==7.3.2 python-dateutil==2.9.0.post0 \
    tzdata==2026.6
cat >events.json <<'JSON'
[{"name": "monthly on the 30th", "event": "DTSTART:20270130T090000Z\nRRULE:FREQ=MONTHLY;COUNT=3",
  "rfc": ["27-01-30 09:00, 27-03-30 09:00, 27-04-30 09:00"]},
 {"name": "yearly on 29 February", "event": "DTSTART:20280229T090000Z\nRRULE:FREQ=YEARLY;COUNT=2",
  "rfc": ["28-02-29 09:00, 32-02-29 09:00"]},
 {"name": "last working day", "event": "DTSTART:20261130T090000Z\nRRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=3",
  "rfc": ["26-11-30 09:00, 26-12-31 09:00, 27-01-29 09:00"]},
 {"name": "daily at 02:30", "event": "DTSTART;TZID=America/New_York:20270313T023000\nRRULE:FREQ=DAILY;COUNT=3",
  "rfc": ["27-03-13 07:30, 27-03-14 07:30, 27-03-15 06:30",
          "27-03-13 07:30, 27-03-15 06:30, 27-03-16 06:30"]}]
JSON
cat >head.txt <<'ICS'
BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//example//EN
BEGIN:VTIMEZONE
TZID:America/New_York
BEGIN:STANDARD
DTSTART:20071104T020000
TZOFFSETFROM:-0400
TZOFFSETTO:-0500
RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=1SU
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:20070311T020000
TZOFFSETFROM:-0500
TZOFFSETTO:-0400
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=2SU
END:DAYLIGHT
END:VTIMEZONE
BEGIN:VEVENT
UID:1@example.org
DTSTAMP:20260101T000000Z
ICS
cat >dates.py <<'PY'
import datetime, json
import icalendar, recurring_ical_events
from dateutil.rrule import rrulestr

with open("events.json") as file:
    events = json.load(file)
with open("head.txt") as file:
    head = file.read()
for event in events:
    event["calendar"] = f"{head}{event['event']}\nEND:VEVENT\nEND:VCALENDAR\n".replace("\n", "\r\n")
with open("calendars.json", "w") as file:
    json.dump(events, file)


def with_recurring_ical_events(event):
    found = recurring_ical_events.of(icalendar.Calendar.from_ical(event["calendar"])).between((2026, 1, 1), (2035, 1, 1))
    return sorted(part["DTSTART"].dt for part in found)


for name, dates in (("recurring-ical-events", with_recurring_ical_events), ("dateutil", lambda event: rrulestr(event["event"]))):
    seen = []
    for event in events:
        text = ", ".join(f"{date.astimezone(datetime.timezone.utc):%y-%m-%d %H:%M}" for date in dates(event))
        if text not in event["rfc"]:
            seen.append(f"{name}, {event['name']}: {text}")
    print("\n".join(seen) or f"{name}: as in the RFC")
PY
cat >dates.js <<'JS'
import { readFileSync } from 'node:fs';
import ICAL from 'ical.js';
import rrule from 'rrule';
import { RRuleTemporal } from 'rrule-temporal';
import { convertIcsCalendar, extendByRecurrenceRule } from 'ts-ics';

const withIcal = ({ calendar }) => {
  const component = new ICAL.Component(ICAL.parse(calendar));
  ICAL.TimezoneService.register(component.getFirstSubcomponent('vtimezone'));
  const dates = new ICAL.Event(component.getFirstSubcomponent('vevent')).iterator();
  const found = [];
  for (let date = dates.next(); date; date = dates.next()) found.push(date.toJSDate());
  return found;
};
const withTsIcs = ({ calendar }) => {
  const [{ recurrenceRule, start }] = convertIcsCalendar(undefined, calendar).events;
  return extendByRecurrenceRule(recurrenceRule, { start: start.date, end: new Date('2035-01-01') });
};
const libraries = {
  'ical.js': withIcal,
  rrule: ({ event }) => rrule.rrulestr(event).all(),
  'rrule-temporal': ({ event }) => new RRuleTemporal({ rruleString: event }).all().map((date) => new Date(date.epochMilliseconds)),
  'ts-ics': withTsIcs,
};
const events = JSON.parse(readFileSync('calendars.json', 'utf8'));
for (const [name, dates] of Object.entries(libraries)) {
  const seen = events.flatMap((event) => {
    const text = dates(event).map((date) => date.toISOString().slice(2, 16).replace('T', ' ')).join(', ');
    return event.rfc.includes(text) ? [] : [`${name}, ${event.name}: ${text}`];
  });
  console.log(seen.join('\n') || `${name}: as in the RFC`);
}
JS
{ v/bin/python dates.py; node dates.js; } | tee seen
diff seen - <<'TEXT'
recurring-ical-events: as in the RFC
dateutil, daily at 02:30: 27-03-13 07:30, 27-03-14 06:30, 27-03-15 06:30
ical.js, yearly on 29 February: 28-02-29 09:00, 29-03-01 09:00
ical.js, daily at 02:30: 27-03-13 07:30, 27-03-14 06:30, 27-03-15 06:30
rrule: as in the RFC
rrule-temporal: as in the RFC
ts-ics, monthly on the 30th: 27-01-30 09:00, 27-02-28 09:00, 27-03-28 09:00
ts-ics, yearly on 29 February: 28-02-29 09:00, 29-02-28 09:00
ts-ics, last working day: 26-12-30 00:00, 27-01-28 00:00, 27-02-25 00:00
ts-ics, daily at 02:30: 27-03-13 07:30, 27-03-14 07:30, 27-03-15 07:30
TEXT
