#!/usr/bin/env bash
# Guess: the two most used repairers of JSON that models write, jsonrepair for JavaScript and json_repair for Python, give the same value
# where both give one; and two objects in a row, as of a model that writes two calls, are an error or the first one.
# Seen with jsonrepair 3.15.0 and json_repair 0.64.6: two objects in two lines are one array for both, so that the arguments of a call are
# no object any more. Without the line break jsonrepair refuses them, and json_repair still makes an array. A number with a leading
# zero is the text "01" for one and the number 1 for the other. Words behind the object are an error for one and ignored by the other.
# Output seen (jsonrepair | json_repair):
#   {"a":1}(line break){"b":2}: [{"a":1},{"b":2}] | [{"a":1},{"b":2}]
#   {"a":1}{"b":2}: error | [{"a":1},{"b":2}]
#   {"a":01}: {"a":"01"} | {"a":1}
#   {"a":1} done: error | {"a":1}
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true}' >package.json
npm install --no-audit --no-fund --ignore-scripts --silent jsonrepair@3.15.0
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check json_repair==0.64.6
echo '["{\"a\":1}\n{\"b\":2}", "{\"a\":1}{\"b\":2}", "{\"a\":01}", "{\"a\":1} done"]' >texts.json
node -e '
const { jsonrepair } = require("jsonrepair");
for (const text of require("./texts.json")) {
  try { console.log(JSON.stringify(JSON.parse(jsonrepair(text)))); } catch { console.log("error"); }
}' >js
v/bin/python -c '
import json, json_repair
for text in json.load(open("texts.json")):
    print(json.dumps(json_repair.loads(text), separators=(",", ":")))' >python
seen=$(paste -d '|' js python)
echo "$seen"
[ "$seen" = '[{"a":1},{"b":2}]|[{"a":1},{"b":2}]
error|[{"a":1},{"b":2}]
{"a":"01"}|{"a":1}
error|{"a":1}' ]
