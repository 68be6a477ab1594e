#!/usr/bin/env bash
# Guess: bwrap --die-with-parent ends the sandbox when the parent process ends.
# Seen with bubblewrap 0.8.0 (Debian 12) and Linux 6: it ends as soon as the *thread* ends that has started it, while the process
# lives on. bwrap asks the kernel for a signal at the death of its parent, and for the kernel the parent is a thread. A program that
# starts sandboxes from the threads of a pool loses them when the pool shrinks. bwrap(1) speaks of the parent only.
# Output seen:
#   started by a thread that has ended: ended by signal 9
#   started by the main thread: runs
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v bwrap >/dev/null || { echo "needs bubblewrap" >&2; exit 1; }
cat >"$folder/threads.py" <<'PY'
import subprocess, threading, time

def start(found):
    command = ["bwrap", "--dev-bind", "/", "/", "--die-with-parent", "sh", "-c", "echo up; exec sleep 60"]
    found.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    found[-1].stdout.readline()  # it has passed its own setup

def how(process):
    for _ in range(100):
        if process.poll() is not None:
            return f"ended by signal {-process.returncode}"
        time.sleep(0.05)
    return "runs"

processes = []
thread = threading.Thread(target=start, args=(processes,))
thread.start()
thread.join()
start(processes)
print("started by a thread that has ended:", how(processes[0]))
print("started by the main thread:", how(processes[1]))
processes[1].kill()
PY
python3 "$folder/threads.py" | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
started by a thread that has ended: ended by signal 9
started by the main thread: runs
SEEN
