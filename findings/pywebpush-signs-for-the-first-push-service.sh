#!/usr/bin/env bash
# Guess: a program that sends a notification to all subscriptions of a person keeps its claims (`sub`) in one place and hands them to
# each call, and each request is signed for the push service that it goes to, as RFC 8292 (2) demands of `aud`.
# Seen with pywebpush 2.5.0 for Python and web-push 3.6.7 for Node: pywebpush writes `aud` and `exp` into the caller's dictionary and keeps
# what is there. So all browsers of the first one's maker get their notification, and the push services of the others get a signature that
# is not for them; the order of the subscriptions says which. A dictionary for each call (`dict(claims)`) helps. web-push for Node, which
# takes an object with the same settings, signs for each service.
# Output seen (Python 3.11, Node 20.20.2), for two subscriptions: service: audience
#   pywebpush, one dictionary: push.one.example: push.one.example, push.two.example: push.one.example
#   pywebpush, one dictionary, other order: push.two.example: push.two.example, push.one.example: push.two.example
#   pywebpush, a dictionary for each: push.one.example: push.one.example, push.two.example: push.two.example
#   web-push, one object: push.one.example: push.one.example, push.two.example: push.two.example
#   the claims of the program after a call: aud, exp, sub
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts web-push@3.6.7 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check pywebpush==2.5.0
cat >push.js <<'JS'
import { writeFileSync } from 'node:fs';
import { createECDH, randomBytes } from 'node:crypto';
import webpush from 'web-push';

const { publicKey, privateKey } = webpush.generateVAPIDKeys();
const subscription = (service) => {
  const browser = createECDH('prime256v1');
  const keys = { p256dh: browser.generateKeys('base64url'), auth: randomBytes(16).toString('base64url') };
  return { endpoint: `https://${service}/id`, keys };
};
const subscriptions = ['push.one.example', 'push.two.example'].map(subscription);
writeFileSync('data.json', JSON.stringify({ privateKey, subscriptions }));
const options = { vapidDetails: { subject: 'mailto:me@example.org', publicKey, privateKey } };
const seen = subscriptions.map((each) => {
  const { endpoint, headers } = webpush.generateRequestDetails(each, 'hello', options);
  const { aud } = JSON.parse(Buffer.from(headers.Authorization.split('.')[1], 'base64url'));
  return `${new URL(endpoint).host}: ${new URL(aud).host}`;
});
console.log(`web-push, one object: ${seen.join(', ')}`);
JS
cat >push.py <<'PY'
import base64, json
from urllib.parse import urlsplit
from pywebpush import webpush

with open("data.json") as file:
    data = json.load(file)
seen = []


class Answer:
    status_code, text, headers = 201, "", {}


class Session:  # stands for requests.Session, so that nothing is sent
    def post(self, endpoint, headers, **_):
        claims = headers["authorization"].split(".")[1]
        audience = json.loads(base64.urlsafe_b64decode(claims + "=="))["aud"]
        seen.append(f"{urlsplit(endpoint).netloc}: {urlsplit(audience).netloc}")
        return Answer()


def show(name, subscriptions, own):
    claims = {"sub": "mailto:me@example.org"}
    seen.clear()
    for each in subscriptions:
        used = dict(claims) if own else claims
        webpush(each, "hello", vapid_private_key=data["privateKey"], vapid_claims=used, requests_session=Session())
    print(f"pywebpush, {name}: {', '.join(seen)}")
    return claims


one, two = data["subscriptions"]
after = show("one dictionary", [one, two], False)
show("one dictionary, other order", [two, one], False)
show("a dictionary for each", [one, two], True)
print("the claims of the program after a call:", ", ".join(sorted(after)))
PY
node push.js >node
v/bin/python push.py >python
{
    sed '$d' python
    cat node
    tail -n 1 python
} | tee seen
diff seen - <<'TEXT'
pywebpush, one dictionary: push.one.example: push.one.example, push.two.example: push.one.example
pywebpush, one dictionary, other order: push.two.example: push.two.example, push.one.example: push.two.example
pywebpush, a dictionary for each: push.one.example: push.one.example, push.two.example: push.two.example
web-push, one object: push.one.example: push.one.example, push.two.example: push.two.example
the claims of the program after a call: aud, exp, sub
TEXT
