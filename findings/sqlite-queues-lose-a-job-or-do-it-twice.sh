#!/usr/bin/env bash
# Guess: a job queue for one machine, in a file of SQLite, gives a job whose worker was killed to the next worker, and gives no job to two
# workers at once.
# Seen with huey 3.5.4 (three repetitions allowed), litequeue 0.9, persist-queue 1.1.0 (SQLiteAckQueue) and gigq 0.5.1 (timeout of
# 2 seconds, three attempts) for Python: huey takes the job out of the file before it runs it, so that the job is gone. litequeue leaves
# it locked, and no worker gets it by itself (`list_locked` finds it). persist-queue gives it out again at the start of
# each process that opens the file, and does so too while the first worker still works on it. gigq gives it out again after its timeout,
# and the first worker works on behind its timeout, so that two do it.
# Output seen (Python 3.11), for a job of 6 seconds: how often it was begun, if the first worker is killed before the second one starts,
# and if the second one starts beside it
#   huey: killed 1, beside 1
#   litequeue: killed 1, beside 1
#   persist-queue: killed 2, beside 2
#   gigq: killed 2, beside 2
#   huey, after a kill: 0 waiting
#   litequeue, after a kill: 0 waiting, 1 locked
set -euo pipefail
folder=$(mktemp -d)
trap '[ $? = 0 ] || cat "$folder/log" || true; kill "${first:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check huey==3.5.4 litequeue==0.9 persist-queue==1.1.0 gigq==0.5.1
cat >work.py <<'PY'
import time


def work(seconds):
    with open("begun", "a") as file:
        file.write("begun\n")
    time.sleep(seconds)
PY
cat >worker.py <<'PY'
# worker.py LIBRARY put: puts a job of 6 seconds. worker.py LIBRARY SECONDS: works for so long.
# worker.py LIBRARY left: says what is in the file.
import logging, sys, time
from work import work

logging.disable()
library, what = sys.argv[1:]


def huey():
    from huey import SqliteHuey
    queue = SqliteHuey(filename="file")
    task = queue.task(retries=3)(work)

    def step():
        if job := queue.dequeue():
            queue.execute(job)
        return job
    return lambda: task(6), step, lambda: f"{queue.pending_count()} waiting"


def litequeue():
    from litequeue import LiteQueue
    queue = LiteQueue("file")
    locked = lambda: list(queue.list_locked(0))

    def step():
        if job := queue.pop():
            work(int(job.data))
            queue.done(job.message_id)
        return job
    return lambda: queue.put("6"), step, lambda: f"{queue.qsize() - len(locked())} waiting, {len(locked())} locked"


def persist_queue():
    from persistqueue import SQLiteAckQueue
    queue = SQLiteAckQueue("file")

    def step():
        if queue.empty():
            return False
        job = queue.get()
        work(job)
        queue.ack(job)
        return True
    return lambda: queue.put(6), step, None


def gigq():
    from gigq import Job, JobQueue, Worker
    queue = JobQueue("file")
    job = Job(name="job", function=work, params={"seconds": 6}, timeout=2, max_attempts=3)
    return lambda: queue.submit(job), Worker("file").process_one, None


put, step, left = {"huey": huey, "litequeue": litequeue, "persist-queue": persist_queue, "gigq": gigq}[library]()
if what == "put":
    put()
elif what == "left":
    print(f"{library}, after a kill: {left()}")
else:
    end = time.monotonic() + float(what)
    while time.monotonic() < end:
        step() or time.sleep(0.1)
PY
begun() { # LIBRARY HOW: how often the job was begun; the second worker takes jobs for 4 seconds
    rm -rf file* begun
    v/bin/python worker.py "$1" put
    v/bin/python worker.py "$1" 1 >>log 2>&1 & first=$!
    until [ -s begun ]; do
        kill -0 $first 2>>log || return
        sleep 0.1
    done
    if [ "$2" = killed ]; then kill -9 $first; fi
    v/bin/python worker.py "$1" 4 >>log 2>&1
    wait $first 2>>log || true
    wc -l <begun
}
{
    for library in huey litequeue persist-queue gigq; do
        echo "$library: killed $(begun $library killed), beside $(begun $library beside)"
    done
    for library in huey litequeue; do
        begun $library killed >>log
        v/bin/python worker.py $library left
    done
} 2>>log | tee seen
diff seen - <<'TEXT'
huey: killed 1, beside 1
litequeue: killed 1, beside 1
persist-queue: killed 2, beside 2
gigq: killed 2, beside 2
huey, after a kill: 0 waiting
litequeue, after a kill: 0 waiting, 1 locked
TEXT
