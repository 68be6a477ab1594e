// What the scripts of the table for Node share: see columns.py.

import { readFileSync } from 'node:fs';

export const base = `${process.env.BELAY_URL}/v1`;
export const token = process.env.BELAY_TOKEN;
export const face = process.argv[2] ?? 'chat';
// The rehearsal answers these by a tool of Belay, two calls of a tool of the client, words for half a minute, and an error of its provider.
export const SUM = 'calculate 17*23';
export const CALL = 'call get_weather {"city": "Oslo"}\ncall get_weather {"city": "Rome"}';
export const FORECAST = 'rain in Oslo\nrain in Rome';
export const STALL = 'rehearse stall 30';
export const FAIL = 'rehearse error auth';
// The picture and the files, the question beside them, and what the scripted model says of each: see samples.py.
export const [PICTURE, PDF, TEXT, LOOK] = ['picture.png', 'harbour.pdf', 'harbour.txt', 'what do you get?'];
const [SEEN, READ_PDF, READ_TEXT] = ['picture 21 x 34 #3366cc', 'word heliotrope', 'word marjoram'];
const LIMIT_MS = 60_000;
const asked = process.env.BELAY_COLUMNS.split(' ');

export function holds(text, part) {
  if (!String(text ?? '').includes(part)) throw new Error(`expected ${part} in ${text}`);
}

// Checks a streamed answer: more than one piece, and the result in all of them together.
export function pieces(parts, result = '391') {
  const said = parts.filter(Boolean);
  if (said.length < 2) throw new Error(`one piece: ${said}`);
  holds(said.join(''), result);
}

// A sample in base64.
export const encoded = (file) => readFileSync(file).toString('base64');
export const dataUrl = (file, mediaType) => `data:${mediaType};base64,${encoded(file)}`;

// Checks that the model has got the picture, by the size and the colour that it says.
export const saw = (text) => holds(text, SEEN);
// Checks that the model has got the text of the PDF or of the text file, by the word that it says.
export const readPdf = (text) => holds(text, READ_PDF);
export const readText = (text) => holds(text, READ_TEXT);

// Checks that a list of models has the name that the guide configures.
export function listed(names) {
  if (!names.includes('belay')) throw new Error(`no belay in ${names}`);
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
    if (!asked.includes(column)) continue;
    const why = await check().then(() => null, (error) => { console.error(error); return String(error); });
    console.log(JSON.stringify({ column, why }));
  }
}
