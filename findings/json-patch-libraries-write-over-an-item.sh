#!/usr/bin/env bash
# Guess: libraries apply a JSON Patch (RFC 6902) as the RFC says: `add` at an index inserts, "-" appends, `copy` makes a second value, and
# a `test` that fails ends the patch with an error. The document is then what it was before, since a patch counts as a whole.
# Seen with fast-json-patch 3.1.1, just-diff-apply 5.5.0 (with its converter for JSON Patch), rfc6902 5.4.0, immutable-json-patch 6.0.3,
# jsonpatch 3.1.0, json8-patch 1.0.6 and json-p3 2.3.1 for Node, and jsonpatch 1.48 for Python: just-diff-apply writes over the item at the
# index, drops what is appended, copies an object as an empty one and ignores `test`, without an error for three of them. rfc6902 carries
# out the changes behind a `test` that has failed, and gives the error in a list. fast-json-patch, json-p3 and jsonpatch for Python with
# `in_place` keep the changes in front of it. With json8-patch and json-p3 a change of the copy changes the first value too. Two of eight
# take it for no error that a member to be removed is not there. jsonpatch alone does as guessed, for Node, and for Python by default. So
# after an error a program takes the whole state again, and not the next patch.
# Output seen (Python 3.11, Node 20.20.2): an insertion in front of [1,2], 3 appended to it, a copy of "a" to "b" in which x becomes 2, the
# removal of a missing member, and a test that fails between changes of "a" and of "b" from 1 to 2
#   fast-json-patch: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove {"a":1} | test error and {"a":2,"b":1}
#   just-diff-apply: insert [0,2] | append [1,2] | copy error and {"a":{"x":1},"b":{}} | remove error | test {"a":2,"b":2}
#   rfc6902: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove error | test error and {"a":2,"b":2}
#   immutable-json-patch: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove {"a":1} | test error
#   jsonpatch: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove error | test error
#   json8-patch: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":2},"b":{"x":2}} | remove error | test error
#   json-p3: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":2},"b":{"x":2}} | remove error | test error and {"a":2,"b":1}
#   jsonpatch for Python: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove error | test error
#   the same, in_place: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove error | test error and {"a":2,"b":1}
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts fast-json-patch@3.1.1 just-diff-apply@5.5.0 rfc6902@5.4.0 immutable-json-patch@6.0.3 \
    jsonpatch@3.1.0 json8-patch@1.0.6 json-p3@2.3.1 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check jsonpatch==1.48
cat >cases.json <<'JSON'
{
  "insert": [[1, 2], [{"op": "add", "path": "/0", "value": 0}]],
  "append": [[1, 2], [{"op": "add", "path": "/-", "value": 3}]],
  "copy": [{"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "replace", "path": "/b/x", "value": 2}]],
  "remove": [{"a": 1}, [{"op": "remove", "path": "/b"}]],
  "test": [{"a": 1, "b": 1}, [{"op": "replace", "path": "/a", "value": 2}, {"op": "test", "path": "/a", "value": 1},
    {"op": "replace", "path": "/b", "value": 2}]]
}
JSON
cat >apply.js <<'JS'
import { readFileSync } from 'node:fs';
import fastJsonPatch from 'fast-json-patch';
import { immutableJSONPatch } from 'immutable-json-patch';
import json8 from 'json8-patch';
import { jsonpatch as p3 } from 'json-p3';
import jsonpatch from 'jsonpatch';
import { diffApply, jsonPatchPathConverter } from 'just-diff-apply';
import { applyPatch } from 'rfc6902';

const cases = JSON.parse(readFileSync('cases.json'));
// Each gives the new document, or raises an error.
const libraries = {
  'fast-json-patch': (document, patch) => fastJsonPatch.applyPatch(document, patch).newDocument,
  'just-diff-apply': (document, patch) => diffApply(document, patch, jsonPatchPathConverter) && document,
  rfc6902: (document, patch) => {
    const error = applyPatch(document, patch).find((result) => result);
    if (error) throw error;
    return document;
  },
  'immutable-json-patch': immutableJSONPatch,
  jsonpatch: jsonpatch.apply_patch,
  'json8-patch': (document, patch) => json8.apply(document, patch).doc,
  'json-p3': (document, patch) => p3.apply(patch, document),
};
for (const [name, apply] of Object.entries(libraries)) {
  const seen = Object.entries(cases).map(([kind, [document, patch]]) => {
    const [before, own] = [JSON.stringify(document), structuredClone(document)];
    try {
      return `${kind} ${JSON.stringify(apply(own, structuredClone(patch)))}`;
    } catch {
      return `${kind} error${JSON.stringify(own) === before ? '' : ` and ${JSON.stringify(own)}`}`;
    }
  });
  console.log(`${name}: ${seen.join(' | ')}`);
}
JS
cat >apply.py <<'PY'
import copy, json, jsonpatch

for name, in_place in (("jsonpatch for Python", False), ("the same, in_place", True)):
    seen = []
    for kind, (document, patch) in json.load(open("cases.json")).items():
        own = copy.deepcopy(document)
        text = lambda value: json.dumps(value, separators=(",", ":"))
        try:
            seen.append(f"{kind} {text(jsonpatch.apply_patch(own, patch, in_place=in_place))}")
        except jsonpatch.JsonPatchException:
            seen.append(f"{kind} error{'' if own == document else f' and {text(own)}'}")
    print(f"{name}: {' | '.join(seen)}")
PY
{ node apply.js; v/bin/python apply.py; } | tee seen
diff seen - <<'TEXT'
fast-json-patch: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove {"a":1} | test error and {"a":2,"b":1}
just-diff-apply: insert [0,2] | append [1,2] | copy error and {"a":{"x":1},"b":{}} | remove error | test {"a":2,"b":2}
rfc6902: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove error | test error and {"a":2,"b":2}
immutable-json-patch: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove {"a":1} | test error
jsonpatch: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove error | test error
json8-patch: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":2},"b":{"x":2}} | remove error | test error
json-p3: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":2},"b":{"x":2}} | remove error | test error and {"a":2,"b":1}
jsonpatch for Python: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove error | test error
the same, in_place: insert [0,1,2] | append [1,2,3] | copy {"a":{"x":1},"b":{"x":2}} | remove error | test error and {"a":2,"b":1}
TEXT
