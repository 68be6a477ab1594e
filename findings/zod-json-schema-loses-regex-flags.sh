#!/usr/bin/env bash
# Guess: the JSON Schema that zod writes for a string with a regular expression accepts what zod accepts. JSON Schema has no flags, so a
# flag that changes the meaning is written into the pattern, or `z.toJSONSchema` refuses it as it refuses a date.
# Seen with zod 4.6.7: the flags are left out without a word. `/^ab$/i` becomes the pattern `^ab$`, which refuses "AB". An MCP server on
# zod lists such a schema, so a client that checks a call by it refuses arguments that the server would take.
# Output seen:
#   zod takes "AB": true
#   pattern: ^ab$, takes "AB": false
#   pattern: ^a.b$, takes "a\nb": false
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true}' >package.json
npm install --no-audit --no-fund --ignore-scripts --silent zod@4.6.7
cat >see.js <<'JS'
const { z } = require("zod");
const any = z.string().regex(/^ab$/i), dot = z.string().regex(/^a.b$/s);
const pattern = (type) => z.toJSONSchema(type).pattern;
console.log(`zod takes "AB": ${any.safeParse("AB").success}`);
console.log(`pattern: ${pattern(any)}, takes "AB": ${new RegExp(pattern(any)).test("AB")}`);
console.log(`pattern: ${pattern(dot)}, takes "a\\nb": ${new RegExp(pattern(dot)).test("a\nb")}`);
JS
seen=$(node see.js)
echo "$seen"
[ "$seen" = 'zod takes "AB": true
pattern: ^ab$, takes "AB": false
pattern: ^a.b$, takes "a\nb": false' ]
