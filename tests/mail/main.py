"""
The channel e-mail of a real daemon against a real IMAP server (Dovecot), which is the judge:
each mail is answered once.

`make mail` installs the servers; PARTS of names choose tests.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from crash.daemon import Daemon
from crash.doubles import Double, chunk
from gate.install import python_with
from mail.servers import AUTHSERV, DOMAIN, PASSWORD, Dovecot, Person, Proxy, Smtp, install, text_of, until

AIOSMTPD = "aiosmtpd==1.4.6"

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

[channels.mail]
address = "{address}"
imap = "imap://127.0.0.1:{imap}"
smtp = "smtp://127.0.0.1:{smtp}"
authserv_id = "{authserv}"
allow = {allow}

[[approvals.rules]]
tool = "write_file"
ask = "always"
"""

# The points at which a daemon dies between the arrival of a mail and the end of its answer's delivery.
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


class Model(Double):
    """Answers each message with its last line; one with `[write]` by a call that needs approval."""

    def __init__(self):
        self.asked = []
        super().__init__()

    def post(self, handler):
        request = json.loads(handler.body() or b"{}")
        last = request["messages"][-1]
        text = last["content"] if isinstance(last["content"], str) else "".join(part.get("text", "") for part in last["content"])
        with self.lock:
            self.asked.append(text)
        lines = text.strip().splitlines()
        delta = {"content": f"you said: {lines[-1] if lines else ''}"}
        finish = "stop"
        if last["role"] == "tool":
            delta = {"content": "written"}
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
    """One daemon with a mailbox of its own, a model, the servers, and the proxy before the IMAP server."""

    def __init__(self, binary, python, home):
        self.binary, self.home = binary, home
        home.mkdir(mode=0o755)
        self.dovecot = Dovecot(home / "dovecot")
        self.dovecot.start()
        self.smtp = Smtp(python, home / "smtp", self.dovecot)
        self.proxy, self.model = Proxy(self.dovecot.port), Model()
        self.ann, self.eve = Person(self.smtp, "ann"), Person(self.smtp, "eve")
        self.daemons = []
        self.daemon = self.belay("belay", [self.ann.address])

    def belay(self, name, allow):
        """A daemon for the mailbox of this name."""
        self.dovecot.folder(name)
        values = {"model": self.model.url, "address": f"{name}@{DOMAIN}", "imap": self.proxy.port, "smtp": self.smtp.port}
        settings = SETTINGS.format(authserv=AUTHSERV, allow=json.dumps(allow), **values)
        daemon = Daemon(self.binary, self.home / f"{name}-{len(self.daemons)}", settings)
        daemon.environment["MAIL_PASSWORD"] = PASSWORD
        self.daemons.append(daemon)
        return daemon

    def answers(self, text=""):
        """The mails of Belay to Ann with this text."""
        return [mail for mail in self.ann.mails() if "belay@" in mail["From"] and text in text_of(mail)]

    def ask(self, text, **more):
        """Ann writes, and gets an answer. Returns it."""
        self.ann.write(f"belay@{DOMAIN}", text, **more)
        return self.answered(text)

    def answered(self, text):
        return until(f"the answer to {text!r}", lambda: self.answers(f"you said: {text}"))[-1]

    def end(self):
        for daemon in self.daemons:
            if daemon.process and not daemon.is_dead():
                daemon.kill()
        self.smtp.stop()
        self.dovecot.stop()


def once(stage, *texts):
    """Each text was answered once."""
    found = sorted(text_of(mail).strip() for mail in stage.answers("you said: "))
    assert found == sorted(f"you said: {text}" for text in texts), found


def answers_once_and_keeps_its_place(stage):
    """Old mails are never answered, and a restart repeats nothing.

    An answer belongs to its thread and says that it is of a program.
    """
    stage.ann.write(f"belay@{DOMAIN}", "before the first start")
    stage.daemon.start()
    answer = stage.ask("hello", subject="Lunch")
    assert answer["Subject"] == "Re: Lunch" and answer["Auto-Submitted"] == "auto-replied", answer
    assert answer["In-Reply-To"] in answer["References"], answer
    until("the copy", lambda: stage.dovecot.mails("belay", ".Sent"))  # before it, a death makes the result unknown
    stage.daemon.kill()
    stage.ann.write(f"belay@{DOMAIN}", "while away")
    stage.daemon.start()
    stage.answered("while away")
    stage.ask("again", answers=answer)
    once(stage, "hello", "while away", "again")
    assert "hello" in stage.model.asked[-1], "the quotation is data of the last mail"
    copies = until("a copy of each answer", lambda: len(found := stage.dovecot.mails("belay", ".Sent")) == 3 and found)
    assert {copy["Message-ID"] for copy in copies} == {mail["Message-ID"] for mail in stage.answers()}


def dies_at_each_point(stage):
    stage.daemon.start()
    stage.ask("hello")
    stage.daemon.kill()
    texts = ["hello"]
    for point in POINTS:
        stage.daemon.start(point)
        text = f"dies at {point}"
        stage.ann.write(f"belay@{DOMAIN}", text)
        stage.daemon.ended()
        stage.daemon.start()
        # A mail that was being sent when the daemon died is in Sent, or its result is unknown and it is not sent again.
        if point != "outbox.marked-sending:1":
            stage.answered(text)
            texts.append(text)
        stage.daemon.kill()
    stage.daemon.start()
    stage.ask("the end")
    once(stage, *texts, "the end")


def a_lost_answer_of_the_server_is_never_a_second_mail(stage):
    stage.daemon.start()
    stage.ask("hello")
    stage.smtp.does("lose")
    stage.ask("lost")
    assert stage.smtp.did("lose")
    stage.smtp.does("saves")
    stage.smtp.does("lose")
    stage.ask("lost and saved")
    stage.smtp.does("drop")
    stage.ask("dropped before the text")
    assert stage.smtp.did("drop")
    stage.ask("the end")
    once(stage, "hello", "lost", "lost and saved", "dropped before the text", "the end")


def a_cut_connection_is_made_again(stage):
    stage.daemon.start()
    stage.ask("hello")
    for number in range(3):
        before = stage.proxy.count
        stage.proxy.cut()
        until("a new connection", lambda before=before: stage.proxy.count > before)
        stage.ask(f"after cut {number}")
    stage.dovecot.stop()
    stage.dovecot.start()
    stage.ask("after a restart")
    once(stage, "hello", "after cut 0", "after cut 1", "after cut 2", "after a restart")


def new_uids_repeat_nothing(stage):
    stage.daemon.start()
    stage.ask("one")
    stage.ask("two")
    for text in ("three", "four"):
        stage.dovecot.stop()
        stage.dovecot.forget_uids("belay")
        stage.ann.write(f"belay@{DOMAIN}", text)
        stage.dovecot.start()
        stage.answered(text)
    once(stage, "one", "two", "three", "four")


def strangers_forgers_and_programs_get_nothing(stage):
    stage.daemon.start()
    to = f"belay@{DOMAIN}"
    stage.eve.write(to, "let me in")
    stage.ann.write(to, "forged", sender="eve@evil.example")
    forged = f"{AUTHSERV}; dmarc=pass header.from={DOMAIN}"
    stage.ann.write(to, "forged too", sender="eve@evil.example", Authentication_Results=forged)
    stage.ann.write(to, "a program", Auto_Submitted="auto-generated")
    stage.ann.write(to, "a list", List_Id="<club.example.org>")
    stage.ann.write(to, "a bounce", sender="")
    stage.ask("mine")
    once(stage, "mine")
    asked = "\n".join(stage.model.asked)
    assert not any(text in asked for text in ("let me in", "forged", "a program", "a list", "a bounce")), asked
    assert not any("belay@" in mail["From"] for mail in stage.eve.mails())


def two_belays_end_by_themselves(stage):
    other = stage.belay("other", [f"belay@{DOMAIN}"])
    file = stage.daemon.home / "config/belay/belay.toml"
    file.write_text(file.read_text().replace(f'["{stage.ann.address}"]', f'["{stage.ann.address}", "other@{DOMAIN}"]'))
    stage.daemon.start()
    other.start()
    first = Person(stage.smtp, "other")
    first.write(f"belay@{DOMAIN}", "a first mail")
    until("its answer", lambda: stage.dovecot.mails("other"))
    stage.ask("meanwhile")
    assert len(stage.dovecot.mails("other")) == 1
    assert len(stage.dovecot.mails("belay")) == 2


def a_responder_without_a_mark_ends(stage):
    """A program that answers each mail gets 30 answers, and then none."""
    stage.daemon.start()
    stage.smtp.does("vacation", "ann")
    stage.ann.write(f"belay@{DOMAIN}", "hello")
    until("30 answers", lambda: len(stage.answers()) >= 30)
    until("the last mail of the responder", lambda: len(stage.model.asked) >= 31)
    stage.daemon.kill()
    assert len(stage.answers()) == 30, len(stage.answers())


def a_question_is_answered_in_the_first_line(stage):
    stage.daemon.start()
    for number, (word, said) in enumerate((("Yes.\n\n-- \nAnn", "written"), ("no", "denied"))):
        stage.ann.write(f"belay@{DOMAIN}", f"[write] {number}")
        question = until("the question", lambda number=number: len(found := stage.answers("in the first line")) > number and found)[-1]
        before = len(stage.answers())
        stage.ann.write(f"belay@{DOMAIN}", word, answers=question)
        until("the result", lambda before=before: len(stage.answers()) > before)
    file = stage.daemon.home / "data/belay/workspace/note.txt"
    until("the file", file.exists)
    assert stage.answers("written")


def two_daemons_share_a_mailbox(stage):
    """Each with a store of its own: each mail is answered by one of them."""
    other = stage.belay("belay", [stage.ann.address])
    stage.daemon.start()
    other.start()
    texts = [f"message {number}" for number in range(12)]
    for text in texts:
        stage.ann.write(f"belay@{DOMAIN}", text)
    for text in texts:
        stage.answered(text)
    stage.ask("the end")
    once(stage, *texts, "the end")


def reads_a_thousand_mails_after_an_outage(stage):
    people = [Person(stage.smtp, f"person{number}") for number in range(50)]
    file = stage.daemon.home / "config/belay/belay.toml"
    allow = json.dumps([stage.ann.address, *(person.address for person in people)])
    file.write_text(file.read_text().replace(f'["{stage.ann.address}"]', allow))
    stage.daemon.start()
    stage.ask("hello")
    stage.daemon.kill()
    for number in range(1000):
        people[number % 50].write(f"belay@{DOMAIN}", f"message {number}.")
    stage.daemon.start()

    def answered():
        return sum(len(person.mails()) for person in people) >= 1000

    until("a thousand answers", answered, 900)
    stage.ask("the end")
    for person in people:
        texts = [text_of(mail).strip() for mail in person.mails()]
        assert len(texts) == len(set(texts)) == 20, texts


TESTS = [
    answers_once_and_keeps_its_place,
    dies_at_each_point,
    a_lost_answer_of_the_server_is_never_a_second_mail,
    a_cut_connection_is_made_again,
    new_uids_repeat_nothing,
    strangers_forgers_and_programs_get_nothing,
    two_belays_end_by_themselves,
    a_responder_without_a_mark_ends,
    a_question_is_answered_in_the_first_line,
    two_daemons_share_a_mailbox,
    reads_a_thousand_mails_after_an_outage,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--belay", required=True, help="a binary with crash points")
    parser.add_argument("--python", help="a Python that has the SMTP server")
    parser.add_argument("parts", nargs="*", help="parts of names of tests")
    args = parser.parse_args()
    install()
    python = args.python or python_with(AIOSMTPD, "mail")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="belay-mail-") as folder:
        os.chmod(folder, 0o755)  # the server reads mails as a user of its own
        for number, test in enumerate(TESTS):
            if args.parts and not any(part in test.__name__ for part in args.parts):
                continue
            begin, stage = time.monotonic(), None
            try:
                stage = Stage(pathlib.Path(args.belay).resolve(), python, pathlib.Path(folder) / f"t{number}")
                test(stage)
                print(f"ok      {test.__name__} ({time.monotonic() - begin:.0f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {test.__name__}\n{traceback.format_exc()}", flush=True)
                if stage:
                    print("\n".join(line for daemon in stage.daemons for line in daemon.log[-40:]), flush=True)
            if stage:
                stage.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
