// A model for pictures and measurements: a server of chat completions that answers from a script.

import http from 'node:http';

const chunk = (delta, finish = null) => `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 0, model: 'scripted',
  choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;

/** Never resolves. */
export const FOREVER = new Promise(() => {});

/** A promise, and the function that resolves it. */
export function gate() {
  let open;
  const opened = new Promise((resolve) => { open = resolve; });
  return { opened, open };
}

/**
 * `script(text, step)` receives the newest message of the person and how many answers followed it. It returns
 * `{ thought, text, until, rest, calls: [[tool, arguments]], usage }`: after `text` the answer waits for the promise `until`, and goes
 * on with `rest`.
 */
export async function model(script) {
  let made = 0;
  const server = http.createServer(async (request, answer) => {
    let body = '';
    for await (const part of request) body += part;
    if (request.method === 'GET') return answer.end(JSON.stringify({ object: 'list', data: [{ id: 'scripted', object: 'model' }] }));
    const { messages } = JSON.parse(body);
    const asked = messages.findLastIndex(({ role }) => role === 'user');
    const content = messages[asked]?.content ?? '';
    const text = typeof content === 'string' ? content : content.map((part) => part.text ?? '').join('');
    const step = messages.slice(asked).filter(({ role }) => role === 'assistant').length;
    const { thought, text: said = '', until, rest, calls = [], usage = [2400 + 310 * step, 180] } = script(text, step, messages);
    answer.writeHead(200, { 'content-type': 'text/event-stream' });
    if (thought) answer.write(chunk({ role: 'assistant', reasoning_content: thought }));
    if (said) answer.write(chunk({ role: 'assistant', content: said }));
    await until;
    if (rest) answer.write(chunk({ content: rest }));
    calls.forEach(([name, input], index) => answer.write(chunk({ tool_calls: [{ index, id: `call_${made += 1}`, type: 'function',
      function: { name, arguments: JSON.stringify(input) } }] })));
    answer.write(chunk({}, calls.length ? 'tool_calls' : 'stop'));
    const [input, output] = usage;
    answer.write(`data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 0, model: 'scripted', choices: [],
      usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output } })}\n\n`);
    return answer.end('data: [DONE]\n\n');
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  const settings = {
    'llm.provider': 'openai', 'llm.base_url': `http://127.0.0.1:${server.address().port}/v1`, 'llm.model': 'scripted', 'llm.api_key_env': '',
    'llm.price_usd': '{input=3,output=15}',
  };
  return { settings, close: () => { server.closeAllConnections(); server.close(); } };
}
