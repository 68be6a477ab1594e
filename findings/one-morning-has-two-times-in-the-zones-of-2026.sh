#!/usr/bin/env bash
# Guess: libraries that were installed this week agree when it is nine o'clock in Vancouver in December 2026. In Python the package tzdata
# brings the newest data, so who pins it knows what is used.
# Seen with Node 20.20.2, luxon 3.7.2, croner 11.0.1 and moment-timezone 0.6.6, and with Python 3.11, tzdata 2026.6 and pytz 2026.6:
# Vancouver and Edmonton have no winter time any more, and Casablanca is at UTC. luxon and croner take the data of Node (2025c) whatever
# their own version is, and moment-timezone has its own (2026f), so that one process has two times. zoneinfo takes tzdata only for a zone
# that the system does not have: with files of 2025 on the system, the package is installed and not used, and pytz beside it is. An hour is
# between a reminder and the calendar that shows it. PYTHONTZPATH= takes the system out; in Node only a new Node helps.
# Output seen (Node 20.20.2 with 2025c, Python 3.11): nine o'clock on 15 December 2026 in UTC, in Vancouver, Edmonton and Casablanca
#   luxon: 17:00, 16:00, 08:00
#   croner: 17:00, 16:00, 08:00
#   moment-timezone: 16:00, 15:00, 09:00
#   zoneinfo with tzdata, system of 2025: 17:00, 16:00, 08:00
#   zoneinfo with tzdata, no system: 16:00, 15:00, 09:00
#   pytz, system of 2025: 16:00, 15:00, 09:00
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
[ "$(node -p process.versions.tz)" = 2025c ] || { echo "needs a Node with the zones of 2025c, as 20.20.2" >&2; exit 1; }
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts luxon@3.7.2 croner@11.0.1 moment-timezone@0.6.6 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check tzdata==2026.6 pytz==2026.6
v/bin/pip install --quiet --disable-pip-version-check --no-deps --target system tzdata==2025.3
cat >nine.js <<'JS'
import { Cron } from 'croner';
import { DateTime } from 'luxon';
import moment from 'moment-timezone';

const libraries = {
  luxon: (zone) => DateTime.fromISO('2026-12-15T09:00', { zone }).toJSDate(),
  croner: (timezone) => new Cron('0 9 15 12 *', { timezone, paused: true }).nextRun(new Date('2026-12-14T12:00:00Z')),
  'moment-timezone': (zone) => moment.tz('2026-12-15T09:00', zone).toDate(),
};
for (const [name, nine] of Object.entries(libraries)) {
  const times = ['America/Vancouver', 'America/Edmonton', 'Africa/Casablanca'].map((zone) => nine(zone).toISOString().slice(11, 16));
  console.log(`${name}: ${times.join(', ')}`);
}
JS
cat >nine.py <<'PY'
import sys
from datetime import datetime, timezone
from zoneinfo import ZoneInfo
import pytz

name, system = sys.argv[1:]
nine = datetime(2026, 12, 15, 9)
libraries = {"zoneinfo": lambda zone: nine.replace(tzinfo=ZoneInfo(zone)), "pytz": lambda zone: pytz.timezone(zone).localize(nine)}
zones = ("America/Vancouver", "America/Edmonton", "Africa/Casablanca")
times = [libraries[name](zone).astimezone(timezone.utc).strftime("%H:%M") for zone in zones]
print(f"{name}{' with tzdata' if name == 'zoneinfo' else ''}, {system}: {', '.join(times)}")
PY
{
    node nine.js
    PYTHONTZPATH=$folder/system/tzdata/zoneinfo v/bin/python nine.py zoneinfo 'system of 2025'
    PYTHONTZPATH='' v/bin/python nine.py zoneinfo 'no system'
    PYTHONTZPATH=$folder/system/tzdata/zoneinfo v/bin/python nine.py pytz 'system of 2025'
} | tee seen
diff seen - <<'TEXT'
luxon: 17:00, 16:00, 08:00
croner: 17:00, 16:00, 08:00
moment-timezone: 16:00, 15:00, 09:00
zoneinfo with tzdata, system of 2025: 17:00, 16:00, 08:00
zoneinfo with tzdata, no system: 16:00, 15:00, 09:00
pytz, system of 2025: 16:00, 15:00, 09:00
TEXT
