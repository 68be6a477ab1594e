"""Workers in containers of a Podman that runs in the machine.

The machine has no controllers for memory and processes, as the machines of these tests have none to give: that a container is held
to its memory is not seen here.
"""

import json

from machine import expect, until

SETTINGS = """
[llm]
provider = "rehearsal"

[channels.stdin]
enabled = false

[telemetry]
format = "json"

[workers]
enabled = true
host = "container"
image = "localhost/belay-worker:latest"
docker_socket = "/run/containers.sock"

[[approvals.rules]]
tool = "run_in_worker"
ask = "never"

[[approvals.rules]]
tool = "run_command"
ask = "never"
"""

# Podman's socket belongs to a group, which the service is in.
SOCKET = "[Socket]\nListenStream=\nListenStream=/run/containers.sock\nSocketMode=0660\nSocketGroup=containers\n"
MEMBER = "[Service]\nSupplementaryGroups=containers\n"
# An OCI runtime that leaves out the limits for which the machine has no controllers. Everything else is runc's.
RUNTIME = r"""#!/bin/sh
for word; do
    if [ "$before" = --bundle ]; then
        sed -i -e 's/,"\(memory\|cpu\|pids\)":{[^{}]*}//g' -e 's/"\(memory\|cpu\|pids\)":{[^{}]*},\{0,1\}//g' "$word/config.json"
    fi
    before=$word
done
exec /usr/bin/runc "$@"
"""
ENGINE = """
[containers]
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "machine"
[engine.runtimes]
machine = ["/usr/local/bin/runc-of-the-machine"]
"""
# The machine's root is an overlay already.
STORAGE = '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n'

# What is in the image: the C library and the commands of the checks, with the libraries they load.
IMAGE = r"""
set -eu
cd /
programs="/usr/bin/sh /usr/bin/dash /usr/bin/cat /usr/bin/sleep /usr/bin/touch /usr/bin/id /usr/bin/ls /usr/bin/setsid"
libraries=$(for file in $programs /usr/local/bin/belay; do ldd $(readlink -f $file) | grep -o "/[^ ]*[.]so[^ ]*"; done | sort -u)
mkdir -p /tmp/image/tmp /tmp/image/proc /tmp/image/dev /tmp/image/sys /tmp/image/etc /tmp/image/usr/bin /tmp/image/usr/lib /tmp/image/usr/lib64
chmod 1777 /tmp/image/tmp
cp -a bin lib lib64 /tmp/image
for file in $programs; do cp -a --parents $file /tmp/image; done
for file in $libraries; do mkdir -p /tmp/image/$(dirname $file); cp -L $file /tmp/image/$file; done
tar -C /tmp/image -c . | podman import --quiet - localhost/belay-worker:latest
rm -r /tmp/image
"""


def task(command, **more):
    """A message that has a worker run a command."""
    inner = "call run_command " + json.dumps({"argv": command})
    return "call run_in_worker " + json.dumps({"task": inner, **more})


def containers_of(machine):
    """The containers there are, running or not."""
    return machine.run("podman", "ps", "--all", "--quiet").stdout.split()


def nothing_is_left(machine):
    """Waits until there is no container, and nothing of a worker runs."""
    until("the end of all containers", lambda: not containers_of(machine))
    until("the end of their processes", lambda: not machine.processes(r"sleep 600|belay/worker|conmon"))
    mounts = [line for line in machine.run("cat", "/proc/mounts").stdout.splitlines() if "/belay/worker" in line]
    expect(not mounts, f"mounts are left: {mounts}")


def at_work(world, session, **more):
    """A run whose worker is in the middle of a command, in a container."""
    run = world.send(session, task(["sleep", "600"], **more), wait_ms=0)
    until("a command in a container", lambda: world.machine.processes(r"^[^ ]*sleep 600 $"))
    return run["run_id"]


def a_worker_in_a_live_container_does_its_work(world):
    machine = world.machine
    machine.run("systemctl", "stop", "belay.service")
    machine.write("/usr/local/bin/runc-of-the-machine", RUNTIME, 0o755)
    machine.write("/etc/containers/containers.conf", ENGINE)
    machine.write("/etc/containers/storage.conf", STORAGE)
    machine.write("/etc/systemd/system/podman.socket.d/belay.conf", SOCKET)
    machine.write("/etc/systemd/system/belay.service.d/containers.conf", MEMBER)
    machine.write("/etc/belay/belay.toml", SETTINGS)
    machine.run("groupadd", "--system", "containers")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "podman.socket")
    machine.run("sh", "-c", IMAGE)
    machine.run("systemctl", "start", "belay.service")
    world.active()
    reply = world.answered("work", task(["sh", "-c", "id -u; cat note.txt; echo made > made-by-a-worker"]))
    expect("plover" in reply, reply)
    expect('"termination":"GOAL"' in reply, reply)
    made = machine.inside("/var/lib/belay/workspace/made-by-a-worker")
    expect(made.read_text(encoding="utf-8") == "made\n", "the file is not in the workspace")
    nothing_is_left(machine)


def a_worker_in_a_container_has_no_network_and_writes_nowhere_else(world):
    script = "ls /sys/class/net; for f in /made /usr/made /etc/made /belay/worker /belay/link; do touch $f 2>&1 || echo refused; done; cat /proc/self/status"
    reply = world.answered("walls", task(["sh", "-c", script]))
    expect(reply.count("refused") == 5, f"it can write outside of the workspace: {reply}")
    # The result is a text in JSON, where a line ends with a backslash and an n.
    expect("[exit code 0]\\nlo\\ntouch" in reply, f"it has a network: {reply}")
    for fact in ("CapEff:\\t0000000000000000", "CapBnd:\\t0000000000000000", "NoNewPrivs:\\t1"):
        expect(fact in reply, f"not {fact}: {reply}")
    nothing_is_left(world.machine)


def a_worker_in_a_container_is_stopped_in_the_middle_of_a_command(world):
    run = at_work(world, "stopped")
    status, answer = world.machine.ask("POST", f"/api/v1/runs/{run}/stop?wait_ms=10000")
    expect(status == 200, f"{status}: {answer}")
    ended = world.ended(run)
    expect(ended["status"] == "stopped", f"{ended}")
    nothing_is_left(world.machine)


def a_worker_in_a_container_that_is_killed_is_a_failure(world):
    machine, run = world.machine, at_work(world, "killed-worker")
    machine.run("podman", "kill", *containers_of(machine))
    ended = world.ended(run)
    expect("ERROR" in (ended["reply"] or ""), f"{ended}")
    nothing_is_left(machine)


def a_worker_in_a_container_is_cut_off_at_its_time_limit(world):
    run = at_work(world, "timed", max_time_s=5)
    ended = world.ended(run)
    expect("TIME" in (ended["reply"] or "").upper(), f"{ended}")
    nothing_is_left(world.machine)


def a_container_that_a_killed_daemon_leaves_is_removed_at_the_next_start(world):
    machine, before = world.machine, world.active()
    at_work(world, "left-behind")
    machine.run("systemctl", "kill", "--signal=KILL", "--kill-who=main", "belay.service")
    world.restarted(before)
    world.listens()
    machine.ask("POST", "/api/v1/stop?wait_ms=10000")
    nothing_is_left(machine)


CHECKS = [
    a_worker_in_a_live_container_does_its_work,
    a_worker_in_a_container_has_no_network_and_writes_nowhere_else,
    a_worker_in_a_container_is_stopped_in_the_middle_of_a_command,
    a_worker_in_a_container_that_is_killed_is_a_failure,
    a_worker_in_a_container_is_cut_off_at_its_time_limit,
    a_container_that_a_killed_daemon_leaves_is_removed_at_the_next_start,
]
