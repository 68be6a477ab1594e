// What the scripts of the table for Node share: see columns.py.

export const base = `${process.env.BELAY_URL}/v1`;
export const token = process.env.BELAY_TOKEN;
export const face = process.argv[2] ?? 'chat';
// The rehearsal answers these by a tool of Belay, two calls of a tool of the client, words for half a minute, and an error of its provider.
export const SUM = 'calculate 17*23';
export const CALL = 'call get_weather {"city": "Oslo"}\ncall get_weather {"city": "Rome"}';
export const FORECAST = 'rain in Oslo\nrain in Rome';
export const STALL = 'rehearse stall 30';
export const FAIL = 'rehearse error auth';
const LIMIT_MS = 60_000;

export function holds(text, part) {
  if (!String(text ?? '').includes(part)) throw new Error(`expected ${part} in ${text}`);
}

// Checks a streamed answer: more than one piece, and the result in all of them together.
export function pieces(parts, result = '391') {
  const said = parts.filter(Boolean);
  if (said.length < 2) throw new Error(`one piece: ${said}`);
  holds(said.join(''), result);
}

export async function gathered(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

async function runs() {
  const answer = await fetch(`${process.env.BELAY_URL}/api/v1/runs?limit=100`, { headers: { authorization: `Bearer ${token}` } });
  return (await answer.json()).runs;
}

// Checks that the run whose stream was closed has ended for that reason.
export async function stopped() {
  const end = Date.now() + LIMIT_MS;
  while (!(await runs()).some((run) => run.reason === 'client_gone')) {
    if (Date.now() > end) throw new Error('the run goes on');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// Checks that the error has the words of Belay for people, and that the failed run was not done again.
export async function toldOnce(ask) {
  const error = await ask().then((answer) => { throw new Error(`no error: ${JSON.stringify(answer)}`); }, (error) => error);
  holds(`${error.message} ${error.responseBody ?? ''}`, 'rejects the API key');
  const failed = (await runs()).filter((run) => run.status === 'failed');
  if (failed.length !== 1) throw new Error(`${failed.length} failed runs`);
}

// Runs the check of each column, and prints a line of JSON for it.
export async function report(checks) {
  for (const [column, check] of Object.entries(checks)) {
    const why = await check().then(() => null, (error) => { console.error(error); return String(error); });
    console.log(JSON.stringify({ column, why }));
  }
}
