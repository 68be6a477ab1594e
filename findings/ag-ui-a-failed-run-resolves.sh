#!/usr/bin/env bash
# Guess: `runAgent` of the AG-UI client resolves when the agent has sent RUN_FINISHED. It rejects, and calls `onRunFailed`, after RUN_ERROR,
# after a stream that ends before RUN_FINISHED, and after `abortRun`. A message that the application adds during a run stays.
# Seen with @ag-ui/client 1.0.0: it resolves after RUN_ERROR, after a stream that ends in the middle of a text, and even after an empty
# one, with what there is as `newMessages`. `onRunFailed` is not called; a subscriber that needs to know waits for `onRunFinishedEvent`, or
# for `onRunErrorEvent`, which `abortRun` calls too. It rejects where nothing is lost: after RUN_FINISHED without TEXT_MESSAGE_END. A
# message that `addMessage` adds during a run is gone after the next piece of a text, without an error; behind the last piece it stays.
# Output seen (Node 20), for the question of a person:
#   finished: resolves with "an answer" | onRunFinishedEvent | question, an answer
#   RUN_ERROR: resolves with "an" | onRunErrorEvent | question, an
#   end within a text: resolves with "an" | - | question, an
#   empty stream: resolves with nothing | - | question
#   abortRun: resolves with "an" | onRunErrorEvent | question, an
#   RUN_FINISHED within a text: rejects | onRunFailed | question, an answer
#   note added within a text: resolves with "an answer" | onRunFinishedEvent | question, an answer
#   note added behind the text: resolves with "an answer", "note" | onRunFinishedEvent | question, an answer, note
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >log
npm install --silent --no-audit --no-fund @ag-ui/client@1.0.0 >log
cat >client.mjs <<'JS'
import { createServer } from 'node:http';
import { HttpAgent } from '@ag-ui/client';

/** Runs an agent that sends the events, does `act` at 'act', and shows how the run ends. */
async function run(name, events, act) {
  const server = createServer(async (request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream', connection: 'close' });
    for (const event of events) {
      if (event === 'act') await acted;
      else response.write(`data: ${JSON.stringify(event)}\n\n`);
    }
    response.end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${server.address().port}/`;
  const agent = new HttpAgent({ url, initialMessages: [{ id: 'q', role: 'user', content: 'question' }] });
  let done;
  const acted = new Promise((resolve) => { done = resolve; });
  const last = events[events.indexOf('act') - 1];
  const told = [];
  const subscriber = {
    onEvent({ event }) {
      // Later, so that the client has handled the event.
      if (act && event.type === last.type && event.delta === last.delta) setTimeout(() => { act(agent); done(); }, 500);
    },
  };
  for (const each of ['onRunFinishedEvent', 'onRunErrorEvent', 'onRunFailed']) subscriber[each] = () => { told.push(each); };
  const contents = (messages) => messages.map(({ content }) => content);
  let end;
  try {
    const { newMessages } = await agent.runAgent({}, subscriber);
    end = `resolves with ${contents(newMessages).map((content) => `"${content}"`).join(', ') || 'nothing'}`;
  } catch (error) {
    end = 'rejects';
  }
  console.log(`${name}: ${end} | ${told.join(', ') || '-'} | ${contents(agent.messages).join(', ')}`);
  done();
  server.close();
}

const start = { type: 'RUN_STARTED', threadId: 'thread', runId: 'run' };
const finish = { type: 'RUN_FINISHED', threadId: 'thread', runId: 'run' };
const begin = { type: 'TEXT_MESSAGE_START', messageId: 'a', role: 'assistant' };
const piece = (delta) => ({ type: 'TEXT_MESSAGE_CONTENT', messageId: 'a', delta });
const end = { type: 'TEXT_MESSAGE_END', messageId: 'a' };
const note = (agent) => agent.addMessage({ id: 'n', role: 'user', content: 'note' });
const half = [start, begin, piece('an')];
const whole = [...half, piece(' answer')];
await run('finished', [...whole, end, finish]);
await run('RUN_ERROR', [...half, { type: 'RUN_ERROR', message: 'the model is overloaded' }]);
await run('end within a text', half);
await run('empty stream', []);
await run('abortRun', [...half, 'act'], (agent) => agent.abortRun());
await run('RUN_FINISHED within a text', [...whole, 'act', finish], () => {});
await run('note added within a text', [...half, 'act', piece(' answer'), end, finish], note);
await run('note added behind the text', [...whole, end, 'act', finish], note);
JS
node client.mjs 2>log | tee seen
diff seen - <<'TEXT'
finished: resolves with "an answer" | onRunFinishedEvent | question, an answer
RUN_ERROR: resolves with "an" | onRunErrorEvent | question, an
end within a text: resolves with "an" | - | question, an
empty stream: resolves with nothing | - | question
abortRun: resolves with "an" | onRunErrorEvent | question, an
RUN_FINISHED within a text: rejects | onRunFailed | question, an answer
note added within a text: resolves with "an answer" | onRunFinishedEvent | question, an answer
note added behind the text: resolves with "an answer", "note" | onRunFinishedEvent | question, an answer, note
TEXT
