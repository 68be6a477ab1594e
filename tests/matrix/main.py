"""
The channel Matrix of a real daemon against a real homeserver (Synapse), which is the judge: each message is answered once.

`make matrix` installs the homeserver; PARTS of names choose tests.
"""

import argparse
import itertools
import json
import pathlib
import re
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from crash.daemon import Daemon
from crash.doubles import Double, chunk
from gate.install import python_with
from matrix.synapse import Proxy, Synapse, until

SYNAPSE = "matrix-synapse==1.163.2"

SETTINGS = """
[llm]
provider = "openai"
base_url = "{model}/v1"
model = "scripted"
api_key_env = ""

[gateway]
listen = "127.0.0.1:0"

[agent]
drain_s = 0

[sessions.titles]
after_s = 0

[channels.matrix]
homeserver = "{homeserver}"
allow = ["{ann}"]
rooms = {rooms}

[[approvals.rules]]
tool = "write_file"
ask = "always"
"""

# The points at which a daemon dies between the arrival of a message and the end of its answer's delivery.
POINTS = [
    "inbox.before-insert:1",
    "inbox.before-acknowledgement:1",
    "inbox.after-acknowledgement:1",
    "lane.opened:1",
    "run.ended:1",
    "outbox.marked-sending:1",
    "outbox.after-wire:1",
    "outbox.settled:1",
]


def text_of(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def new_texts(messages):
    """The texts behind the last answer: messages that came together are one turn."""
    behind = list(itertools.takewhile(lambda message: message["role"] != "assistant", reversed(messages)))
    return [text_of(message) for message in reversed(behind) if message["role"] == "user"]


class Model(Double):
    """Answers each message with its text; one with `[write]` by a call that needs approval."""

    def __init__(self):
        self.asked = []
        super().__init__()

    def post(self, handler):
        request = json.loads(handler.body() or b"{}")
        last = request["messages"][-1]
        text = text_of(last)
        with self.lock:
            self.asked.extend(new_texts(request["messages"]))
        delta = {"content": f"you said: {text.splitlines()[-1] if text else ''}"}
        finish = "stop"
        if last["role"] == "tool":
            delta = {"content": "written"}
        elif "[long]" in text:
            delta = {"content": "word " * 5000}
        elif "[write]" in text:
            call = {"name": "write_file", "arguments": json.dumps({"path": "note.txt", "content": "x"})}
            delta, finish = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": call}]}, "tool_calls"
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        end = chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        handler.wfile.write(chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) + end + b"data: [DONE]\n\n")
        handler.close_connection = True


class Stage:
    """One daemon with an account of its own, a model, and the proxy before the homeserver."""

    def __init__(self, binary, server, home, name, rooms=()):
        self.server, self.proxy, self.model = server, Proxy(server), Model()
        self.bot, self.ann, self.eve = (server.register(f"{who}-{name}") for who in ("belay", "ann", "eve"))
        settings = SETTINGS.format(model=self.model.url, homeserver=self.proxy.url, ann=self.ann.id, rooms=json.dumps(list(rooms)))
        self.daemon = Daemon(binary, home / name, settings)
        self.daemon.environment["MATRIX_ACCESS_TOKEN"] = self.bot.token

    def answers(self, room):
        return self.ann.messages(room, self.bot)

    def answered(self, room, text):
        """Waits for an answer, and returns all messages of the bot."""
        return until(f"the answer {text!r}", lambda: (found := self.answers(room)) and any(text in one for one in found) and found)

    def pair(self):
        """A room of Ann and the bot, in which a first message was answered."""
        room = self.ann.room(self.bot, is_direct=True)
        self.ann.say(room, "hello")
        self.answered(room, "you said: hello")
        return room


def once(stage, room, *texts):
    """Each text was answered once, in this order."""
    found = [one for one in stage.answers(room) if one.startswith("you said: ")]
    assert found == [f"you said: {text}" for text in texts], found


def answers_once_and_keeps_its_place(stage):
    """The first words of a room are answered, old ones never, and a restart repeats nothing."""
    stage.daemon.start()
    room = stage.pair()
    stage.daemon.kill()
    stage.ann.say(room, "while away")
    stage.daemon.start()
    stage.answered(room, "while away")
    stage.ann.say(room, "again")
    stage.answered(room, "again")
    once(stage, room, "hello", "while away", "again")


def fills_a_gap(stage):
    stage.daemon.start()
    room = stage.pair()
    stage.daemon.kill()
    for number in range(1, 131):
        stage.ann.say(room, f"message {number}")
    stage.daemon.start()
    stage.answered(room, "message 130")
    asked = "\n".join(stage.model.asked)
    missing = [number for number in range(1, 131) if not re.search(rf"\bmessage {number}\b", asked)]
    assert not missing, f"messages of the gap are missing: {missing}"
    assert not any("hello" in text.splitlines()[-1] for text in stage.model.asked[1:]), "an old message was answered again"


def a_lost_answer_gives_one_event(stage):
    lost = []

    def plan(method, path):
        if method == "PUT" and "/send/m.room.message/" in path and len(lost) < 2:
            lost.append(path)
            return "lose"
        return None

    stage.daemon.start()
    room = stage.pair()
    stage.proxy.plan = plan
    stage.ann.say(room, "one")
    stage.answered(room, "you said: one")
    until("two lost answers", lambda: len(lost) == 2)
    stage.ann.say(room, "two")
    stage.answered(room, "you said: two")
    once(stage, room, "hello", "one", "two")


def limits_and_failures_delay(stage):
    faults = ["limit", "fail", "limit"]

    def plan(_method, path):
        return faults.pop(0) if faults and ("/send/" in path or "/sync" in path) else None

    stage.daemon.start()
    room = stage.pair()
    stage.proxy.plan = plan
    stage.ann.say(room, "one")
    stage.answered(room, "you said: one")
    assert not faults
    once(stage, room, "hello", "one")


def dies_at_each_point(stage):
    stage.daemon.start()
    room = stage.pair()
    stage.daemon.kill()
    texts = ["hello"]
    for point in POINTS:
        stage.daemon.start(point)
        text = f"dies at {point}"
        texts.append(text)
        stage.ann.say(room, text)
        stage.daemon.ended()
        stage.daemon.start()
        stage.answered(room, f"you said: {text}")
        stage.daemon.kill()
    stage.daemon.start()
    stage.ann.say(room, "the end")
    stage.answered(room, "you said: the end")
    once(stage, room, *texts, "the end")


def dies_while_the_answer_is_lost(stage):
    """The daemon dies after the homeserver has the message and before it knows. It finds the same event."""
    died = threading.Event()

    def plan(method, path):
        if method == "PUT" and "/send/m.room.message/" in path and not died.is_set():
            died.set()
            threading.Timer(0.2, stage.daemon.kill).start()
            return "lose"
        return None

    stage.daemon.start()
    room = stage.pair()
    stage.proxy.plan = plan
    stage.ann.say(room, "one")
    until("the death", lambda: died.is_set() and stage.daemon.is_dead())
    stage.server.stop()
    stage.server.start()  # its memory is on disk
    stage.daemon.start()
    stage.ann.say(room, "two")
    stage.answered(room, "you said: two")
    once(stage, room, "hello", "one", "two")


def the_homeserver_restarts(stage):
    stage.daemon.start()
    room = stage.pair()
    stage.server.stop()
    stage.server.start()
    stage.ann.say(room, "one")
    stage.answered(room, "you said: one")
    once(stage, room, "hello", "one")


def reactions_answer_questions(stage):
    stage.daemon.start()
    room = stage.pair()
    for key, said in (("✅", "written"), ("❌", "denied")):
        before = len(stage.answers(room))
        stage.ann.say(room, f"[write] {said}")
        question = until("the question", lambda: [e for e in stage.ann.events(room) if "approval" in e["content"].get("dev.belay.message", {})][before and -1:])
        question = until("a new question", lambda: newest_question(stage, room, key))
        offered = [e["content"]["m.relates_to"]["key"] for e in reactions(stage, room, question, stage.bot)]
        until("the offered answers", lambda: len(reactions(stage, room, question, stage.bot)) >= 2)
        assert set(offered) <= {"✅", "♾️", "❌"}, offered
        stage.ann.react(room, question["event_id"], key)
        until("the decision", lambda: len(stage.answers(room)) > before + 1)
    file = stage.daemon.home / "data/belay/workspace/note.txt"
    assert file.exists() and "written" in "".join(stage.answers(room))


def newest_question(stage, room, key):
    found = [event for event in stage.ann.events(room) if "approval" in event["content"].get("dev.belay.message", {})]
    return found[-1] if len(found) == (1 if key == "✅" else 2) else None


def reactions(stage, room, question, of):
    def is_one(event):
        relation = event["content"].get("m.relates_to", {})
        return event["type"] == "m.reaction" and event["sender"] == of.id and relation.get("event_id") == question["event_id"]

    return [event for event in stage.ann.events(room) if is_one(event)]


def strangers_and_programs_get_nothing(stage):
    stage.daemon.start()
    room = stage.pair()
    stage.ann.ask("POST", f"v3/rooms/{room}/invite", {"user_id": stage.eve.id})
    stage.ann.send(room, {"msgtype": "m.notice", "body": "a program's line"})
    stage.ann.send(room, {"msgtype": "m.text", "body": "of another Belay", "dev.belay.message": {}})
    stage.ann.send(room, {"msgtype": "m.odd", "body": "", "m.relates_to": "y"})  # newer servers refuse worse bodies
    stage.ann.send(room, {"deep": json.loads("[" * 60 + "]" * 60)}, "dev.belay.odd")
    alone = stage.eve.room(stage.bot, is_direct=True)
    stage.eve.say(alone, "let me in")
    mine = stage.ann.say(room, "mine")
    stage.answered(room, "you said: mine")
    stage.eve.ask("POST", f"v3/join/{room}", {})
    stage.eve.edit(room, mine, "forged")
    stage.ann.say(room, "now we are three")
    stage.ann.ask("POST", f"v3/rooms/{room}/kick", {"user_id": stage.eve.id})
    stage.ann.say(room, "two again")
    stage.answered(room, "you said: two again")
    once(stage, room, "hello", "mine", "two again")
    assert stage.eve.messages(alone, stage.bot) == [] and "forged" not in "\n".join(stage.model.asked)


def an_encrypted_room_is_told_once(stage):
    stage.daemon.start()
    room = stage.ann.room(stage.bot, initial_state=[{"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}])
    other = stage.pair()
    for number in range(2):
        stage.ann.send(room, {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "session_id": "s"}, "m.room.encrypted")
        stage.answered(room, "This room is encrypted")
        if number == 0:
            stage.daemon.kill()
            stage.daemon.start()
    stage.ann.say(other, "later")
    stage.answered(other, "you said: later")
    assert len(stage.answers(room)) == 1, stage.answers(room)


def a_replaced_room_is_followed(stage):
    stage.daemon.start()
    room = stage.pair()
    new = stage.ann.ask("POST", f"v3/rooms/{room}/upgrade", {"new_version": "11"})["replacement_room"]
    stage.ann.ask("POST", f"v3/rooms/{new}/invite", {"user_id": stage.bot.id})
    stage.ann.say(new, "in the new room")
    stage.answered(new, "you said: in the new room")


def groups_are_answered_when_they_mention(stage):
    room = stage.ann.room(stage.bot, stage.eve)
    stage.eve.ask("POST", f"v3/join/{room}", {})
    file = stage.daemon.home / "config/belay/belay.toml"
    file.write_text(file.read_text().replace("rooms = []", f'rooms = ["{room}"]'))
    stage.daemon.start()
    until("the join", lambda: stage.bot.id in stage.ann.ask("GET", f"v3/rooms/{room}/joined_members")["joined"])
    stage.ann.say(room, "among us")
    stage.eve.mention(room, stage.bot, "eve asks")
    asked = stage.ann.mention(room, stage.bot, f"{stage.bot.id}: for you")
    stage.answered(room, "you said: for you")
    once(stage, room, "for you")
    answer = [event for event in stage.ann.events(room) if event["sender"] == stage.bot.id and event["type"] == "m.room.message"][0]
    assert answer["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] == asked, answer
    assert answer["content"]["m.mentions"] == {}, answer


def long_answers_are_pieces(stage):
    stage.daemon.start()
    room = stage.pair()
    stage.ann.say(room, "[long]")
    until("all words", lambda: sum(one.count("word") for one in stage.answers(room)) == 5000)


TESTS = [
    answers_once_and_keeps_its_place,
    fills_a_gap,
    a_lost_answer_gives_one_event,
    limits_and_failures_delay,
    dies_at_each_point,
    dies_while_the_answer_is_lost,
    the_homeserver_restarts,
    reactions_answer_questions,
    strangers_and_programs_get_nothing,
    an_encrypted_room_is_told_once,
    a_replaced_room_is_followed,
    groups_are_answered_when_they_mention,
    long_answers_are_pieces,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--belay", required=True, help="a binary with crash points")
    parser.add_argument("--python", help="a Python that has the homeserver")
    parser.add_argument("parts", nargs="*", help="parts of names of tests")
    args = parser.parse_args()
    python = args.python or python_with(SYNAPSE, "matrix")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="belay-matrix-") as folder:
        home = pathlib.Path(folder)
        server = Synapse(python, home / "synapse")
        server.start()
        for number, test in enumerate(TESTS):
            if args.parts and not any(part in test.__name__ for part in args.parts):
                continue
            begin, stage = time.monotonic(), None
            try:
                stage = Stage(pathlib.Path(args.belay).resolve(), server, home, f"t{number}")
                test(stage)
                print(f"ok      {test.__name__} ({time.monotonic() - begin:.0f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {test.__name__}\n{traceback.format_exc()}", flush=True)
                if stage:
                    print("\n".join(stage.daemon.log[-40:]), flush=True)
            if stage and stage.daemon.process and not stage.daemon.is_dead():
                stage.daemon.kill()
        server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
