#!/usr/bin/env bash
# Guess: an app with Slack's Bolt does not hear its own bot (`ignoreSelf`, on by default), so a bot that writes an
# answer piece by piece with `chat.update` hears nothing of that. `app.message` means the same messages with Bolt for
# Python and Bolt for Node.
# Seen with slack_bolt 1.30.0 for Python and @slack/bolt 5.1.0 for Node: Bolt for Node passes over the messages of its
# bot, and gives the listeners each edit (`message_changed`) and deletion of those, because such an event has no user
# and no bot at its top. The text of an edit is not at the top either, so a listener that reads `message.text` gets
# undefined. `app.message` of Bolt for Node hears the edits of persons too. That of Bolt for Python hears neither edits
# nor the messages of `/me`, and Bolt answers 404 to such an event, which Slack takes for a failed delivery. Both hear
# the messages of other bots.
# Output seen (Python 3.11, Node 20.20.2): does a listener of `app.message` and one of `app.event("message")` hear it?
#   Python: a message of its bot: no, no
#   Python: an edit of its bot: no, no
#   Python: a deletion of its bot: no, no
#   Python: a message of a person: yes, yes
#   Python: an edit of a person: no (404), yes
#   Python: a /me of a person: no (404), yes
#   Python: a message of another bot: yes, yes
#   Node: a message of its bot: no, no
#   Node: an edit of its bot: yes, yes; message.text undefined
#   Node: a deletion of its bot: yes, yes; message.text undefined
#   Node: a message of a person: yes, yes
#   Node: an edit of a person: yes, yes; message.text undefined
#   Node: a /me of a person: yes, yes
#   Node: a message of another bot: yes, yes
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @slack/bolt@5.1.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check slack_bolt==1.30.0 slack_sdk==3.48.0
cat >hear.py <<'PY'
import json, logging
from slack_bolt import App, BoltRequest
from slack_bolt.authorization import AuthorizeResult

logging.disable(logging.CRITICAL)


def message(more, **fields):
    return {"type": "message", "channel": "C1", "channel_type": "channel", "ts": "1.1", "event_ts": "1.1", **fields, **more}


def edit(more):
    old = {"type": "message", "text": "old", "ts": "1.1", **more}
    new = {**old, "text": "new", "edited": {"user": more["user"], "ts": "2.0"}}
    return message({}, subtype="message_changed", hidden=True, message=new, previous_message=old)


BOT, PERSON = {"user": "U1", "bot_id": "B1", "app_id": "A1", "team": "T1"}, {"user": "U2", "team": "T1"}
deleted = {"type": "message", "text": "old", "ts": "1.1", **BOT}
EVENTS = {"a message of its bot": message(BOT, text="hi"),
          "an edit of its bot": edit(BOT),
          "a deletion of its bot": message({}, subtype="message_deleted", hidden=True, deleted_ts="1.1", previous_message=deleted),
          "a message of a person": message(PERSON, text="hi"),
          "an edit of a person": edit(PERSON),
          "a /me of a person": message(PERSON, subtype="me_message", text="waves"),
          "a message of another bot": message({"bot_id": "B2"}, subtype="bot_message", text="hi")}
authorizations = [{"enterprise_id": None, "team_id": "T1", "user_id": "U1", "is_bot": True}]
bodies = {name: {"token": "t", "team_id": "T1", "api_app_id": "A1", "event": event, "type": "event_callback", "event_id": "Ev1",
                 "event_time": 1, "authorizations": authorizations} for name, event in EVENTS.items()}


def new_app():
    identity = AuthorizeResult(enterprise_id=None, team_id="T1", bot_token="xoxb-1", bot_id="B1", bot_user_id="U1")
    return App(signing_secret="s", authorize=lambda **_: identity, process_before_response=True, request_verification_enabled=False)


heard = []
messages, events = new_app(), new_app()


@messages.message("")
def hear_message(message):
    heard.append(message)


@events.event("message")
def hear_event(event):
    heard.append(event)


def hears(app, body):
    heard.clear()
    status = app.dispatch(BoltRequest(body=json.dumps(body), headers={"content-type": ["application/json"]})).status
    return ("yes" if heard else "no") + ("" if status == 200 else f" ({status})")


for name, body in bodies.items():
    print(f"Python: {name}: {hears(messages, body)}, {hears(events, body)}")
json.dump(bodies, open("bodies.json", "w"))
PY
cat >hear.js <<'JS'
import { readFileSync } from 'node:fs';
import bolt from '@slack/bolt';

const heard = [];
const newApp = () =>
  new bolt.App({
    receiver: { init() {}, start() {}, stop() {} },
    authorize: async () => ({ botToken: 'xoxb-1', botId: 'B1', botUserId: 'U1', teamId: 'T1' }),
    processBeforeResponse: true,
  });
const messages = newApp();
messages.message(async ({ message }) => heard.push(message));
const events = newApp();
events.event('message', async ({ event }) => heard.push(event));
for (const [name, body] of Object.entries(JSON.parse(readFileSync('bodies.json', 'utf8')))) {
  const seen = [];
  let text = '';
  for (const app of [messages, events]) {
    heard.length = 0;
    await app.processEvent({ body, ack: async () => {} });
    seen.push(heard.length ? 'yes' : 'no');
    if (heard.length && heard[0].text === undefined) text = '; message.text undefined';
  }
  console.log(`Node: ${name}: ${seen.join(', ')}${text}`);
}
JS
{ v/bin/python hear.py; node hear.js; } | tee seen
diff seen - <<'TEXT'
Python: a message of its bot: no, no
Python: an edit of its bot: no, no
Python: a deletion of its bot: no, no
Python: a message of a person: yes, yes
Python: an edit of a person: no (404), yes
Python: a /me of a person: no (404), yes
Python: a message of another bot: yes, yes
Node: a message of its bot: no, no
Node: an edit of its bot: yes, yes; message.text undefined
Node: a deletion of its bot: yes, yes; message.text undefined
Node: a message of a person: yes, yes
Node: an edit of a person: yes, yes; message.text undefined
Node: a /me of a person: yes, yes
Node: a message of another bot: yes, yes
TEXT
