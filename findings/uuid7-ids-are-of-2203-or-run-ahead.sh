#!/usr/bin/env bash
# Guess: libraries for UUIDs of version 7 write the milliseconds since 1970 into the first 48 bits (RFC 9562, 5.7). So any of them can read
# the time of an id, and an id that a second process makes later comes behind those of the first one, once a millisecond has passed.
# Seen with uuid6 2025.0.1, uuid7 0.1.0, uuid-utils 1.2.0, fastuuid7 0.5.0, lastuuid 0.5.0, edwh-uuid7 0.2.3 and future-uuid 1.0.0 for
# Python: uuid7 writes the form of an early draft under the same version number. For other readers its ids are of the year 2203, so they
# sort behind those of all other libraries. Its own function for the time reads the others as of 1983. uuid6 gives each id a millisecond of
# its own, so the ids of a program that makes many run ahead of the clock, here by up to 20 seconds. The id that another process makes
# then sorts in front of them, and a reader that asks for the ids behind the last one does not see it. Within a process the ids of all
# seven are sorted, so that a test sees neither. No library gives an error.
# Output seen (Python 3.11), for 20000 ids of one process and a later id of a second one; the last words say whether the year that is read
# from the later id is that of the clock:
#   uuid6: all sorted, later id in front, clock ahead, read by lastuuid right, by uuid7 wrong
#   uuid7: all sorted, later id last, clock ahead, read by lastuuid wrong, by uuid7 right
#   uuid-utils: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
#   fastuuid7: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
#   lastuuid: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
#   edwh-uuid7: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
#   future-uuid: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check uuid6==2025.0.1 uuid7==0.1.0 uuid-utils==1.2.0 fastuuid7==0.5.0 lastuuid==0.5.0 \
    edwh-uuid7==0.2.3 future-uuid==1.0.0
cat >ids.py <<'PY'
import datetime, importlib, subprocess, sys, time, uuid
from lastuuid import uuid7_to_datetime
from uuid_extensions import uuid_to_datetime

name, *once = sys.argv[1:]
make = importlib.import_module({"uuid7": "uuid_extensions"}.get(name, name.replace("-", "_"))).uuid7
if once:
    print(make())
    sys.exit()
ids = [str(make()) for _ in range(20_000)]
now = time.time()
time.sleep(0.1)
later = subprocess.run([sys.executable, *sys.argv, "once"], capture_output=True, text=True, check=True).stdout.strip()


def date(read, id):
    """Is the year that a library reads that of the clock?"""
    year = read(uuid.UUID(id)).year
    return "right" if year == datetime.datetime.now(datetime.UTC).year else "wrong"


seconds = (uuid.UUID(ids[-1]).int >> 80) / 1000 - now
clock = "ahead" if seconds > 5 else "right"
order = "all sorted" if ids == sorted(ids) else "not sorted"
first = "later id last" if ids[-1] < later else "later id in front"
reads = f"read by lastuuid {date(uuid7_to_datetime, later)}, by uuid7 {date(uuid_to_datetime, later)}"
print(f"{name}: {order}, {first}, clock {clock}, {reads}")
PY
for library in uuid6 uuid7 uuid-utils fastuuid7 lastuuid edwh-uuid7 future-uuid; do
    v/bin/python ids.py "$library"
done | tee seen
diff seen - <<'TEXT'
uuid6: all sorted, later id in front, clock ahead, read by lastuuid right, by uuid7 wrong
uuid7: all sorted, later id last, clock ahead, read by lastuuid wrong, by uuid7 right
uuid-utils: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
fastuuid7: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
lastuuid: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
edwh-uuid7: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
future-uuid: all sorted, later id last, clock right, read by lastuuid right, by uuid7 wrong
TEXT
