// The package openai for Node.

import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import {
  base, CALL, dataUrl, face, FAIL, FORECAST, gathered, holds, listed, LOOK, PDF, PICTURE, pieces, readPdf, readText, report, saw, STALL, stopped, SUM, TEXT,
  token, toldOnce,
} from './columns.mjs';

const client = new OpenAI({ baseURL: base, apiKey: token });
const Answer = z.object({ answer: z.string() });
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const user = (content) => [{ role: 'user', content }];
const picture = dataUrl(PICTURE, 'image/png');
const documents = [[PDF, 'application/pdf'], [TEXT, 'text/plain']].map(([name, kind]) => ({ filename: name, file_data: dataUrl(name, kind) }));

// The answer about parts that stand behind a text, in the form of a face.
async function chatAbout(...parts) {
  const messages = user([{ type: 'text', text: LOOK }, ...parts]);
  return (await client.chat.completions.create({ model: 'belay', messages })).choices[0].message.content;
}
async function responseAbout(...parts) {
  return (await client.responses.create({ model: 'belay', input: user([{ type: 'input_text', text: LOOK }, ...parts]) })).output_text;
}
async function findModel() {
  listed((await gathered(client.models.list())).map((model) => model.id));
}

const chat = {
  async stream() {
    const stream = await client.chat.completions.create({ model: 'belay', messages: user(SUM), stream: true });
    pieces((await gathered(stream)).map((chunk) => chunk.choices[0]?.delta.content));
  },
  async tools() {
    const weather = { name: 'get_weather', parameters, parse: JSON.parse, function: ({ city }) => `rain in ${city}` };
    const runner = client.chat.completions.runTools({ model: 'belay', messages: user(CALL), tools: [{ type: 'function', function: weather }] });
    holds(await runner.finalContent(), FORECAST);
  },
  async structured() {
    const form = zodResponseFormat(Answer, 'answer');
    const answer = await client.chat.completions.parse({ model: 'belay', messages: user(SUM), response_format: form });
    holds(answer.choices[0].message.parsed.answer, '391');
  },
  async stop() {
    const stream = await client.chat.completions.create({ model: 'belay', messages: user(STALL), stream: true });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
    await stopped();
  },
  error: () => toldOnce(() => client.chat.completions.create({ model: 'belay', messages: user(FAIL) })),
  models: () => findModel(),
  images: async () => saw(await chatAbout({ type: 'image_url', image_url: { url: picture } })),
  async files() {
    const answer = await chatAbout(...documents.map((file) => ({ type: 'file', file })));
    readPdf(answer);
    readText(answer);
  },
};

const responses = {
  async stream() {
    const stream = await client.responses.create({ model: 'belay', input: SUM, stream: true });
    pieces((await gathered(stream)).map((event) => event.type === 'response.output_text.delta' && event.delta));
  },
  async tools() {
    const asked = { model: 'belay', tools: [{ type: 'function', name: 'get_weather', parameters, strict: true }] };
    const { output } = await client.responses.create({ ...asked, input: user(CALL) });
    const calls = output.filter((item) => item.type === 'function_call');
    const result = (call) => ({ type: 'function_call_output', call_id: call.call_id, output: `rain in ${JSON.parse(call.arguments).city}` });
    holds((await client.responses.create({ ...asked, input: [...user(CALL), ...output, ...calls.map(result)] })).output_text, FORECAST);
  },
  async structured() {
    const text = { format: zodTextFormat(Answer, 'answer') };
    holds((await client.responses.parse({ model: 'belay', input: SUM, text })).output_parsed.answer, '391');
  },
  async stop() {
    const stream = await client.responses.create({ model: 'belay', input: STALL, stream: true });
    for await (const event of stream) if (event.type === 'response.output_text.delta') break;
    await stopped();
  },
  error: () => toldOnce(() => client.responses.create({ model: 'belay', input: FAIL })),
  models: () => findModel(),
  images: async () => saw(await responseAbout({ type: 'input_image', image_url: picture, detail: 'auto' })),
  async files() {
    const answer = await responseAbout(...documents.map((file) => ({ type: 'input_file', ...file })));
    readPdf(answer);
    readText(answer);
  },
};

await report({ chat, responses }[face]);
