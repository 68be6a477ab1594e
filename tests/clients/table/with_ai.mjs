// The AI SDK: the package ai, with @ai-sdk/openai (`responses` is its default, `chat` is named) or @ai-sdk/openai-compatible (`compatible`).

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, Output, streamText, tool } from 'ai';
import { z } from 'zod';
import {
  base, CALL, encoded, face, FAIL, FORECAST, gathered, holds, LOOK, PDF, PICTURE, pieces, readPdf, report, saw, STALL, stopped, SUM, token, toldOnce,
} from './columns.mjs';

const openai = createOpenAI({ baseURL: base, apiKey: token });
const model = {
  chat: () => openai.chat('belay'),
  responses: () => openai('belay'),
  compatible: () => createOpenAICompatible({ name: 'belay', baseURL: base, apiKey: token, supportsStructuredOutputs: true })('belay'),
}[face]();
const weather = tool({ inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => `rain in ${city}` });

// The answer about a file.
async function askedAbout(name, mediaType) {
  const content = [{ type: 'text', text: LOOK }, { type: 'file', data: encoded(name), mediaType, filename: name }];
  return (await generateText({ model, messages: [{ role: 'user', content }] })).text;
}

await report({
  async stream() {
    pieces(await gathered(streamText({ model, prompt: SUM }).textStream));
  },
  async tools() {
    const answer = await generateText({ model, prompt: CALL, tools: { get_weather: weather }, stopWhen: isStepCount(3) });
    holds(answer.text, FORECAST);
  },
  async structured() {
    const output = Output.object({ schema: z.object({ answer: z.string() }) });
    holds((await generateText({ model, prompt: SUM, output })).output.answer, '391');
  },
  async stop() {
    const leave = new AbortController();
    for await (const part of streamText({ model, prompt: STALL, abortSignal: leave.signal }).textStream) if (part) leave.abort();
    await stopped();
  },
  error: () => toldOnce(() => generateText({ model, prompt: FAIL })),
  images: async () => saw(await askedAbout(PICTURE, 'image/png')),
  files: async () => readPdf(await askedAbout(PDF, 'application/pdf')), // it refuses other files for OpenAI's model
});
