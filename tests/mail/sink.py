"""An SMTP server that delivers into the maildirs of Dovecot, and confirms senders as a mail server of its domain does
(aiosmtpd).

Files in its folder change what it does: `lose` takes the next mail and loses the answer (once); `drop` closes the
connection before the next mail's text (once); `saves` keeps a copy of each mail in the sender's folder Sent, as some
servers do; `vacation` has the names of mailboxes that answer each mail by themselves, without any mark.
"""

import asyncio
import email
import email.policy
import email.utils
import pathlib
import sys
import time

from aiosmtpd.smtp import SMTP

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from servers import AUTHSERV, DOMAIN, Dovecot


class Maildirs(Dovecot):
    """The maildirs alone."""

    def __init__(self, home):
        self.home = pathlib.Path(home)
        stat = (self.home / "mail").stat()
        self.owner = (stat.st_uid, stat.st_gid)


def name_of(address):
    name, _, domain = address.partition("@")
    return name.lower() if domain.lower() == DOMAIN else None


class Sink:
    def __init__(self, home, maildirs):
        self.home, self.maildirs = pathlib.Path(home), maildirs

    def takes(self, what):
        """Whether something is to be done once."""
        file = self.home / what
        if not file.exists():
            return False
        file.unlink()
        return True

    async def handle_RCPT(self, server, session, envelope, address, options):
        if self.takes("drop"):
            server.transport.abort()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        data = envelope.content.replace(b"\r\n", b"\n")
        for address in envelope.rcpt_tos:
            self.deliver(envelope.mail_from, address, data)
        sender = name_of(envelope.mail_from or "")
        if sender and (self.home / "saves").exists():
            self.maildirs.put(sender, data, ".Sent")
        if self.takes("lose"):
            server.transport.abort()
        return "250 OK"

    def deliver(self, sender, address, data):
        name = name_of(address)
        mail = email.message_from_bytes(data, policy=email.policy.default)
        of = email.utils.parseaddr(mail["From"] or "")[1].rpartition("@")[2].lower()
        sender = (sender or "").strip("<>")
        result = "pass" if sender.rpartition("@")[2].lower() == of else "fail"
        head = f"Return-Path: <{sender}>\nAuthentication-Results: {AUTHSERV};\n\tdmarc={result} header.from={of}\n"
        self.maildirs.put(name, head.encode() + data)
        file = self.home / "vacation"
        if sender and file.exists() and name in file.read_text().split():
            away = f"From: {address}\nTo: {sender}\nSubject: Away\nMessage-ID: <{time.time_ns()}@{DOMAIN}>\nDate: {email.utils.formatdate()}\n\nI am away.\n"
            self.deliver(address, sender, away.encode())


async def main(port, home, dovecot):
    sink = Sink(home, Maildirs(dovecot))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(sink, hostname="mx.example.org", enable_SMTPUTF8=True), "127.0.0.1", int(port))
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
