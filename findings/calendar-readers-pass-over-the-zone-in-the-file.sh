#!/usr/bin/env bash
# Guess: an invitation (iCalendar, RFC 5545) holds the rules of its time zone in VTIMEZONE, and the TZID of a start is
# only the name of those. So a library gives the right time for any name that the file defines.
# Seen with icalendar 7.3.2, icalevents 0.3.1 and ics 0.7.3 for Python, node-ical 0.26.1 and ical.js 2.2.1 for Node:
# only ical.js does. ics takes a name that it does not know for UTC, those of Outlook too. node-ical takes such a name
# for the zone of the machine, but finds the rules of the one that Outlook calls "Customized Time Zone". A name that is
# also one of the tz database has the database's rules with four of five, so "EST" is New York's though the file says
# Brisbane's. No library gives an error or a warning.
# Output seen (Python 3.11, Node 20.20.2, with TZ=America/New_York): the UTC time of 9 o'clock on 5 January 2027, by the
# name of the zone
#   by RFC 5545: Office 5th 08:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 4th 23:00
#   icalendar: Office 5th 08:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 5th 14:00
#   icalevents: Office 5th 08:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 5th 14:00
#   ics: Office 5th 09:00 | W. Europe Standard Time 5th 09:00 | Customized Time Zone 5th 09:00 | EST 5th 14:00
#   node-ical: Office 5th 14:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 5th 14:00
#   ical.js: Office 5th 08:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 4th 23:00
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TZ=America/New_York
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts node-ical@0.26.1 ical.js@2.2.1 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check icalendar==7.3.2 icalevents==0.3.1 ics==0.7.3 tzdata==2026.3
cat >read.py <<'PY'
import datetime, json, pathlib, warnings
import icalendar, icalevents.icalevents, ics

warnings.simplefilter("ignore")
UTC = datetime.timezone.utc
# The offsets in winter and in summer, with the months in which they begin.
ZONES = {"Office": ("+0100", 10, "+0200", 3), "W. Europe Standard Time": ("+0100", 10, "+0200", 3), "Customized Time Zone": ("+0300",),
         "EST": ("+1000",)}  # the last two have no summer time


def calendar(zone):
    standard, *summer = ZONES[zone]
    parts = [("STANDARD", summer[1] if summer else standard, standard, summer[0] if summer else None)]
    if summer:
        parts.append(("DAYLIGHT", standard, summer[1], summer[2]))
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//example//EN", "METHOD:REQUEST", "BEGIN:VTIMEZONE", f"TZID:{zone}"]
    for kind, before, after, month in parts:
        lines += [f"BEGIN:{kind}", "DTSTART:16010101T020000", f"TZOFFSETFROM:{before}", f"TZOFFSETTO:{after}"]
        lines += [f"RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH={month}"] if month else []
        lines += [f"END:{kind}"]
    lines += ["END:VTIMEZONE", "BEGIN:VEVENT", "UID:1", "DTSTAMP:20261101T000000Z", f"DTSTART;TZID={zone}:20270105T090000",
              f"DTEND;TZID={zone}:20270105T100000", "SUMMARY:meeting", "END:VEVENT", "END:VCALENDAR", ""]
    return "\r\n".join(lines)


def by_the_rules(zone):
    offset = ZONES[zone][0]
    return datetime.datetime.strptime(f"20270105T090000{offset}", "%Y%m%dT%H%M%S%z")


def with_icalevents(zone):
    start, end = datetime.datetime(2027, 1, 1), datetime.datetime(2027, 2, 1)
    return icalevents.icalevents.events(string_content=calendar(zone).encode(), start=start, end=end)[0].start


reads = {"by RFC 5545": by_the_rules,
         "icalendar": lambda zone: icalendar.Calendar.from_ical(calendar(zone)).walk("VEVENT")[0].decoded("DTSTART"),
         "icalevents": with_icalevents,
         "ics": lambda zone: next(iter(ics.Calendar(calendar(zone)).events)).begin.datetime}
for name, read in reads.items():
    print(f"{name}: " + " | ".join(f"{zone} {read(zone).astimezone(UTC):%-dth %H:%M}" for zone in ZONES))
pathlib.Path("calendars.json").write_text(json.dumps({zone: calendar(zone) for zone in ZONES}))
PY
cat >read.js <<'JS'
import { readFileSync } from 'node:fs';
import ICAL from 'ical.js';
import ical from 'node-ical';

const calendars = Object.entries(JSON.parse(readFileSync('calendars.json', 'utf8')));
const reads = {
  'node-ical': (text) => Object.values(ical.sync.parseICS(text)).find(({ type }) => type === 'VEVENT').start,
  'ical.js': (text) => new ICAL.Event(new ICAL.Component(ICAL.parse(text)).getFirstSubcomponent('vevent')).startDate.toJSDate(),
};
for (const [name, read] of Object.entries(reads)) {
  const times = calendars.map(([zone, text]) => {
    const time = new Date(read(text)).toISOString();
    return `${zone} ${Number(time.slice(8, 10))}th ${time.slice(11, 16)}`;
  });
  console.log(`${name}: ${times.join(' | ')}`);
}
JS
{ v/bin/python read.py; node read.js; } | tee seen
diff seen - <<'TEXT'
by RFC 5545: Office 5th 08:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 4th 23:00
icalendar: Office 5th 08:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 5th 14:00
icalevents: Office 5th 08:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 5th 14:00
ics: Office 5th 09:00 | W. Europe Standard Time 5th 09:00 | Customized Time Zone 5th 09:00 | EST 5th 14:00
node-ical: Office 5th 14:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 5th 14:00
ical.js: Office 5th 08:00 | W. Europe Standard Time 5th 08:00 | Customized Time Zone 5th 06:00 | EST 4th 23:00
TEXT
