#!/usr/bin/env bash
# Guess: Sunday is 0, 7 and SUN for a library for cron lines (crontab(5)), alone, in a list, at the end of a range and in a range with
# steps. A library that does not take one of these raises an error.
# Seen with croniter 7.0.0, cronsim 2.8, cron-converter 2.0.2, pycron 3.3.0 and APScheduler 3.11.3 for Python, croner 11.0.1, cron-parser
# 5.10.6, cron 4.4.0 and cron-schedule 6.0.0 for Node: for pycron 7 is no day, so a job of Sundays never runs, and one from Friday to Sunday
# lacks its last day, also as MON-SUN, without an error. cron-converter takes 5-7, and leaves Sunday out if there is a step, as in 1-7/2.
# `from_crontab` of APScheduler begins with 0 for Monday, so the weekend 0,6 is Monday and Sunday. Its documentation names the first day of
# the week. Four of nine refuse MON-SUN. So SAT,SUN is safe, and a line that one library has checked may lose a day with another one.
# Output seen (Python 3.11, Node 20.20.2): the days of a week on which a job runs
#   croniter: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN Mo Tu We Th Fr Sa Su | 0,6 Sa Su | SAT,SUN Sa Su
#   cronsim: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN error | 0,6 Sa Su | SAT,SUN Sa Su
#   cron-converter: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr | MON-SUN error | 0,6 Sa Su | SAT,SUN Sa Su
#   pycron: 7 never | 5-7 Fr Sa | 1-7/2 Mo We Fr | MON-SUN Mo Tu We Th Fr Sa | 0,6 Sa Su | SAT,SUN Sa Su
#   APScheduler: 7 error | 5-7 error | 1-7/2 error | MON-SUN Mo Tu We Th Fr Sa Su | 0,6 Mo Su | SAT,SUN Sa Su
#   croner: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN Mo Tu We Th Fr Sa Su | 0,6 Sa Su | SAT,SUN Sa Su
#   cron-parser: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN error | 0,6 Sa Su | SAT,SUN Sa Su
#   cron: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN error | 0,6 Sa Su | SAT,SUN Sa Su
#   cron-schedule: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN Mo Tu We Th Fr Sa Su | 0,6 Sa Su | SAT,SUN Sa Su
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts croner@11.0.1 cron-parser@5.10.6 cron@4.4.0 luxon@3.7.2 cron-schedule@6.0.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check croniter==7.0.0 cronsim==2.8 cron-converter==2.0.2 pycron==3.3.0 \
    APScheduler==3.11.3
echo '["7", "5-7", "1-7/2", "MON-SUN", "0,6", "SAT,SUN"]' >weekdays.json
cat >days.py <<'PY'
import json
from datetime import datetime, timedelta, timezone
import pycron
from apscheduler.triggers.cron import CronTrigger
from cron_converter import Cron
from croniter import croniter
from cronsim import CronSim

begin = datetime(2026, 12, 6, 23, 59, tzinfo=timezone.utc)  # a Sunday
end = begin + timedelta(days=7)


def with_croniter(line):
    times = croniter(line, begin)
    return iter(lambda: times.get_next(datetime), None)


def with_pycron(line):
    mornings = (datetime(2026, 12, 7, 9, tzinfo=timezone.utc) + timedelta(days=number) for number in range(8))
    return iter([time for time in mornings if pycron.is_now(line, time)] + [end])


def with_apscheduler(line):
    trigger, time = CronTrigger.from_crontab(line, timezone=timezone.utc), begin
    while True:
        time = trigger.get_next_fire_time(time, time)
        yield time


libraries = {"croniter": with_croniter, "cronsim": lambda line: CronSim(line, begin),
             "cron-converter": lambda line: iter(Cron(line).schedule(begin).next, None),
             "pycron": with_pycron, "APScheduler": with_apscheduler}
for name, times in libraries.items():
    seen = []
    for weekday in json.load(open("weekdays.json")):
        days = []
        try:
            for time in times(f"0 9 * * {weekday}"):
                if time >= end:
                    break
                days.append(time.strftime("%a")[:2])
        except Exception:
            days = ["error"]
        seen.append(f"{weekday} {' '.join(days) or 'never'}")
    print(f"{name}: {' | '.join(seen)}")
PY
cat >days.js <<'JS'
import { readFileSync } from 'node:fs';
import { CronTime } from 'cron';
import { CronExpressionParser } from 'cron-parser';
import { parseCronExpression } from 'cron-schedule';
import { Cron } from 'croner';
import { DateTime } from 'luxon';

const begin = new Date('2026-12-06T23:59:00Z');
const end = new Date('2026-12-13T23:59:00Z');
// Each gives the next time after a given one.
const libraries = {
  croner: (line) => (time) => new Cron(line, { timezone: 'UTC' }).nextRun(time),
  'cron-parser': (line) => (time) => CronExpressionParser.parse(line, { currentDate: time, tz: 'UTC' }).next().toDate(),
  cron: (line) => (time) => new CronTime(line, 'UTC').getNextDateFrom(DateTime.fromJSDate(time, { zone: 'UTC' }), 'UTC').toJSDate(),
  'cron-schedule': (line) => (time) => parseCronExpression(line).getNextDate(time),
};
for (const [name, library] of Object.entries(libraries)) {
  const seen = JSON.parse(readFileSync('weekdays.json')).map((weekday) => {
    const days = [];
    try {
      const next = library(`0 9 * * ${weekday}`);
      for (let time = next(begin); time < end; time = next(time)) days.push(time.toUTCString().slice(0, 2));
    } catch {
      days.push('error');
    }
    return `${weekday} ${days.join(' ') || 'never'}`;
  });
  console.log(`${name}: ${seen.join(' | ')}`);
}
JS
{
    v/bin/python days.py
    TZ=UTC node days.js
} | tee seen
diff seen - <<'TEXT'
croniter: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN Mo Tu We Th Fr Sa Su | 0,6 Sa Su | SAT,SUN Sa Su
cronsim: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN error | 0,6 Sa Su | SAT,SUN Sa Su
cron-converter: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr | MON-SUN error | 0,6 Sa Su | SAT,SUN Sa Su
pycron: 7 never | 5-7 Fr Sa | 1-7/2 Mo We Fr | MON-SUN Mo Tu We Th Fr Sa | 0,6 Sa Su | SAT,SUN Sa Su
APScheduler: 7 error | 5-7 error | 1-7/2 error | MON-SUN Mo Tu We Th Fr Sa Su | 0,6 Mo Su | SAT,SUN Sa Su
croner: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN Mo Tu We Th Fr Sa Su | 0,6 Sa Su | SAT,SUN Sa Su
cron-parser: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN error | 0,6 Sa Su | SAT,SUN Sa Su
cron: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN error | 0,6 Sa Su | SAT,SUN Sa Su
cron-schedule: 7 Su | 5-7 Fr Sa Su | 1-7/2 Mo We Fr Su | MON-SUN Mo Tu We Th Fr Sa Su | 0,6 Sa Su | SAT,SUN Sa Su
TEXT
