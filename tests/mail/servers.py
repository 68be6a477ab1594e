"""A real IMAP server (Dovecot) with maildirs, a proxy before it that cuts connections, and the SMTP server that delivers
into the maildirs.
"""

import email
import email.message
import email.policy
import email.utils
import getpass
import os
import pathlib
import shutil
import smtplib
import socket
import subprocess
import threading
import time

# The longest wait for a start or a mail. It only decides how long a failure takes.
PATIENCE = 180

DOMAIN = "example.org"
PASSWORD = "a-long-password"
AUTHSERV = "mx.example.org"

# The settings of a server in the foreground, in a folder of its own, on one port of the loopback.
DOVECOT = """
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
default_internal_user = {internal}
default_internal_group = {group}
default_login_user = {login}
first_valid_uid = 1
mail_location = maildir:{home}/mail/%n
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={home}/mail/%n
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
"""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def until(what, condition, patience=PATIENCE):
    """Waits for a condition, and returns its value."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"it never came: {what}")


def install():
    """Installs Dovecot from Debian where it is missing, without starting it as a service."""
    if shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "dovecot-imapd"]):
        subprocess.run(["apt-get", "-qq", *arguments], env=environment, check=True, stdin=subprocess.DEVNULL)


class Dovecot:
    """The IMAP server with a folder of its own, over its starts. Each name has a mailbox: all have the same password."""

    def __init__(self, home):
        self.home, self.port, self.process = pathlib.Path(home), free_port(), None
        self.home.mkdir(mode=0o755)
        is_root = os.geteuid() == 0
        user = "dovecot" if is_root else getpass.getuser()
        # Dovecot keeps no mail as root.
        self.owner = (8, 8) if is_root else (os.geteuid(), os.getegid())
        settings = {"internal": user, "group": user, "login": "dovenull" if is_root else user, "uid": self.owner[0], "gid": self.owner[1]}
        (self.home / "mail").mkdir()
        os.chown(self.home / "mail", *self.owner)
        text = DOVECOT.format(home=self.home, port=self.port, password=PASSWORD, **settings)
        (self.home / "dovecot.conf").write_text(text)

    def start(self):
        program = shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        with open(self.home / "out", "ab") as out:
            self.process = subprocess.Popen([program, "-F", "-c", str(self.home / "dovecot.conf")], stdout=out, stderr=out)
        until("the start of Dovecot", self.answers)

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError((self.home / "out").read_text()[-2000:])
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                return connection.recv(4).startswith(b"* OK")
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)

    def folder(self, name, folder=""):
        """The maildir of a folder of a mailbox, which is made."""
        place = self.home / "mail" / name / folder
        for part in ("tmp", "new", "cur"):
            (place / part).mkdir(parents=True, exist_ok=True)
        for made in (self.home / "mail" / name, place, *place.iterdir()):
            if made.is_dir():
                os.chown(made, *self.owner)
        return place

    def put(self, name, data, folder=""):
        """Delivers a mail."""
        place, file = self.folder(name, folder), f"{time.time_ns()}.{threading.get_ident()}.test"
        (place / "tmp" / file).write_bytes(data)
        os.chown(place / "tmp" / file, *self.owner)
        os.rename(place / "tmp" / file, place / "new" / file)

    def mails(self, name, folder=""):
        """The mails of a folder, in the order of their arrival."""
        place = self.home / "mail" / name / folder
        files = [file for part in ("new", "cur") for file in (place / part).glob("*")]
        read = []
        for file in sorted(files, key=lambda file: int(file.name.split(".")[0]) if file.name.split(".")[0].isdigit() else 0):
            try:
                read.append(email.message_from_bytes(file.read_bytes(), policy=email.policy.default))
            except FileNotFoundError:
                return self.mails(name, folder)  # the server has moved it meanwhile
        return read

    def forget_uids(self, name):
        """Gives a mailbox a new UIDVALIDITY and new UIDs. The server must be stopped."""
        for file in (self.home / "mail" / name).glob("dovecot*"):
            if file.is_file():
                file.unlink()


class Proxy:
    """Passes connections on to a port, and can cut them."""

    def __init__(self, port):
        self.to, self.open, self.count = port, [], 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self.to), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self.count += 1
            self.open += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.pass_on, args=(one, other), daemon=True).start()

    def pass_on(self, one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Ends all connections."""
        for end in self.open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open = []


class Smtp:
    """The SMTP server, in a process of its own. Files in its folder say how it behaves: see sink.py."""

    def __init__(self, python, home, dovecot):
        self.home, self.port, self.dovecot = pathlib.Path(home), free_port(), dovecot
        self.home.mkdir()
        sink = pathlib.Path(__file__).with_name("sink.py")
        with open(self.home / "out", "ab") as out:
            command = [str(python), str(sink), str(self.port), str(self.home), str(dovecot.home)]
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        until("the start of the SMTP server", self.answers)

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError((self.home / "out").read_text()[-2000:])
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                return connection.recv(3) == b"220"
        except OSError:
            return False

    def does(self, what, value=""):
        (self.home / what).write_text(value)

    def did(self, what):
        """Whether it has done something that was asked for once."""
        return not (self.home / what).exists()

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class Person:
    """A person with a mailbox, who writes mails as a mail program does."""

    def __init__(self, smtp, name):
        self.smtp, self.name, self.address, self.count = smtp, name, f"{name}@{DOMAIN}", 0
        smtp.dovecot.folder(name)

    def write(self, to, text, subject="Hello", answers=None, sender=None, **headers):
        """Sends a mail, and returns its Message-ID. `answers`: the mail that it replies to, which is quoted."""
        self.count += 1
        mail = email.message.EmailMessage()
        mail["From"], mail["To"] = f"{self.name.title()} <{self.address}>", to
        mail["Message-ID"], mail["Date"] = f"<{self.name}-{self.count}-{time.time_ns()}@{DOMAIN}>", email.utils.formatdate()
        mail["Subject"] = subject if answers is None else answers["Subject"]
        if answers is not None:
            mail["In-Reply-To"] = answers["Message-ID"]
            mail["References"] = f"{answers['References'] or ''} {answers['Message-ID']}".strip()
            quoted = "\n".join(f"> {line}" for line in text_of(answers).splitlines())
            text = f"{text}\n\nOn Tue, Dec 1, 2026 at 11:00 AM Belay <{answers['From']}> wrote:\n\n{quoted}\n"
        for header, value in headers.items():
            mail[header.replace("_", "-")] = value
        mail.set_content(text)
        with smtplib.SMTP("127.0.0.1", self.smtp.port, timeout=60) as connection:
            connection.send_message(mail, from_addr=self.address if sender is None else sender, to_addrs=[to])
        return mail["Message-ID"]

    def mails(self):
        return self.smtp.dovecot.mails(self.name)


def text_of(mail):
    part = mail.get_body(("plain",))
    return part.get_content() if part else ""
