#!/usr/bin/env bash
# Guess: a middleware for the header `Idempotency-Key` keeps an answer that says something about the work. A 429 or a 503, after which a
# client is meant to repeat the request with the same key, and an error in the handler are not kept, so that the repetition does the work.
# A used key with another path or body is refused, two requests at once do the work once, and requests without a key are left alone.
# Seen with fastapi-idempotency 0.1.1, fastapi-idempotency-key 0.1.1, fastidempotent 0.1.0 and asgi-idempotency-header 0.2.0 for Python,
# with starlette 1.10.0, and express-idempotency 1.0.6 with express 5.3.0 for Node, with their defaults and stores in memory: two of five
# answer the repetition with the first 503, and three with the first 429, so that a client which repeats with its key gets no further.
# With one, a handler that raised leaves its key "pending" (409). One gives another path and another body the first answer, and one runs
# the handler of another path. One answers a second equal request without a key with the first answer, so a second "add one" is lost, and
# one refuses requests without a key. The one for Express passes on a used key and a request in progress as errors without a status.
# Output seen (Python 3.11, Node 20.20.2): "runs" where the second request runs the handler, "kept" where it gets the first answer
#   fastapi-idempotency: 503 runs, 429 kept, raised runs, other path 422, other body 422, at once kept, no key kept
#   fastapi-idempotency-key: 503 runs, 429 runs, raised runs, other path 422, other body 422, at once 409, no key runs
#   fastidempotent: 503 kept, 429 kept, raised runs, other path runs, other body 422, at once 409, no key both 400
#   asgi-idempotency-header: 503 kept, 429 kept, raised 409 pending, other path kept, other body kept, at once 409 pending, no key runs
#   express-idempotency: 503 runs, 429 runs, raised runs, other path 500, other body 500, at once 500, no key runs
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts express@5.3.0 express-idempotency@1.0.6 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check fastapi-idempotency==0.1.1 \
    fastapi-idempotency-key==0.1.1 fastidempotent==0.1.0 asgi-idempotency-header==0.2.0 \
    starlette==1.10.0 fastapi==0.165.0 redis==8.1.0 httpx==0.28.1
cat >middlewares.py <<'PY'
import asyncio, logging
import fastapi_idempotency, fastapi_idempotency_key, fastidempotent, httpx, idempotency_header_middleware
from idempotency_header_middleware.backends.memory import MemoryBackend
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route

logging.disable()
MIDDLEWARES = {
    "fastapi-idempotency": lambda: Middleware(fastapi_idempotency.IdempotencyMiddleware),
    "fastapi-idempotency-key": lambda: Middleware(fastapi_idempotency_key.IdempotencyMiddleware),
    "fastidempotent": lambda: Middleware(fastidempotent.IdempotencyMiddleware, backend=fastidempotent.MemoryBackend(ttl=3600)),
    "asgi-idempotency-header": lambda: Middleware(idempotency_header_middleware.IdempotencyHeaderMiddleware, backend=MemoryBackend()),
}


def application(middleware):
    runs = []

    async def handler(request):
        runs.append(request.url.path)
        first = len(runs) == 1
        if request.url.path == "/slow":
            await asyncio.sleep(0.5)
        if request.url.path == "/raise" and first:
            raise RuntimeError
        status = int(request.url.path[1:]) if request.url.path[1:].isdigit() and first else 201
        return JSONResponse({"runs": len(runs)}, status)

    paths = ("/503", "/429", "/raise", "/a", "/b", "/slow")
    return Starlette(routes=[Route(path, handler, methods=["POST"]) for path in paths], middleware=[middleware]), runs


async def seen(middleware, one, two, together=False, headers={"Idempotency-Key": "k1"}):
    app, runs = application(middleware)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server", headers=headers) as client:
        calls = [client.post(path, json=body) for path, body in (one, two)]
        first, second = await asyncio.gather(*calls) if together else [await call for call in calls]
    if not runs:
        return f"both {second.status_code}"
    if len(runs) == 2:
        return "runs"
    if (first.status_code, first.content) == (second.status_code, second.content):
        return "kept"
    return str(second.status_code) + " pending" * ("pending" in second.text)


async def main():
    for name, make in MIDDLEWARES.items():
        print(f"{name}: 503 {await seen(make(), ('/503', {}), ('/503', {}))}, 429 {await seen(make(), ('/429', {}), ('/429', {}))}, "
              f"raised {await seen(make(), ('/raise', {}), ('/raise', {}))}, other path {await seen(make(), ('/a', {}), ('/b', {}))}, "
              f"other body {await seen(make(), ('/a', {'x': 1}), ('/a', {'x': 2}))}, "
              f"at once {await seen(make(), ('/slow', {}), ('/slow', {}), together=True)}, "
              f"no key {await seen(make(), ('/a', {}), ('/a', {}), headers={})}")


asyncio.run(main())
PY
cat >middleware.js <<'JS'
import express from 'express';
import idempotent from 'express-idempotency';

async function seen([one, two], { together = false, key = 'k1' } = {}) {
  const app = express();
  let runs = 0;
  app.use(express.json(), idempotent.idempotency());
  app.post('/:what', async (request, response) => {
    if (idempotent.getSharedIdempotencyService().isHit(request)) return;
    const first = ++runs === 1;
    const { what } = request.params;
    if (what === 'slow') await new Promise((done) => setTimeout(done, 500));
    if (what === 'raise' && first) throw new Error('raised');
    response.status(first && Number(what) ? Number(what) : 201).json({ runs });
  });
  app.use((error, request, response, next) => response.status(error.status ?? 500).json({ error: error.message }));
  const server = app.listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  const headers = { 'content-type': 'application/json', ...(key && { 'idempotency-key': key }) };
  const send = async ([path, body]) => {
    const url = `http://127.0.0.1:${server.address().port}/${path}`;
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
    return [answer.status, await answer.text()];
  };
  const answers = together ? await Promise.all([send(one), send(two)]) : [await send(one), await send(two)];
  server.closeAllConnections();
  server.close();
  return runs === 2 ? 'runs' : String(answers[0]) === String(answers[1]) ? 'kept' : String(answers[1][0]);
}

let number = 0; // the store is shared by all
const key = () => `k${++number}`;
const twice = (path) => seen([[path, {}], [path, {}]], { key: key() });
const row = [
  `503 ${await twice('503')}`,
  `429 ${await twice('429')}`,
  `raised ${await twice('raise')}`,
  `other path ${await seen([['a', {}], ['b', {}]], { key: key() })}`,
  `other body ${await seen([['a', { x: 1 }], ['a', { x: 2 }]], { key: key() })}`,
  `at once ${await seen([['slow', {}], ['slow', {}]], { key: key(), together: true })}`,
  `no key ${await seen([['a', {}], ['a', {}]], { key: '' })}`,
];
console.log(`express-idempotency: ${row.join(', ')}`);
JS
{ v/bin/python middlewares.py && node middleware.js; } 2>errors | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
fastapi-idempotency: 503 runs, 429 kept, raised runs, other path 422, other body 422, at once kept, no key kept
fastapi-idempotency-key: 503 runs, 429 runs, raised runs, other path 422, other body 422, at once 409, no key runs
fastidempotent: 503 kept, 429 kept, raised runs, other path runs, other body 422, at once 409, no key both 400
asgi-idempotency-header: 503 kept, 429 kept, raised 409 pending, other path kept, other body kept, at once 409 pending, no key runs
express-idempotency: 503 runs, 429 runs, raised runs, other path 500, other body 500, at once 500, no key runs
TEXT
