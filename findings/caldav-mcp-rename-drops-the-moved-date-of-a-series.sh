#!/usr/bin/env bash
# Guess: the tool `update-event` of caldav-mcp says that only the given fields are changed, so a new title for a weekly
# meeting keeps its moved dates, and the answers of the guests. `list-events` lists each date in the range.
# Seen with caldav-mcp 0.10.0 and ts-caldav 0.3.7, on which it is built, for Node, caldav 3.6.0 for Python, and the
# server Radicale 3.9.0: the two for Node write the file of the meeting anew from the one event that they have read. The
# moved date is gone, so the meeting is at its old time again, and so are the status TENTATIVE and Ann's answer.
# ts-caldav gives the moved date as an event with the same uid, and an update of it replaces the whole series.
# `list-events` gives the first date and the moved one without the rule, so a model does not see the other dates. No
# call reports an error. caldav for Python keeps all.
# Output seen (Python 3.11, Node 20.20.2): what is left of a meeting on 7, 14 and 28 December with the 14th at 13:00
#   as stored: rule, moved date, status, answer
#   ts-caldav, the series renamed: new title, rule
#   ts-caldav, the moved date renamed: new title, moved date
#   caldav-mcp, the series renamed: new title, rule
#   caldav, the series renamed: new title, rule, moved date, status, answer
#   caldav, the moved date renamed: new title, rule, moved date, status, answer
#   ts-caldav gives: uid 1 2026-12-07T09:00 with the rule, uid 1 2026-12-14T13:00
#   caldav-mcp lists: 2026-12-07T09:00, 2026-12-14T13:00, with uid summary start end
#   caldav lists: 2026-12-07T09:00, 2026-12-14T13:00, 2026-12-28T09:00
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts caldav-mcp@0.10.0 ts-caldav@0.3.7 @modelcontextprotocol/sdk@1.32.2 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check radicale==3.9.0 caldav==3.6.0 2>errors
sed 's/$/\r/' >meeting.ics <<'ICS'
BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//example//EN
BEGIN:VEVENT
UID:1
DTSTAMP:20261101T000000Z
DTSTART:20261207T090000Z
DTEND:20261207T100000Z
RRULE:FREQ=WEEKLY;COUNT=4
EXDATE:20261221T090000Z
SUMMARY:Meeting
STATUS:TENTATIVE
ORGANIZER:mailto:me@example.org
ATTENDEE;CN=Ann;PARTSTAT=ACCEPTED:mailto:ann@example.org
END:VEVENT
BEGIN:VEVENT
UID:1
RECURRENCE-ID:20261214T090000Z
DTSTAMP:20261101T000000Z
DTSTART:20261214T130000Z
DTEND:20261214T140000Z
SUMMARY:Meeting
END:VEVENT
END:VCALENDAR
ICS
cat >server.py <<'PY'
import wsgiref.simple_server
import radicale.app, radicale.config


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


settings = radicale.config.load()
settings.update({"auth": {"type": "none"}, "storage": {"filesystem_folder": "store"}}, "this script")
server = wsgiref.simple_server.make_server("127.0.0.1", 0, radicale.app.Application(settings), handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
PY
mkfifo ready
v/bin/python server.py >ready 2>radicale.log &
server=$!
read -r port <ready
export base=http://127.0.0.1:$port
curl --silent --show-error --fail --user me:word --request MKCALENDAR "$base/me/calendar/"
store() { # the meeting as it was
    curl --silent --show-error --fail --user me:word --header 'Content-Type: text/calendar' --upload-file meeting.ics "$base/me/calendar/1.ics"
}
left() { # what is left of it
    curl --silent --show-error --fail --user me:word "$base/me/calendar/1.ics" >now.ics
    local part words=()
    for part in '^SUMMARY:Renamed=new title' '^RRULE=rule' '^RECURRENCE-ID:20261214=moved date' 'TENTATIVE=status' 'PARTSTAT=ACCEPTED=answer'; do
        ! grep -q "${part%=*}" now.ics || words+=("${part##*=}")
    done
    (IFS=,; echo "${words[*]}" | sed 's/,/, /g')
}
cat >change.js <<'JS'
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CalDAVClient } from 'ts-caldav';

const { base, PATH } = process.env;
const calendar = '/me/calendar/';
const start = '2026-12-01T00:00:00Z';
const end = '2027-01-01T00:00:00Z';

async function read() {
  const client = await CalDAVClient.create({ baseUrl: base, auth: { type: 'basic', username: 'me', password: 'word' } });
  return [client, await client.getEvents(calendar, { start: new Date(start), end: new Date(end) })];
}

async function withLibrary(number) {
  const [client, events] = await read();
  await client.updateEvent(calendar, { ...events[number], summary: 'Renamed' });
}

async function withTool(name, values) {
  const env = { PATH, CALDAV_BASE_URL: base, CALDAV_USERNAME: 'me', CALDAV_PASSWORD: 'word' };
  const client = new Client({ name: 'example', version: '1' });
  await client.connect(new StdioClientTransport({ command: 'node', args: ['node_modules/caldav-mcp/dist/index.js'], env, stderr: 'ignore' }));
  const { isError, content } = await client.callTool({ name, arguments: { calendarUrl: calendar, ...values } });
  if (isError) throw new Error(content[0].text);
  await client.close();
  return content[0].text;
}

const changes = {
  series: () => withLibrary(0),
  date: () => withLibrary(1),
  tool: () => withTool('update-event', { uid: '1', summary: 'Renamed' }),
  read: async () => {
    const [, events] = await read();
    const show = (event) => `uid ${event.uid} ${event.start.toISOString().slice(0, 16)}${event.recurrenceRule ? ' with the rule' : ''}`;
    console.log(events.map(show).join(', '));
  },
  list: async () => {
    const events = JSON.parse(await withTool('list-events', { start, end }));
    const fields = new Set(events.flatMap(Object.keys));
    console.log(`${events.map((event) => event.start.slice(0, 16)).join(', ')}, with ${[...fields].join(' ')}`);
  },
};
await changes[process.argv[2]]();
process.exit();
JS
cat >change.py <<'PY'
import datetime, os, sys
import caldav

client = caldav.DAVClient(os.environ["base"] + "/me/", username="me", password="word")
calendar = client.calendar(url=os.environ["base"] + "/me/calendar/")
dates = calendar.search(start=datetime.datetime(2026, 12, 1), end=datetime.datetime(2027, 1, 1), event=True, expand=sys.argv[1] != "series")
dates.sort(key=lambda date: date.icalendar_component["DTSTART"].dt)
if sys.argv[1] == "list":
    print(", ".join(f"{date.icalendar_component['DTSTART'].dt:%Y-%m-%dT%H:%M}" for date in dates))
else:
    changed = dates[0 if sys.argv[1] == "series" else 1]
    with changed.edit_icalendar_component() as event:
        event["SUMMARY"] = "Renamed"
    changed.save()
PY
show() { # name, what is changed, command
    store
    "${@:3}" 2>>errors
    echo "$1, $2 renamed: $(left)"
}
{
    store
    echo "as stored: $(left)"
    show ts-caldav 'the series' node change.js series
    show ts-caldav 'the moved date' node change.js date
    show caldav-mcp 'the series' node change.js tool
    show caldav 'the series' v/bin/python change.py series
    show caldav 'the moved date' v/bin/python change.py date
    store
    echo "ts-caldav gives: $(node change.js read 2>>errors)"
    echo "caldav-mcp lists: $(node change.js list 2>>errors)"
    echo "caldav lists: $(v/bin/python change.py list 2>>errors)"
} | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
as stored: rule, moved date, status, answer
ts-caldav, the series renamed: new title, rule
ts-caldav, the moved date renamed: new title, moved date
caldav-mcp, the series renamed: new title, rule
caldav, the series renamed: new title, rule, moved date, status, answer
caldav, the moved date renamed: new title, rule, moved date, status, answer
ts-caldav gives: uid 1 2026-12-07T09:00 with the rule, uid 1 2026-12-14T13:00
caldav-mcp lists: 2026-12-07T09:00, 2026-12-14T13:00, with uid summary start end
caldav lists: 2026-12-07T09:00, 2026-12-14T13:00, 2026-12-28T09:00
TEXT
