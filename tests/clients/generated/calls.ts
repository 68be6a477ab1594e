// Calls operations of a real daemon with the client in api/, which a generator has made: BELAY_URL= BELAY_TOKEN= node built/calls.js
// Types are part of the check: no field of an answer is cast.

import assert from "node:assert/strict";

import * as api from "./api";
import { client } from "./api/client.gen";

client.setConfig({ baseUrl: process.env.BELAY_URL, auth: () => process.env.BELAY_TOKEN });

/** The answer of an operation that must succeed. */
async function answer<T>(call: Promise<{ data: T; error: undefined } | { data: undefined; error: unknown }>): Promise<T> {
  const { data, error } = await call;
  assert.equal(error, undefined, JSON.stringify(error));
  return data as T;
}

/** The error of an operation that must fail. */
async function failure(call: Promise<{ error: api.ErrorBody | undefined }>): Promise<api.Error> {
  const { error } = await call;
  assert.ok(error !== undefined, "an error was expected");
  return error.error;
}

async function messages(): Promise<void> {
  const ended = await answer(api.sendMessage({ body: { session: "typescript", text: "calculate 17*23", wait_ms: 20_000 } }));
  assert.ok("usage" in ended, JSON.stringify(ended)); // the record of a run: not of a command, nor a bare acceptance
  assert.match(ended.reply ?? "", /391/);
  const command = await answer(api.sendMessage({ body: { session: "typescript", text: "/status" } }));
  assert.equal(command.status, "command");
  assert.ok("command" in command && command.command === "/status");
  assert.equal((await answer(api.showRun({ path: { id: ended.run_id } }))).agent_state, "FINISHED");
  assert.equal((await answer(api.waitForRun({ path: { id: ended.run_id } }))).status, "completed");
  const { runs } = await answer(api.listRuns({ query: { session: "typescript", status: ["completed", "failed"], limit: 5 } }));
  assert.deepEqual(runs.map((run) => run.run_id), [ended.run_id]);
  const history = await answer(api.listMessages({ path: { key: "typescript" } }));
  assert.deepEqual(history.messages.slice(0, 2).map((message) => message.role), ["user", "assistant"]);
  const { found } = await answer(api.search({ query: { q: "calculate" } }));
  assert.ok(found.some((one) => one.role === "user"));
}

async function agent(): Promise<void> {
  const body: api.AgentParams = { message: "calculate 6*7", sessionKey: "typescript-agent", idempotencyKey: "k" };
  const accepted = await answer(api.sendAgentMessage({ body }));
  assert.equal(accepted.status, "accepted");
  assert.ok("runId" in accepted);
  const waited = await answer(api.waitForAgentRun({ body: { runId: accepted.runId, timeoutMs: 20_000 } }));
  assert.equal(waited.status, "ok");
  const again = await answer(api.sendAgentMessage({ body }));
  assert.ok("kind" in again && again.kind === "run");
  assert.match(again.result.payloads[0].text, /42/);
}

async function work(): Promise<void> {
  const job = await answer(api.createJob({ body: { task: "calculate 3*3" } }));
  assert.equal((await answer(api.showJob({ path: { id: job.job_id } }))).budget.max_steps >= 0, true);
  const spec: api.RoutineSpec = {
    name: "typescript",
    trigger: { kind: "schedule", when: "@daily" },
    action: { mode: "lightweight", prompt: "look" },
  };
  const routine = await answer(api.putRoutine({ path: { name: "typescript" }, body: spec }));
  assert.ok(routine.trigger.kind === "schedule" && routine.trigger.zone === "UTC");
  assert.equal(routine.guard.max_concurrent, 1);
  const times = await answer(api.nextRoutineRuns({ query: { routine: "typescript", count: 2 } }));
  assert.equal(times.next.length, 2);
  assert.ok((await answer(api.deleteRoutine({ path: { name: "typescript" } }))).deleted);
}

async function reports(): Promise<void> {
  assert.ok((await answer(api.showStatus())).version);
  const { tools } = await answer(api.listTools());
  assert.ok(tools.length > 0 && tools[0].state === "ok");
  assert.ok((await answer(api.listBackups())).backups.length >= 0);
  const file = await answer(api.uploadFile({ query: { name: "a.csv" }, body: new Blob(["a,b\n1,2\n"]) }));
  assert.equal(file.bytes, 8);
}

async function errors(): Promise<void> {
  const wrong = await failure(api.sendMessage({ body: { session: "", text: "x" } }));
  assert.deepEqual([wrong.code, wrong.param, wrong.retryable], ["invalid", "session", false]);
  const limit = await failure(api.listRuns({ query: { limit: 0 } }));
  assert.deepEqual([limit.code, limit.param], ["invalid", "limit"]);
  const absent = await failure(api.showRun({ path: { id: "0190b3a0-0000-7000-8000-000000000000" } }));
  assert.equal(absent.code, "not_found");
}

async function main(): Promise<void> {
  for (const part of [messages, agent, work, reports, errors]) {
    await part();
    console.log(`ok ${part.name}`);
  }
}

main().catch((why) => {
  console.error(why);
  process.exit(1);
});
