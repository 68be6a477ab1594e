#!/usr/bin/env bash
# Guess: a program marks mails with a keyword for each of its jobs, and removes the keyword at the end of the job. Dovecot permits new
# keywords (`\*` in PERMANENTFLAGS) and says OK, so a keyword is kept with its mail, and a removed one takes no place. The index files
# hold what can be read from the mails again: when they are missing after a restore, UIDVALIDITY is new, or HIGHESTMODSEQ is no lower.
# Seen with Dovecot 2.3.19.1 (Debian 12) and maildir: a folder has place for the names of 26 keywords, with those that no mail has any
# more. The next one gets the same answers, and other sessions see it, but it stands in the index only. Without the index it is gone,
# while the first 26 are kept. UIDVALIDITY stays, and mod-sequences begin again: a client that asks for the changes since its last one
# gets OK and none, until the folder has had as many changes as before. So a keyword is for a kind of state and not for a job, and a
# client compares HIGHESTMODSEQ with its own at each SELECT.
# Output seen:
#   mails: ($first) ($last); HIGHESTMODSEQ 55
#   for another session: ($first) ($last)
#   without the index: ($first) (); UIDVALIDITY unchanged, HIGHESTMODSEQ 3
#   STORE 1 +FLAGS (\Flagged): 1 FETCH (MODSEQ (4) FLAGS (\Flagged $first)) | OK Store completed
#   FETCH 1:2 FLAGS (CHANGEDSINCE 55): OK Fetch completed
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download dovecot-core dovecot-imapd >log 2>&1 || { cat log; echo "needs Debian 12, after apt-get update" >&2; exit 1; }
for package in dovecot-*.deb; do
    [[ $(dpkg-deb --field "$package" Version) == 1:2.3.19.1+* ]]
    dpkg-deb --extract "$package" root
done
mkdir home
as=()
if [ "$(id -u)" = 0 ]; then # the server refuses to open the mails of root
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chown -R 65534:65534 "$folder"
fi
cat >keywords.py <<'PY'
import os, pathlib, re, subprocess, sys

folder, *prefix = sys.argv[1:]
owner = os.stat(folder)
environment = {"HOME": f"{folder}/home", "USER": "me", "LD_LIBRARY_PATH": f"{folder}/root/usr/lib/dovecot", "PATH": os.environ["PATH"]}
settings = ["mail_location=maildir:~/Maildir", f"mail_uid={owner.st_uid}", f"mail_gid={owner.st_gid}", "first_valid_uid=1"]
command = [*prefix, f"{folder}/root/usr/lib/dovecot/imap", "-O", *(part for setting in settings for part in ("-o", setting))]


class Session:
    """The server on pipes, logged in by its start, with the inbox selected."""

    def __init__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        assert self.process.stdout.readline().startswith(b"* PREAUTH")
        self.selected = " ".join(self.ask("SELECT INBOX (CONDSTORE)"))

    def ask(self, line, text=b""):
        """The lines of the answer, without times."""
        literal = b" {%d+}\r\n%s" % (len(text), text) if text else b""
        self.process.stdin.write(b"t " + line.encode() + literal + b"\r\n")
        self.process.stdin.flush()
        answer = []
        while not (answer and answer[-1].startswith("t ")):
            answer.append(self.process.stdout.readline().decode().strip() or "t ended")
        assert re.match("t OK|t ended", answer[-1]), answer
        return [re.sub(r"^(t|\*) | \([\d. +]+ secs\)\.$", "", part) for part in answer]

    def show(self, line):
        print(f"{line}: {' | '.join(self.ask(line))}")

    def flags(self):
        return " ".join(re.sub(r"^.*FLAGS | ?\\Recent ?|\)$", "", part) for part in self.ask("FETCH 1:2 FLAGS")[:-1])

    def end(self):
        self.ask("LOGOUT")
        self.process.wait()


def number(name, text):
    return int(re.findall(rf"{name} (\d+)", text)[-1])


mine = Session()
for _ in range(2):
    mine.ask("APPEND INBOX", b"Subject: a job\r\n\r\ntext\r\n")
mine.ask("NOOP")
mine.ask("STORE 1 +FLAGS ($first)")
for job in range(25):  # one at a time
    mine.ask(f"STORE 2 +FLAGS ($job{job})")
    mine.ask(f"STORE 2 -FLAGS ($job{job})")
mine.ask("STORE 2 +FLAGS ($last)")
before = mine.flags()
other = Session()
last = number("HIGHESTMODSEQ", other.selected)
print(f"mails: {before}; HIGHESTMODSEQ {last}")
print(f"for another session: {other.flags()}")
for session in (mine, other):
    session.end()
for file in pathlib.Path(folder, "home/Maildir").glob("dovecot.index*"):
    file.unlink()
restored = Session()
same = number("UIDVALIDITY", restored.selected) == number("UIDVALIDITY", other.selected)
validity = "unchanged" if same else "new"
print(f"without the index: {restored.flags()}; UIDVALIDITY {validity}, HIGHESTMODSEQ {number('HIGHESTMODSEQ', restored.selected)}")
restored.show(r"STORE 1 +FLAGS (\Flagged)")
restored.show(f"FETCH 1:2 FLAGS (CHANGEDSINCE {last})")
restored.end()
PY
python3 keywords.py "$folder" "${as[@]}" | tee seen
diff seen - <<'TEXT'
mails: ($first) ($last); HIGHESTMODSEQ 55
for another session: ($first) ($last)
without the index: ($first) (); UIDVALIDITY unchanged, HIGHESTMODSEQ 3
STORE 1 +FLAGS (\Flagged): 1 FETCH (MODSEQ (4) FLAGS (\Flagged $first)) | OK Store completed
FETCH 1:2 FLAGS (CHANGEDSINCE 55): OK Fetch completed
TEXT
