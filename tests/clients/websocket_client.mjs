// The TypeScript client, built, against a real daemon: node websocket_client.mjs FOLDER URL

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, url] = process.argv.slice(2);
const { Belay, BelayError } = await import(pathToFileURL(join(folder, "client.js")).href);

const belay = await Belay.connect(url, process.env.BELAY_TOKEN);
let said = "";
const stop = belay.onEvent((event) => {
  if (event.stream === "assistant") said += event.data.delta;
});
const run = await belay.send("typescript", "calculate 17*23", "key");
const end = await run.ended;
assert.equal(end.status, "ok");
assert.match(end.result.payloads[0].text, /391/);
assert.equal((await belay.wait(run.id)).status, "ok");
assert.deepEqual(await (await belay.send("typescript", "calculate 17*23", "key")).ended, end);
assert.match(said, /391/);
stop();

await assert.rejects(belay.send("typescript", "another", "key"), (why) => why instanceof BelayError && why.code === "CONFLICT");

const slow = await belay.send("typescript-slow", "rehearse stall");
assert.deepEqual((await belay.abort("typescript-slow")).runIds, [slow.id]);
assert.equal((await slow.ended).error, "aborted");
belay.close();

await assert.rejects(Belay.connect(url, "wrong"), (why) => why.code === "UNAUTHORIZED");
process.exit(0); // the refused connection may still be closing
