#!/usr/bin/env bash
# Guess: a session file of a terminal agent has one record a message, and the status of a call says whether its command failed.
# Seen with Gemini CLI 0.61.0, which runs `false` here: the message is written twice with one id, first without its calls; the result
# is written twice too, in the call and in a message of the person; and the failed command has the status "success". That it failed
# stands only in the text, beside a process group that differs in each call. So who counts records sees two answers, who trusts the
# status sees no error, and who compares results finds no two equal ones.
# Output seen (Node 20.20.2):
#   records of the answer with the call: 2
#   copies of its result: 2
#   status: success, exit code in the text: 1
#   the text names a process group: true
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir -p "$folder/home/.gemini" "$folder/project" && cd "$folder" && echo '{"private":true}' >package.json
npm install --no-audit --no-fund --ignore-scripts @google/gemini-cli@0.61.0 >log 2>&1
cat >server.js <<'JS'
// A model that asks for one command, and then answers.
require("http").createServer((request, response) => {
  let body = "";
  request.on("data", (part) => (body += part)).on("end", () => {
    const ran = body.includes('"functionResponse"');
    const part = ran ? { text: "It failed." } : { functionCall: { name: "run_shell_command", args: { command: "false" } } };
    const answer = { candidates: [{ content: { role: "model", parts: [part] }, finishReason: "STOP", index: 0 }],
      usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 } };
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(`data: ${JSON.stringify(answer)}\n\n`);
  });
}).listen(0, "127.0.0.1", function () { require("fs").writeFileSync("port", String(this.address().port)); });
JS
node server.js & server=$!
until [ -s port ]; do sleep 0.1; done
cat >home/.gemini/settings.json <<'JSON'
{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}}}
JSON
(cd project && env -i PATH="$PATH" HOME="$folder/home" GEMINI_API_KEY=none GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:$(cat ../port)" \
    GEMINI_CLI_TRUST_WORKSPACE=true timeout 120 node ../node_modules/@google/gemini-cli/bundle/gemini.js \
    --yolo -m gemini-2.5-flash -p "Run false." </dev/null >../log 2>&1)
cat >seen.js <<'JS'
const fs = require("fs");
const lines = fs.readFileSync(process.argv[2], "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const call = lines.find((line) => line.toolCalls);
const text = JSON.stringify(call.toolCalls[0].result);
console.log(`records of the answer with the call: ${lines.filter((line) => line.id === call.id).length}`);
console.log(`copies of its result: ${JSON.stringify(lines).split('"functionResponse":').length - 1}`);
console.log(`status: ${call.toolCalls[0].status}, exit code in the text: ${/Exit Code: (\d+)/.exec(text)?.[1]}`);
console.log(`the text names a process group: ${text.includes("Process Group PGID: ")}`);
JS
node seen.js home/.gemini/tmp/*/chats/session-*.jsonl | tee seen
diff seen - <<'TEXT'
records of the answer with the call: 2
copies of its result: 2
status: success, exit code in the text: 1
the text names a process group: true
TEXT
