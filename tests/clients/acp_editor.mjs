// The official SDK of the Agent Client Protocol as the editor of a real daemon: node acp_editor.mjs MODULES WORKSPACE
//
// BELAY_BIN is the program; the environment is that of the daemon's user. Prints a line for each test and, as its last line,
// "N passed, N failed, N skipped".

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [modules, workspace] = process.argv.slice(2);
const acp = await import(pathToFileURL(join(modules, "node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js")));
const PATIENCE_MS = 300_000;
const tests = [];
const test = (name, run) => tests.push([name, run]);

/** An editor with its own agent process: `run(editor)` while it lives. */
async function edited(run, answer = () => assert.fail("no question was expected")) {
  const child = spawn(process.env.BELAY_BIN, ["acp"], { stdio: ["pipe", "pipe", "inherit"] });
  const exit = new Promise((resolve) => child.on("exit", (code) => resolve(code)));
  const editor = { updates: [], questions: [] };
  const client = acp
    .client({ name: "editor" })
    .onNotification(acp.methods.client.session.update, ({ params }) => void editor.updates.push(params))
    .onRequest(acp.methods.client.session.requestPermission, async ({ params }) => {
      editor.questions.push(params);
      const chosen = await answer(params, editor);
      return { outcome: chosen === null ? { outcome: "cancelled" } : { outcome: "selected", optionId: chosen } };
    });
  await client.connectWith(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (agent) => {
    editor.hello = await agent.request("initialize", { protocolVersion: 1, clientCapabilities: {}, clientInfo: { name: "e", version: "1" } });
    editor.agent = agent;
    editor.open = async (cwd = workspace) => (await agent.request("session/new", { cwd, mcpServers: [] })).sessionId;
    editor.prompt = (sessionId, ...blocks) =>
      agent.request("session/prompt", { sessionId, prompt: blocks.map((one) => (typeof one === "string" ? { type: "text", text: one } : one)) });
    editor.of = (kind) => editor.updates.map(({ update }) => update).filter((update) => update.sessionUpdate === kind);
    editor.said = () => editor.of("agent_message_chunk").map((update) => update.content.text).join("");
    await run(editor);
  });
  child.stdin.end();
  assert.equal(await exit, 0);
}

async function until(what, condition) {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; ) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(`${what}: not within ${PATIENCE_MS} ms`);
}

const code = (promise) => promise.then(() => assert.fail("an error was expected"), (error) => error.code);

test("the agent says what it can do", () =>
  edited(async ({ hello }) => {
    assert.equal(hello.protocolVersion, 1);
    assert.equal(hello.agentInfo.name, "belay");
    assert.equal(hello.agentCapabilities.loadSession, true);
    assert.deepEqual(hello.authMethods ?? [], []);
    const { sessionCapabilities, promptCapabilities } = hello.agentCapabilities;
    assert.deepEqual(Object.keys(sessionCapabilities).sort(), ["close", "delete", "list", "resume"]);
    assert.deepEqual([promptCapabilities.image, promptCapabilities.embeddedContext], [true, true]);
  }));

test("an answer is streamed, with the tool calls that it took", () =>
  edited(async (editor) => {
    const session = await editor.open();
    await until("the commands", () => editor.of("available_commands_update").length);
    assert.ok(editor.of("available_commands_update")[0].availableCommands.some(({ name }) => name === "status"));
    const end = await editor.prompt(session, "calculate 17*23");
    assert.equal(end.stopReason, "end_turn");
    assert.ok(editor.said().includes("17*23 = 391"), editor.said());
    assert.ok(editor.updates.every(({ sessionId }) => sessionId === session));
    const [call] = editor.of("tool_call");
    assert.deepEqual([call.title.split(" ")[0], call.status], ["calculate", "in_progress"]);
    const results = editor.of("tool_call_update").filter(({ toolCallId }) => toolCallId === call.toolCallId);
    assert.equal(results.at(-1).status, "completed");
    assert.ok(editor.of("usage_update").every(({ used, size }) => used > 0 && size > 0));
  }));

test("a slow answer comes in pieces, and a command is answered at once", () =>
  edited(async (editor) => {
    const session = await editor.open();
    const answer = editor.prompt(session, "rehearse stall 600");
    await until("a second piece", () => editor.of("agent_message_chunk").length > 1);
    await editor.agent.notify("session/cancel", { sessionId: session });
    assert.equal((await answer).stopReason, "cancelled");
    const before = editor.said().length;
    assert.equal((await editor.prompt(session, "/ping")).stopReason, "end_turn");
    assert.equal(editor.said().slice(before), "pong");
  }));

const write = (name) => `call write_file {"path":"${name}","content":"text of ${name}"}`;

for (const [name, choose, written] of [
  ["allowed", ({ options }) => options.find(({ kind }) => kind === "allow_once").optionId, true],
  ["rejected", ({ options }) => options.find(({ kind }) => kind === "reject_once").optionId, false],
  ["unknown", () => "an-option-that-was-not-offered", false],
]) {
  test(`a call is ${name} by the answer to its question`, () =>
    edited(async (editor) => {
      const session = await editor.open();
      const end = await editor.prompt(session, write(name));
      assert.equal(end.stopReason, "end_turn");
      assert.equal(existsSync(join(workspace, name)), written);
      const [question] = editor.questions;
      assert.equal(editor.questions.length, 1);
      assert.equal(question.sessionId, session);
      assert.deepEqual(question.toolCall.rawInput, { path: name, content: `text of ${name}` });
      assert.deepEqual(question.toolCall.content[0], { type: "diff", path: join(workspace, name), newText: `text of ${name}` });
      assert.equal(question.toolCall.locations[0].path, join(workspace, name));
      const [call] = editor.of("tool_call");
      assert.deepEqual([call.toolCallId, call.kind], [question.toolCall.toolCallId, "edit"]);
      const states = editor.of("tool_call_update").filter(({ toolCallId }) => toolCallId === call.toolCallId);
      assert.equal(states.at(-1).status, written ? "completed" : "failed");
    }, choose));
}

test("a question that is cancelled stays open, and the cancelled prompt is answered as cancelled", () => {
  let cancel;
  return edited(
    async (editor) => {
      const session = await editor.open();
      cancel = () => editor.agent.notify("session/cancel", { sessionId: session });
      assert.equal((await editor.prompt(session, write("never"))).stopReason, "cancelled");
      assert.ok(!existsSync(join(workspace, "never")));
    },
    async () => {
      await cancel();
      return null;
    },
  );
});

test("a prompt is cancelled in the middle of a tool, which ends with it", () =>
  edited(async (editor) => {
    const session = await editor.open();
    const prompt = editor.prompt(session, 'call run_command {"argv":["sleep","600"]}');
    await until("the command runs", () => editor.of("tool_call").some(({ status }) => status === "in_progress"));
    await editor.agent.notify("session/cancel", { sessionId: session });
    assert.equal((await prompt).stopReason, "cancelled");
    assert.equal(editor.said(), "");
    const after = editor.updates.length;
    assert.equal((await editor.prompt(session, "calculate 6*7")).stopReason, "end_turn");
    assert.ok(editor.updates.slice(after).some(({ update }) => update.content?.text?.includes("42")));
  }));

test("two prompts at once are answered once each, in their order", () =>
  edited(async (editor) => {
    const session = await editor.open();
    const ends = await Promise.all([editor.prompt(session, "calculate 1000+1"), editor.prompt(session, "calculate 2000+2")]);
    assert.deepEqual(ends.map(({ stopReason }) => stopReason), ["end_turn", "end_turn"]);
    const said = editor.said();
    assert.ok(said.indexOf("= 1001") >= 0 && said.indexOf("= 1001") < said.indexOf("= 2002"), said);
  }));

test("a prompt whose files take longer to send stays before the next one", () =>
  edited(async (editor) => {
    const session = await editor.open();
    const file = (n) => ({ type: "resource", resource: { uri: `file:///p/${n}`, text: `text ${n}`.repeat(10_000) } });
    await Promise.all([editor.prompt(session, "first", ...[1, 2, 3, 4].map(file)), editor.prompt(session, "second")]);
    await editor.agent.request("session/load", { sessionId: session, cwd: workspace, mcpServers: [] });
    const asked = editor.of("user_message_chunk").map(({ content }) => content.text.split("[")[0]);
    assert.deepEqual(asked, ["first", "second"]);
  }));

test("files of a prompt reach the model, and a part that cannot be read costs itself", () =>
  edited(async (editor) => {
    const session = await editor.open();
    const resource = { type: "resource", resource: { uri: "file:///p/words.txt", text: "a text of the editor" } };
    const picture = { type: "image", data: "bm8gcGljdHVyZQ==", mimeType: "image/png" };
    const link = { type: "resource_link", uri: "file:///p/x", name: "x" };
    assert.equal((await editor.prompt(session, "look at ", link, resource, picture)).stopReason, "end_turn");
    const shown = (await editor.agent.request("session/load", { sessionId: session, cwd: workspace, mcpServers: [] })) ?? {};
    assert.equal(shown.error, undefined);
    const [asked] = editor.of("user_message_chunk");
    assert.ok(asked.content.text.startsWith("look at [x](file:///p/x)[words.txt](file:///p/words.txt)"), asked.content.text);
  }));

test("a conversation is loaded by another process, listed, resumed, closed and deleted", async () => {
  let session;
  const cwd = join(workspace, "sub");
  await edited(async (editor) => {
    session = await editor.open(cwd);
    await editor.prompt(session, "calculate 5*5");
  });
  await edited(async (editor) => {
    const { agent } = editor;
    const listed = async (params) => (await agent.request("session/list", params)).sessions.map(({ sessionId }) => sessionId);
    assert.deepEqual(await listed({ cwd }), [session]);
    assert.ok((await listed({})).includes(session));
    assert.deepEqual(await listed({ cwd: join(workspace, "elsewhere") }), []);
    await agent.request("session/load", { sessionId: session, cwd, mcpServers: [] });
    const history = editor.updates.map(({ update }) => update).filter(({ content }) => content?.text);
    assert.deepEqual(history.map(({ sessionUpdate }) => sessionUpdate), ["user_message_chunk", "agent_message_chunk"]);
    assert.equal(history[0].content.text, "calculate 5*5");
    assert.ok(history[1].content.text.includes("= 25"));
    await agent.request("session/close", { sessionId: session });
    assert.equal(await code(editor.prompt(session, "closed")), -32002);
    const before = editor.updates.length;
    await agent.request("session/resume", { sessionId: session, cwd });
    assert.ok(editor.updates.slice(before).every(({ update }) => !update.content), "a resume has no history");
    assert.equal((await editor.prompt(session, "calculate 3*3")).stopReason, "end_turn");
    await agent.request("session/delete", { sessionId: session });
    assert.equal(await code(agent.request("session/load", { sessionId: session, cwd, mcpServers: [] })), -32002);
    assert.deepEqual(await listed({ cwd }), []);
  });
});

test("an unknown session is an error of the protocol", () =>
  edited(async (editor) => {
    const { agent } = editor;
    for (const sessionId of ["acp:0123", "cli", "", "telegram:4"]) {
      assert.equal(await code(editor.prompt(sessionId, "hello")), -32002, sessionId);
      assert.equal(await code(agent.request("session/load", { sessionId, cwd: workspace, mcpServers: [] })), -32002, sessionId);
    }
    assert.equal(await code(agent.request("session/set_mode", { sessionId: "x", modeId: "y" })), -32601);
  }));

test("the end of a run that has no word in the protocol is said", () =>
  edited(async (editor) => {
    const session = await editor.open();
    for (const [request, words] of [["rehearse error bad", "refused the request"], ["rehearse failures", "failed one after another"]]) {
      const before = editor.said().length;
      assert.equal((await editor.prompt(session, request)).stopReason, "end_turn");
      assert.ok(editor.said().slice(before).includes(words), editor.said());
    }
  }));

let [passed, failed] = [0, 0];
for (const [name, run] of tests) {
  try {
    await run();
    passed += 1;
    console.log(`ok ${name} (official SDK)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}
console.log(`${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
