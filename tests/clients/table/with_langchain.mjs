// LangChain for Node: langchain and @langchain/openai.

import { ChatOpenAI } from '@langchain/openai';
import { createAgent, HumanMessage, tool } from 'langchain';
import { z } from 'zod';
import {
  base, CALL, encoded, face, FAIL, FORECAST, gathered, holds, LOOK, PDF, PICTURE, pieces, readPdf, readText, report, saw, STALL, stopped, SUM, TEXT, token,
  toldOnce,
} from './columns.mjs';

const model = new ChatOpenAI({ model: 'belay', apiKey: token, configuration: { baseURL: base }, useResponsesApi: face === 'responses' });
const about = { name: 'get_weather', description: 'The weather in a city.', schema: z.object({ city: z.string() }) };

// The answer about blocks of LangChain's own form, which it translates for the face.
async function askedAbout(...blocks) {
  return (await model.invoke([new HumanMessage({ contentBlocks: [{ type: 'text', text: LOOK }, ...blocks] })])).text;
}

await report({
  async stream() {
    pieces((await gathered(await model.stream(SUM))).map((chunk) => chunk.text));
  },
  async tools() {
    const agent = createAgent({ model, tools: [tool(({ city }) => `rain in ${city}`, about)] });
    const { messages } = await agent.invoke({ messages: [{ role: 'user', content: CALL }] });
    // Messages of one id are one message for it.
    holds(messages.map((message) => message.type).join(', '), 'human, ai, tool, tool, ai');
    holds(messages.at(-1).text, FORECAST);
  },
  async structured() {
    const form = model.withStructuredOutput(z.object({ answer: z.string() }), { name: 'answer' });
    holds((await form.invoke(SUM)).answer, '391');
  },
  async stop() {
    for await (const chunk of await model.stream(STALL)) if (chunk.text) break;
    await stopped();
  },
  error: () => toldOnce(() => model.invoke(FAIL)),
  images: async () => saw(await askedAbout({ type: 'image', data: encoded(PICTURE), mimeType: 'image/png' })),
  async files() {
    const file = (name, mimeType) => ({ type: 'file', data: encoded(name), mimeType, metadata: { filename: name } });
    const answer = await askedAbout(file(PDF, 'application/pdf'), file(TEXT, 'text/plain'));
    readPdf(answer);
    readText(answer);
  },
});
