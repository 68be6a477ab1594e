// LangChain for Node: langchain and @langchain/openai.

import { ChatOpenAI } from '@langchain/openai';
import { createAgent, tool } from 'langchain';
import { z } from 'zod';
import { base, CALL, face, FAIL, FORECAST, gathered, holds, pieces, report, STALL, stopped, SUM, token, toldOnce } from './columns.mjs';

const model = new ChatOpenAI({ model: 'belay', apiKey: token, configuration: { baseURL: base }, useResponsesApi: face === 'responses' });
const about = { name: 'get_weather', description: 'The weather in a city.', schema: z.object({ city: z.string() }) };

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
});
