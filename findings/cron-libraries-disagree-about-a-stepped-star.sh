#!/usr/bin/env bash
# Guess: `0 0 */2 * 1` means the same to every library for cron lines. Day and weekday are both restricted, so one of them is enough, as
# crontab(5) says: midnight of odd days and of Mondays. `1-31/2` is the same list of days, so it means the same too.
# Seen with croniter 7.0.0, cronsim 2.8 and cron-converter 2.0.2 for Python, croner 11.0.1, cron-parser 5.10.6 and cron 4.4.0 for
# JavaScript: four of them take it so. For cronsim a field that begins with `*` is no restriction, as in the source of Vixie cron, so it
# runs on Mondays that are odd days, and `1-31/2` changes that. For cron-converter both fields must match, always. So the same line runs
# 18 times or twice in December 2026, and a line that one library checks and another one runs changes its meaning without an error.
# Output seen (Python 3.11, Node 20.20.2), for `0 0 */2 * 1` and `0 0 1-31/2 * 1`:
#   croniter 18 18
#   cronsim 2 18
#   cron-converter 2 2
#   croner 18 18
#   cron-parser 18 18
#   cron 18 18
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts croner@11.0.1 cron-parser@5.10.6 cron@4.4.0 luxon@3.7.2 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check croniter==7.0.0 cronsim==2.8 cron-converter==2.0.2
cat >count.py <<'PY'
from datetime import datetime, timezone
from croniter import croniter
from cron_converter import Cron
from cronsim import CronSim

begin = datetime(2026, 11, 30, 23, 59, tzinfo=timezone.utc)
end = datetime(2027, 1, 1, tzinfo=timezone.utc)


def with_croniter(line):
    times = croniter(line, begin)
    return iter(lambda: times.get_next(datetime), None)


def with_cron_converter(line):
    times = Cron(line).schedule(begin)
    return iter(times.next, None)


def runs(times):
    return next(number for number, time in enumerate(times) if time >= end)


libraries = {"croniter": with_croniter, "cronsim": lambda line: CronSim(line, begin), "cron-converter": with_cron_converter}
for name, times in libraries.items():
    print(name, runs(times("0 0 */2 * 1")), runs(times("0 0 1-31/2 * 1")))
PY
cat >count.js <<'JS'
import { CronTime } from 'cron';
import { CronExpressionParser } from 'cron-parser';
import { Cron } from 'croner';
import { DateTime } from 'luxon';

const begin = new Date('2026-11-30T23:59:00Z');
const end = new Date('2027-01-01T00:00:00Z');
const libraries = {
  croner: (line) => (after) => new Cron(line, { timezone: 'UTC', paused: true }).nextRun(after),
  'cron-parser': (line) => (after) => CronExpressionParser.parse(line, { currentDate: after, tz: 'UTC' }).next().toDate(),
  cron: (line) => (after) => new CronTime(line, 'utc').getNextDateFrom(DateTime.fromJSDate(after, { zone: 'utc' }), 'utc').toJSDate(),
};
const runs = (next) => {
  let count = -1;
  for (let time = begin; time < end; time = next(time)) count += 1;
  return count;
};
for (const [name, next] of Object.entries(libraries)) console.log(name, runs(next('0 0 */2 * 1')), runs(next('0 0 1-31/2 * 1')));
JS
{ v/bin/python count.py; node count.js; } | tee seen
diff seen - <<'TEXT'
croniter 18 18
cronsim 2 18
cron-converter 2 2
croner 18 18
cron-parser 18 18
cron 18 18
TEXT
