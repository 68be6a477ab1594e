#!/usr/bin/env bash
# Guess: two IMAP sessions take mails with `UID STORE n (UNCHANGEDSINCE m) +FLAGS ($lease)`, and the tagged answer says who has one: OK
# without MODIFIED is a lease (RFC 7162). For a mail that the other session has moved away meanwhile it is NO or MODIFIED.
# Seen with Dovecot 2.3.19.1 (Debian 12): it is OK without MODIFIED. The only sign is a missing line: no FETCH for the mail, and from
# the second time on no EXPUNGE either. Without UID even the FETCH comes, with the flag and a new mod-sequence, a later FETCH shows the
# flag too, and only the text is NIL; the mail in the other folder has no flag. UID MOVE says NO until the session has heard of the move,
# and OK after that. So a client has a mail when it has read the flag and the text, not when it reads OK.
# Output seen; "there" is the session that moves the mails with the UIDs 2, 3 and 4:
#   here:  UID STORE 1: 1 FETCH (UID 1 MODSEQ (n) FLAGS ($lease)) | OK Store completed
#   there: UID MOVE 2: OK Move completed
#   here:  UID STORE 2: 2 EXPUNGE | OK Store completed
#   here:  UID STORE 2: OK Store completed
#   there: UID MOVE 3: OK Move completed
#   here:  STORE 2: 2 FETCH (MODSEQ (n) FLAGS ($lease)) | OK Store completed
#   here:  FETCH 2 FLAGS: 2 FETCH (FLAGS ($lease)) | OK Fetch completed
#   here:  FETCH 2 BODY.PEEK[TEXT]: 2 FETCH (BODY[TEXT] NIL) | OK [EXPUNGEISSUED] Some messages were already expunged
#   there: UID MOVE 4: OK Move completed
#   here:  UID MOVE 4: 3 EXPUNGE | 2 EXPUNGE | NO [EXPUNGEISSUED] Some of the requested messages no longer exist
#   here:  UID MOVE 4: OK No messages found
#   there: flags of the moved mails: none
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download dovecot-core dovecot-imapd >log 2>&1 || { cat log; echo "needs Debian 12, after apt-get update" >&2; exit 1; }
for package in dovecot-*.deb; do
    [[ $(dpkg-deb --field "$package" Version) == 1:2.3.19.1+* ]]
    dpkg-deb --extract "$package" root
done
as=()
if [ "$(id -u)" = 0 ]; then # the server refuses to open the mails of root
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chown -R 65534:65534 "$folder"
fi
cat >sessions.py <<'PY'
import os, re, subprocess, sys

folder, *prefix = sys.argv[1:]
environment = {"HOME": f"{folder}/home", "USER": "me", "LD_LIBRARY_PATH": f"{folder}/root/usr/lib/dovecot", "PATH": os.environ["PATH"]}
owner = os.stat(folder)
settings = ["mail_location=maildir:~/Maildir", f"mail_uid={owner.st_uid}", f"mail_gid={owner.st_gid}", "first_valid_uid=1"]
command = [*prefix, f"{folder}/root/usr/lib/dovecot/imap", "-O", *(part for setting in settings for part in ("-o", setting))]


class Session:
    """The server on pipes, logged in by its start."""

    def __init__(self, name):
        pipe = subprocess.PIPE
        self.name = name
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        assert self.process.stdout.readline().startswith(b"* PREAUTH")

    def ask(self, line, text=b""):
        """The lines of the answer about messages, and the tagged one, without times and the flag \\Recent."""
        literal = b" {%d+}\r\n%s" % (len(text), text) if text else b""
        self.process.stdin.write(b"t " + line.encode() + literal + b"\r\n")
        self.process.stdin.flush()
        answer = []
        while not (answer and answer[-1].startswith("t ")):
            answer.append(self.process.stdout.readline().decode().strip() or "t ended")
        answer = [re.sub(r"^(t|\*) | \([\d. +]+ secs\)\.$|\\Recent ?", "", part) for part in answer]
        answer = [re.sub(r"MODSEQ \(\d+\)", "MODSEQ (n)", part) for part in answer]
        return [part for part in answer[:-1] if re.search(r"^\d+ (FETCH|EXPUNGE)", part)] + [answer[-1].rstrip(".")]

    def show(self, line, name=None):
        print(f"{self.name + ':':6} {name or line}: {' | '.join(self.ask(line))}")


os.mkdir(f"{folder}/home")
os.chown(f"{folder}/home", owner.st_uid, owner.st_gid)
here, there = Session("here"), Session("there")
here.ask("SELECT INBOX (CONDSTORE)")
for number in range(4):
    here.ask("APPEND INBOX", b"Subject: %d\r\n\r\ntext\r\n" % number)
here.ask("FETCH 1:* (UID MODSEQ)")  # 2 to 5
there.ask("CREATE Archive")
there.ask("SELECT INBOX")
here.show("UID STORE 1 (UNCHANGEDSINCE 2) +FLAGS ($lease)", "UID STORE 1")
for number, lines in ((2, ["UID STORE 2 (UNCHANGEDSINCE 3) +FLAGS ($lease)"] * 2), (3, ["STORE 2 (UNCHANGEDSINCE 4) +FLAGS ($lease)",
                      "FETCH 2 FLAGS", "FETCH 2 BODY.PEEK[TEXT]"]), (4, ["UID MOVE 4 Archive"] * 2)):
    print(f"there: UID MOVE {number}: {there.ask(f'UID MOVE {number} Archive')[-1]}")
    for line in lines:
        here.show(line, re.sub(r" \(.*| Archive", "", line))
there.ask("SELECT Archive")
flags = [part for part in there.ask("FETCH 1:3 FLAGS") if "FETCH" in part and "FLAGS ()" not in part]
print("there: flags of the moved mails:", flags or "none")
for session in (here, there):
    session.process.kill()
PY
python3 sessions.py "$folder" "${as[@]}" | tee seen
diff seen - <<'TEXT'
here:  UID STORE 1: 1 FETCH (UID 1 MODSEQ (n) FLAGS ($lease)) | OK Store completed
there: UID MOVE 2: OK Move completed
here:  UID STORE 2: 2 EXPUNGE | OK Store completed
here:  UID STORE 2: OK Store completed
there: UID MOVE 3: OK Move completed
here:  STORE 2: 2 FETCH (MODSEQ (n) FLAGS ($lease)) | OK Store completed
here:  FETCH 2 FLAGS: 2 FETCH (FLAGS ($lease)) | OK Fetch completed
here:  FETCH 2 BODY.PEEK[TEXT]: 2 FETCH (BODY[TEXT] NIL) | OK [EXPUNGEISSUED] Some messages were already expunged
there: UID MOVE 4: OK Move completed
here:  UID MOVE 4: 3 EXPUNGE | 2 EXPUNGE | NO [EXPUNGEISSUED] Some of the requested messages no longer exist
here:  UID MOVE 4: OK No messages found
there: flags of the moved mails: none
TEXT
