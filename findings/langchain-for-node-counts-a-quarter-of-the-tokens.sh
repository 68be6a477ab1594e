#!/usr/bin/env bash
# Guess: a streamed answer of Anthropic's Messages API has its usage in two events, and the numbers of the second one (`message_delta`) are
# totals, as the API's documentation says. A client reports these: 10682 and 510 tokens for the answer with a web search below, whose
# numbers are those of the documentation. A client reports the same numbers for a streamed answer and for a whole one.
# Seen with @langchain/anthropic 1.5.11, @ai-sdk/anthropic 4.0.105 and @anthropic-ai/sdk 1.15.0 for Node: LangChain takes the input tokens
# of the first event, from before the search, and adds the output tokens of both. So it reports 2679 and 513 for a stream, and 10682 and
# 510 for the same answer without one. Costs and limits that are computed from it are too low by the pages that the model has read. The
# count of the output is too high in each stream. The others do as guessed.
# Output seen (Node 20.20.2): input and output tokens
#   SDK: streamed 10682 510, whole 10682 510
#   AI SDK: streamed 10682 510, whole 10682 510
#   LangChain: streamed 2679 513, whole 10682 510
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts ai@7.0.173 @ai-sdk/anthropic@4.0.105 @anthropic-ai/sdk@1.15.0 @langchain/anthropic@1.5.11 \
    @langchain/core@1.4.0 >log 2>&1
cat >usage.js <<'JS'
import { createServer } from 'node:http';
import Anthropic from '@anthropic-ai/sdk';
import { createAnthropic } from '@ai-sdk/anthropic';
import { ChatAnthropic } from '@langchain/anthropic';
import { generateText, streamText } from 'ai';

const cache = { cache_creation_input_tokens: 0, cache_read_input_tokens: 0 };
const usage = { ...cache, input_tokens: 10682, output_tokens: 510, server_tool_use: { web_search_requests: 1 } };
const early = { ...cache, input_tokens: 2679, output_tokens: 3 };
const page = { type: 'web_search_result', title: 'Weather', url: 'https://example.org/', encrypted_content: 'x', page_age: null };
const search = { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: { query: 'weather' } };
const found = { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: [page] };
const text = { type: 'text', text: 'Sunny.' };
const about = { id: 'msg_1', type: 'message', role: 'assistant', model: 'claude-opus-4-5', stop_sequence: null };
const whole = { ...about, content: [search, found, text], stop_reason: 'end_turn', usage };

const begins = [{ ...search, input: {} }, found, { ...text, text: '' }];
const query = { type: 'input_json_delta', partial_json: JSON.stringify(search.input) };
const deltas = [query, undefined, { type: 'text_delta', text: text.text }];
const stream = [
  { type: 'message_start', message: { ...about, content: [], stop_reason: null, usage: early } },
  ...begins.flatMap((block, index) => [
    { type: 'content_block_start', index, content_block: block },
    ...(deltas[index] ? [{ type: 'content_block_delta', index, delta: deltas[index] }] : []),
    { type: 'content_block_stop', index },
  ]),
  { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage },
  { type: 'message_stop' },
];
const server = createServer(async (request, response) => {
  const asked = JSON.parse((await request.toArray()).join(''));
  response.setHeader('content-type', asked.stream ? 'text/event-stream' : 'application/json');
  const lines = stream.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  response.end(asked.stream ? lines.join('') : JSON.stringify(whole));
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${server.address().port}`;
const { model } = about;
const show = (name, ...counts) => console.log(`${name}: streamed ${counts.slice(0, 2).join(' ')}, whole ${counts.slice(2).join(' ')}`);

const sdk = new Anthropic({ baseURL: url, apiKey: 'none' });
const question = { model, max_tokens: 1000, messages: [{ role: 'user', content: 'x' }] };
const ofSdk = [(await sdk.messages.stream(question).finalMessage()).usage, (await sdk.messages.create(question)).usage];
show('SDK', ...ofSdk.flatMap((counts) => [counts.input_tokens, counts.output_tokens]));

const settings = { model: createAnthropic({ baseURL: `${url}/v1`, apiKey: 'none' })(model), prompt: 'x' };
const streamed = streamText(settings);
await streamed.consumeStream();
const ofAiSdk = [await streamed.usage, (await generateText(settings)).usage];
show('AI SDK', ...ofAiSdk.flatMap((counts) => [counts.inputTokens, counts.outputTokens]));

const chat = new ChatAnthropic({ model, anthropicApiUrl: url, apiKey: 'none' });
let answer;
for await (const piece of await chat.stream('x')) answer = answer ? answer.concat(piece) : piece;
const ofLangchain = [answer.usage_metadata, (await chat.invoke('x')).usage_metadata];
show('LangChain', ...ofLangchain.flatMap((counts) => [counts.input_tokens, counts.output_tokens]));
server.closeAllConnections();
server.close();
JS
node usage.js 2>errors | tee seen
diff seen - <<'TEXT'
SDK: streamed 10682 510, whole 10682 510
AI SDK: streamed 10682 510, whole 10682 510
LangChain: streamed 2679 513, whole 10682 510
TEXT
