"""What is looked at in the machine, in order. A check is a function whose name is the sentence that is printed."""

import os
import pathlib
import subprocess
import sys
import time

import containers
import rootfs
from machine import Failed, Machine, expect, until

SETTINGS = """
[llm]
provider = "rehearsal"

[channels.stdin]
enabled = false

[telemetry]
format = "json"
"""

# What `systemctl edit belay` makes: the secrets of this machine, as docs/guide/operator.md has them. The watchdog bites sooner
# than the shipped one, so that nobody waits 30 s for it.
DROP_IN = """
[Service]
LoadCredential=belay_token:/etc/belay/secrets/belay_token
LoadCredential=belay_operator_token:/etc/belay/secrets/belay_operator_token
WatchdogSec=10
"""

TOKEN, OPERATOR = "token-of-the-client", "token-of-the-operator"
UNIT = "/etc/systemd/system/belay.service.d/machine.conf"
SECRETS = "/etc/belay/secrets"


class World:
    """The machine, and the service in it as a client sees it."""

    def __init__(self, machine):
        self.machine = machine

    def send(self, session, text, wait_ms=60_000, **more):
        """A message; its run when that has ended, or rests on a question, in time."""
        status, run = self.machine.ask("POST", "/api/v1/messages", {"session": session, "text": text, "wait_ms": wait_ms, **more})
        if status not in (200, 202):
            raise Failed(f"{text!r} was answered {status}: {run}")
        return run

    def ended(self, run_id):
        """The run, once it has ended."""
        def look():
            status, run = self.machine.ask("GET", f"/api/v1/runs/{run_id}/wait?timeout_ms=20000")
            return run if status == 200 and run.get("status") in ("completed", "stopped", "failed") else None
        return until(f"the end of the run {run_id}", look)

    def answered(self, session, text):
        """The reply to a message whose calls need nobody's yes."""
        run = self.send(session, text)
        if run.get("status") != "completed":
            raise Failed(f"{text!r}: {run}")
        return run["reply"]

    def approved(self, session, text):
        """The reply to a message that asks once, and is answered yes."""
        run = self.send(session, text)
        self.say_yes(run)
        return self.ended(run["run_id"])["reply"]

    def say_yes(self, run):
        """Approves what a run waits for."""
        question = (run.get("waiting_for") or {}).get("approval")
        if run.get("status") != "paused" or not question:
            raise Failed(f"nobody was asked: {run}")
        status, answer = self.machine.ask("POST", f"/api/v1/approvals/{question}", {"decision": "approve"})
        if status != 200:
            raise Failed(f"the yes was answered {status}: {answer}")

    def active(self):
        """The main process of the unit, once systemd calls it active."""
        def look():
            found = self.machine.show("ActiveState", "SubState", "MainPID", "Result")
            # Between two starts the state is "activating"; "failed" lasts.
            expect(found["ActiveState"] != "failed", f"the unit has failed: {found['Result']}")
            return int(found["MainPID"]) if (found["ActiveState"], found["SubState"]) == ("active", "running") else None
        return until("the unit to be active", look)

    def restarted(self, before):
        """The new main process after one that has died."""
        return until("a new main process", lambda: (pid := self.active()) != before and pid)

    def listens(self):
        """Waits until the control socket answers."""
        until("the control socket", lambda: self.machine.ask("GET", "/readyz")[0] == 200)


def the_installed_unit_becomes_active_and_answers(world):
    machine = world.machine
    machine.run("systemctl", "start", "belay.service")
    world.active()
    status, found = machine.ask("GET", "/api/v1/status")
    expect(status == 200, f"status: {status} {found}")
    said = machine.run("systemd-analyze", "verify", "/usr/local/lib/systemd/system/belay.service", check=False).stdout
    expect("Unknown" not in said and "belay.service:" not in said, said)


def it_runs_as_a_user_of_its_own_without_capabilities(world):
    status = world.machine.inside(f"/proc/{world.active()}/status").read_text(encoding="ascii")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    expect(facts["Uid"].split()[0] not in ("0", "65534"), f"the user is {facts['Uid']}")
    expect(facts["CapEff"] == facts["CapBnd"] == "0" * 16, f"capabilities: {facts['CapEff']}, {facts['CapBnd']}")
    expect(facts["NoNewPrivs"] == "1", "new privileges are possible")


def the_tokens_come_from_credentials(world):
    machine = world.machine
    expect(machine.tcp_status("/livez") == 200, "a probe needs a token")
    expect(machine.tcp_status("/api/v1/status") == 401, "a request without a token was not refused")
    expect(machine.tcp_status("/api/v1/status", "another") == 401, "a wrong token was not refused")
    expect(machine.tcp_status("/api/v1/status", TOKEN) == 200, "the token was refused")
    expect(machine.tcp_status("/api/v1/heartbeat", TOKEN) == 403, "the token is an operator's")
    expect(machine.tcp_status("/api/v1/heartbeat", OPERATOR) == 200, "the operator's token was refused")


def the_file_tools_read_and_write_the_workspace(world):
    machine = world.machine
    until("the workspace", lambda: machine.inside("/var/lib/belay/workspace").is_dir())
    note = machine.inside("/var/lib/belay/workspace/note.txt")
    note.write_text("the word is plover\n", encoding="utf-8")
    reply = world.answered("files", 'call read_file {"path":"note.txt"}')
    expect("plover" in reply, reply)
    world.approved("files", 'call write_file {"path":"made.txt","content":"made by a tool"}')
    made = machine.inside("/var/lib/belay/workspace/made.txt").read_text(encoding="utf-8")
    expect(made == "made by a tool", made)


def a_command_asks_and_runs_in_the_sandbox(world):
    script = "id -u; cat note.txt; ls /var/lib/belay/belay.db /etc/belay/secrets /run/credentials 2>&1; ls /sys/class/net; touch here && echo written"
    reply = world.approved("commands", 'call run_command {"argv":["sh","-c","' + script + '"]}')
    expect("plover" in reply and "written" in reply, reply)
    expect(reply.count("No such file") == 3, f"the sandbox shows what it must not: {reply}")


def each_command_has_a_control_group_of_its_own(world):
    machine = world.machine
    run = world.send("groups", 'call run_command {"argv":["sleep","600"]}')
    world.say_yes(run)
    group = machine.show("ControlGroup")["ControlGroup"]
    unit = machine.inside("/sys/fs/cgroup" + group)

    def leaves():
        return [leaf for leaf in unit.iterdir() if leaf.is_dir()]

    pids = {str(pid) for pid in until("the command", lambda: machine.processes(r"^[^ ]*sleep 600 $"))}
    found = {leaf.name: set(machine.run("cat", f"/sys/fs/cgroup{group}/{leaf.name}/cgroup.procs").stdout.split()) for leaf in leaves()}
    expect(len(found) == 1 and all(pids <= members for members in found.values()), f"the command is {pids}, the groups are {found}")
    status, answer = machine.ask("POST", f"/api/v1/runs/{run['run_id']}/stop?wait_ms=10000")
    expect(status == 200, f"the stop was answered {status}: {answer}")
    until("the end of the group", lambda: not leaves())
    expect(not machine.processes(r"^[^ ]*sleep 600 $"), "the command is still there")


def status_answers_root_and_nobody_else(world):
    machine = world.machine
    said = machine.run("belay", "status").stdout
    expect("rehearsal" in said, said)
    machine.run("useradd", "--no-create-home", "stranger")
    other = machine.run("setpriv", "--reuid=stranger", "--regid=stranger", "--clear-groups", "belay", "status", check=False)
    expect(other.returncode != 0, f"a stranger was answered: {other.stdout}")


def after_sigkill_an_accepted_message_is_answered_once(world):
    machine, before = world.machine, world.active()
    accepted = world.send("killed", "rehearse stall 3", wait_ms=0, idempotency_key="once")
    until("the run", lambda: machine.ask("GET", f"/api/v1/runs/{accepted['run_id']}")[1].get("status") == "running")
    machine.run("systemctl", "kill", "--signal=KILL", "--kill-who=main", "belay.service")
    world.restarted(before)
    world.listens()
    run = world.ended(accepted["run_id"])
    expect(run["status"] == "completed" and run["attempt"] == 2, f"{run}")
    again = world.send("killed", "rehearse stall 3", idempotency_key="once")
    expect(again["run_id"] == accepted["run_id"], f"the same key made another run: {again}")
    _, found = machine.ask("GET", "/api/v1/sessions/killed/messages")
    said = [message["role"] for message in found["messages"]]
    expect(said == ["user", "assistant"], f"{found}")


def a_daemon_that_stands_still_is_killed_by_the_watchdog_and_started_again(world):
    machine, before = world.machine, world.active()
    machine.run("systemctl", "kill", "--signal=STOP", "--kill-who=main", "belay.service")
    world.restarted(before)
    world.listens()
    expect("Watchdog timeout" in machine.journal(), "it was not the watchdog")


def a_reload_keeps_the_process_and_takes_the_new_settings(world):
    machine, before, since = world.machine, world.active(), time.time()
    if not machine.show("ExecReload").get("ExecReload"):
        return "the unit has no ExecReload="
    machine.write("/etc/belay/belay.toml", SETTINGS + '\nlog = "debug"\n')
    machine.run("systemctl", "reload", "belay.service")
    expect(world.active() == before, "the reload has restarted the service")
    until("a line that says what has changed", lambda: "telemetry.log" in machine.journal(since))
    machine.write("/etc/belay/belay.toml", SETTINGS + "\nlog = 7 x\n")
    machine.run("systemctl", "reload", "belay.service", check=False)
    expect(world.active() == before, "a bad file has ended the service")
    until("an error line", lambda: '"ERROR"' in machine.journal(since))
    machine.write("/etc/belay/belay.toml", SETTINGS)
    machine.run("systemctl", "reload", "belay.service")
    return None


def a_stop_drains_within_the_time_of_the_unit(world):
    machine = world.machine
    accepted = world.send("drained", "rehearse stall 2", wait_ms=0)
    until("the run", lambda: machine.ask("GET", f"/api/v1/runs/{accepted['run_id']}")[1].get("status") == "running")
    machine.run("systemctl", "stop", "belay.service")
    found = machine.show("Result", "ExecMainStatus", "ActiveState")
    expect(found == {"Result": "success", "ExecMainStatus": "0", "ActiveState": "inactive"}, f"{found}: {machine.journal()}")
    machine.run("systemctl", "start", "belay.service")
    world.active()
    status, run = machine.ask("GET", f"/api/v1/runs/{accepted['run_id']}")
    expect(status == 200 and run["status"] == "completed", f"the drain did not wait for the run: {run}")


def nothing_of_the_service_is_left_after_its_stop(world):
    machine = world.machine
    run = world.send("left", 'call run_command {"argv":["sh","-c","setsid sleep 4242 & sleep 4243"]}')
    world.say_yes(run)
    until("the command", lambda: machine.processes(r"^sleep 424[23]"))
    unit = machine.inside("/sys/fs/cgroup" + machine.show("ControlGroup")["ControlGroup"])
    machine.run("systemctl", "stop", "belay.service")
    expect(machine.show("Result")["Result"] == "success", machine.journal())
    expect(not machine.processes(r"sleep 424|belay"), "processes are left")
    expect(not unit.exists(), "the control group is left")


def a_refused_configuration_ends_with_78_and_is_not_tried_again(world):
    machine = world.machine
    machine.write("/etc/belay/belay.toml", "[llm]\nprovder = 'x'\n")
    machine.run("systemctl", "stop", "belay.service")
    machine.run("systemctl", "start", "belay.service", check=False)
    found = machine.show("ExecMainStatus", "ActiveState", "NRestarts")
    machine.write("/etc/belay/belay.toml", SETTINGS)
    machine.run("systemctl", "reset-failed", "belay.service")
    expect(found == {"ExecMainStatus": "78", "ActiveState": "failed", "NRestarts": "0"}, f"{found}")


def a_user_with_a_home_that_the_unit_hides_can_run_it(world):
    machine = world.machine
    machine.run("useradd", "--create-home", "--home-dir=/home/agent", "agent")
    machine.run("systemctl", "stop", "belay.service")
    own = '[Service]\nDynamicUser=no\nUser=agent\nEnvironment=HOME=/home/agent\n'
    machine.write("/etc/systemd/system/belay.service.d/user.conf", own)
    try:
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "belay.service")
        world.active()
        expect("/home/agent/.config/belay/belay.toml" in machine.journal(), "no line says that the file was passed over")
        expect("391" in world.answered("home", "calculate 17*23"), "it does not work")
    finally:
        machine.run("systemctl", "stop", "belay.service", check=False)
        machine.inside("/etc/systemd/system/belay.service.d/user.conf").unlink()
        machine.run("systemctl", "daemon-reload")


def status_answers_a_member_of_the_group_of_the_socket(world):
    machine = world.machine
    if "control_group" not in machine.run("belay", "config", "show").stdout:
        return "there is no gateway.control_group"
    machine.run("groupadd", "--system", "operators")
    machine.run("useradd", "--no-create-home", "--groups=operators", "member")
    machine.write("/etc/belay/belay.toml", SETTINGS + '\n[gateway]\ncontrol_group = "operators"\n')
    machine.write("/etc/systemd/system/belay.service.d/group.conf", "[Service]\nGroup=operators\n")
    try:
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "restart", "belay.service")
        world.active()
        status = ("setpriv", "--init-groups", "--regid=member", "--reuid=member", "belay", "status")
        said = machine.run(*status).stdout
        expect("rehearsal" in said, said)
        stranger = machine.run("setpriv", "--reuid=stranger", "--regid=stranger", "--clear-groups", "belay", "status", check=False)
        expect(stranger.returncode != 0, f"a stranger was answered: {stranger.stdout}")
    finally:
        machine.inside("/etc/systemd/system/belay.service.d/group.conf").unlink()
        machine.write("/etc/belay/belay.toml", SETTINGS)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "restart", "belay.service", check=False)
    return None


CHECKS = [
    the_installed_unit_becomes_active_and_answers,
    it_runs_as_a_user_of_its_own_without_capabilities,
    the_tokens_come_from_credentials,
    the_file_tools_read_and_write_the_workspace,
    a_command_asks_and_runs_in_the_sandbox,
    each_command_has_a_control_group_of_its_own,
    status_answers_root_and_nobody_else,
    status_answers_a_member_of_the_group_of_the_socket,
    after_sigkill_an_accepted_message_is_answered_once,
    a_daemon_that_stands_still_is_killed_by_the_watchdog_and_started_again,
    a_reload_keeps_the_process_and_takes_the_new_settings,
    a_stop_drains_within_the_time_of_the_unit,
    nothing_of_the_service_is_left_after_its_stop,
    a_refused_configuration_ends_with_78_and_is_not_tried_again,
    a_user_with_a_home_that_the_unit_hides_can_run_it,
    *containers.CHECKS,
]


def install(machine):
    """`make install` into the machine, and what an operator does besides."""
    binary = os.environ.get("BELAY_BIN") or str(rootfs.ROOT / "target" / "debug" / "belay")
    command = ["make", "--no-print-directory", "install", f"DESTDIR={machine.root}", f"BINARY={pathlib.Path(binary).resolve()}"]
    done = subprocess.run(command, cwd=rootfs.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect(done.returncode == 0, f"make install: {done.stdout}")
    machine.write("/etc/belay/belay.toml", SETTINGS)
    machine.write(f"{SECRETS}/belay_token", f"{TOKEN}\n", 0o600)
    machine.write(f"{SECRETS}/belay_operator_token", f"{OPERATOR}\n", 0o600)
    machine.inside_root(SECRETS).chmod(0o700)
    machine.write(UNIT, DROP_IN)
    # What the machine does not need takes time at its start.
    for unit in ("podman-auto-update.service", "podman-auto-update.timer", "podman-restart.service", "podman.service", "podman.socket"):
        for wants in machine.inside_root("/etc/systemd/system").glob(f"*.wants/{unit}"):
            wants.unlink()


def run(place, names):
    """Boots the machine, and runs the checks."""
    begin = time.monotonic()
    verbose = "--verbose" in names
    names = [name for name in names if not name.startswith("-")]
    passed = failed = skipped = 0
    machine = Machine(rootfs.prepare(), place)
    try:
        install(machine)
        machine.boot()
        print(f"the machine is up ({time.monotonic() - begin:.1f} s)", flush=True)
        world = World(machine)
        for check in CHECKS:
            name = check.__name__.replace("_", " ")
            if names and check is not CHECKS[0] and not any(part in name or part in check.__name__ for part in names):
                continue
            begin, since = time.monotonic(), time.time()
            try:
                why = check(world)
                passed, skipped = passed + (why is None), skipped + (why is not None)
                mark = "ok" if why is None else "skipped"
                print(f"{mark} {name} ({why or ''}{time.monotonic() - begin:.1f} s)", flush=True)
            except Exception as why:  # whatever it is, the next check may still tell something
                failed += 1
                print(f"FAILED {name}: {type(why).__name__}: {why}\n{indented(machine.journal(since, lines=25))}", flush=True)
                machine.run("systemctl", "reset-failed", "belay.service", check=False)
                machine.run("systemctl", "start", "belay.service", check=False)
                if machine.show("ActiveState")["ActiveState"] != "active":
                    print("the service does not start any more: the other checks are left out", flush=True)
                    break
    except Exception as why:
        failed += 1
        print(f"FAILED the machine: {type(why).__name__}: {why}\n{indented(machine.console())}", flush=True)
    finally:
        if verbose and machine.leader:
            print(indented(machine.journal()), flush=True)
        machine.power_off()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def indented(text):
    """A text that nobody takes for a line of ours."""
    return "\n".join(f"    | {line}" for line in text.splitlines())


if __name__ == "__main__":
    sys.exit("run service.py")
