"""A bot: it sends messages to Belay, and gets each answer as a signed request to its own address.

    BELAY_TOKEN=… BELAY_WEBHOOK_SECRET=… python bot.py http://127.0.0.1:8787 127.0.0.1:3000 "calculate 17*23"

Python 3.9 or newer, standard library only. Belay needs both variables too, and, for an address that is not public, `tools.web.allow_private =
["127.0.0.1:3000"]`. Without BELAY_TOKEN the bot signs its message (`POST /webhook`); the session `bot` must know its address then, which a program with
the token, or an operator, has told it once by `/callback URL`. docs/guide/programs.md explains it.
"""

import hashlib
import hmac
import http.server
import json
import os
import queue
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

# Greatest difference between the clocks of both sides, in milliseconds: a request that was recorded cannot be replayed later.
WINDOW_MS = 5 * 60 * 1000
ATTEMPTS = 5


class Refused(Exception):
    """Belay refuses a request: `error` has its `code`, `message` and `param`."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.error = error


def sign(secret, body):
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def post(url, body, headers):
    """Posts JSON. Repeats what may succeed later: the key in the body makes the repetition harmless."""
    data = json.dumps(body).encode()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers(data)})
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            error = json.load(refused)["error"]
            if not error["retryable"] or attempt == ATTEMPTS:
                raise Refused(error) from None
            time.sleep(error.get("retry_after_ms", 1000) / 1000)
        except urllib.error.URLError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(attempt)


class Bot:
    """Sends messages, and waits at `address` (`HOST:PORT`) for the ends of their runs."""

    def __init__(self, belay, address, secret, token=None):
        self.belay, self.secret, self.token = belay, secret, token
        self.ends, self.seen = queue.Queue(), set()
        host, port = address.rsplit(":", 1)
        self.server = http.server.ThreadingHTTPServer((host, int(port)), self.handler())
        self.url = f"http://{host}:{self.server.server_port}/ended"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def send(self, session, text, key=None):
        """Sends a message with the token. The end of its run comes to this bot. The same key again is the same run."""
        body = {"session": session, "text": text, "idempotency_key": key or str(uuid.uuid4()), "callback_url": self.url}
        return post(f"{self.belay}/api/v1/messages", body, lambda _: {"Authorization": f"Bearer {self.token}"})

    def send_signed(self, session, text, key=None):
        """Sends a message without a token. Its end comes to the address that the session was told, see `say_where`."""
        now_ms = time.time_ns() // 1_000_000
        body = {"session": session, "text": text, "delivery_id": key or str(uuid.uuid4()), "sent_at": now_ms}
        return post(f"{self.belay}/webhook", body, lambda data: {"X-Hub-Signature-256": sign(self.secret, data)})

    def say_where(self, session):
        """Tells the session the address to which the ends of all its runs go, and notices. Needs the token, once."""
        return self.send(session, f"/callback {self.url}")

    def answer(self, run_id, limit_s=300):
        """The end of a run, or its question, once it has come."""
        end = time.monotonic() + limit_s
        while (left := end - time.monotonic()) > 0:
            try:
                came = self.ends.get(timeout=left)
            except queue.Empty:
                break
            if came.get("run_id") == run_id:
                return came
        raise TimeoutError(f"no answer of the run {run_id} within {limit_s} s")

    def take(self, body, signature):
        """Whether a request is one of Belay's; a genuine one that is new is kept."""
        if not hmac.compare_digest(sign(self.secret, body), signature or ""):
            return False
        came = json.loads(body)
        if abs(came["sent_at"] - time.time_ns() // 1_000_000) > WINDOW_MS:
            return False
        # Belay posts at least once: after a crash, or if our answer was lost, the same `delivery_id` comes again.
        if came["delivery_id"] not in self.seen:
            self.seen.add(came["delivery_id"])
            self.ends.put(came)
        return True

    def handler(self):
        bot = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                # Answer at once, and work later: Belay waits 10 s, and then posts it again.
                self.send_response(204 if bot.take(body, self.headers.get("X-Hub-Signature-256")) else 401)
                self.end_headers()

            def log_message(self, *_):
                pass

        return Handler


def main():
    belay, address, text = sys.argv[1:]
    bot = Bot(belay, address, os.environ["BELAY_WEBHOOK_SECRET"], os.environ.get("BELAY_TOKEN"))
    sent = bot.send("bot", text) if bot.token else bot.send_signed("bot", text)
    # A command is answered at once; a message has a run.
    print(sent["reply"] if sent["status"] == "command" else bot.answer(sent["run_id"])["reply"])
    bot.close()


if __name__ == "__main__":
    main()
