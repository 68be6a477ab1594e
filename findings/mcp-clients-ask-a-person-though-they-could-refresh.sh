#!/usr/bin/env bash
# Guess: a client of an MCP server that has a refresh token gets a new access token with it when the old one has ended, once, and nobody is
# asked, be it for the first call of a new process or for several calls side by side.
# Seen with oidc-provider 9.13.3, which rotates refresh tokens as OAuth 2.1 says, and @modelcontextprotocol/client 2.4.0 and mcp 2.3.0:
# each does one of the two. The one for Python knows the end of a token only from the answer that brought it, and not from the storage. A
# new process sends the old token, and a 401 means a new authorization for it, so that a person is asked after each restart. The one for
# TypeScript refreshes for each 401. Three calls send one refresh token three times, the server takes that for a theft and ends the whole
# login with the token that it has just given, and the person is asked twice at once. So a program in TypeScript has to refresh by
# itself, before the end, and one in Python has to set `context.token_expiry_time` when the storage has been read (last line).
# Output seen (Node 20.20.2, Python 3.11):
#   TypeScript, new process: 1 refresh, person asked 0 times, 1 of 1 answered
#   TypeScript, three calls: 3 refreshes, person asked 2 times, 0 of 3 answered
#   Python, new process: 0 refreshes, person asked 1 time, 1 of 1 answered
#   Python, three calls: 1 refresh, person asked 0 times, 3 of 3 answered
#   Python with the time set, new process: 1 refresh, person asked 0 times, 1 of 1 answered
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts oidc-provider@9.13.3 @modelcontextprotocol/server@2.4.0 \
    @modelcontextprotocol/client@2.4.0 zod@4.6.7 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check mcp==2.3.0
cat >server.js <<'JS'
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import Provider from 'oidc-provider';
import { z } from 'zod';

const seconds = 5; // the life of an access token
let counts = { refresh: 0, person: 0 };
let origin, provider;
const mcp = createMcpHandler(() => {
  const server = new McpServer({ name: 'server', version: '1' });
  server.registerTool('read', { inputSchema: z.object({}) }, async () => ({ content: [{ type: 'text', text: 'done' }] }));
  return server;
});
const person = async (to) => {
  counts.person++;
  const cookies = {};
  while (!to.startsWith('http://127.0.0.1/back')) {
    const cookie = Object.entries(cookies).map((pair) => pair.join('=')).join('; ');
    const { headers } = await fetch(to, { redirect: 'manual', headers: { cookie } });
    for (const line of headers.getSetCookie()) cookies[line.split('=', 1)[0]] = /=([^;]*)/.exec(line)[1];
    to = new URL(headers.get('location'), to).href;
  }
  return Object.fromEntries(new URL(to).searchParams);
};
const decide = async (request, response) => {
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') return provider.interactionFinished(request, response, { login: { accountId: 'ann' } });
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  grant.addResourceScope(params.resource, params.scope);
  const answer = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, answer, { mergeWithLastSubmission: true });
};
const serve = async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, origin);
  const json = (value, status = 200, headers = {}) =>
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
  if (pathname === '/person') return json(await person(searchParams.get('to')));
  if (pathname.startsWith('/interaction/')) return decide(request, response);
  if (pathname === '/counts') {
    json(counts);
    return (counts = { refresh: 0, person: 0 });
  }
  if (pathname === '/.well-known/oauth-protected-resource/mcp')
    return json({ resource: `${origin}/mcp`, authorization_servers: [origin], scopes_supported: ['mcp:read'] });
  if (pathname === '/token') await new Promise((resolve) => setTimeout(resolve, 300)); // as over a network
  if (pathname !== '/mcp') return provider.callback()(request, response);
  const parts = await request.toArray();
  const token = await provider.AccessToken.find((request.headers.authorization ?? '').slice(7));
  const place = `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"`;
  if (!token?.isValid) return json({}, 401, { 'www-authenticate': place });
  const { method, headers } = request;
  const body = parts.length ? Buffer.concat(parts) : undefined;
  const answer = await mcp.fetch(new Request(`${origin}/mcp`, { method, headers, body }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  for await (const part of answer.body ?? []) response.write(part);
  response.end();
};
const http = createServer((request, response) => serve(request, response).catch((error) => response.destroy(error)));
http.listen(0, '127.0.0.1', () => {
  origin = `http://127.0.0.1:${http.address().port}`;
  provider = new Provider(origin, {
    scopes: ['offline_access', 'mcp:read'],
    findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    ttl: { Grant: 86400, Interaction: 600, RefreshToken: 86400, Session: 86400 },
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({ scope: 'mcp:read', accessTokenFormat: 'opaque', accessTokenTTL: seconds }),
      },
    },
  });
  const count = ({ oidc }) => oidc.params.grant_type === 'refresh_token' && counts.refresh++;
  provider.on('grant.success', count).on('grant.error', count);
  writeFileSync('origin', origin);
});
JS
cat >client.js <<'JS'
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [origin, name] = process.argv.slice(2);
const get = async (path) => (await fetch(origin + path)).json();
const store = existsSync('store.json') ? JSON.parse(readFileSync('store.json')) : {};
const save = (key) => (value) => writeFileSync('store.json', JSON.stringify(Object.assign(store, { [key]: value })));
let back;
const authProvider = {
  redirectUrl: 'http://127.0.0.1/back',
  clientMetadata: {
    redirect_uris: ['http://127.0.0.1/back'],
    grant_types: ['authorization_code', 'refresh_token'],
    token_endpoint_auth_method: 'none',
  },
  clientInformation: () => store.client,
  saveClientInformation: save('client'),
  tokens: () => store.tokens,
  saveTokens: save('tokens'),
  codeVerifier: () => store.verifier,
  saveCodeVerifier: save('verifier'),
  discoveryState: () => store.discovery,
  saveDiscoveryState: save('discovery'),
  invalidateCredentials: (what) => what === 'all' ? ['client', 'tokens'].forEach((key) => save(key)()) : save(what)(),
  redirectToAuthorization: async (to) => (back = await get(`/person?to=${encodeURIComponent(to)}`)),
};
const connect = async () => {
  const transport = new StreamableHTTPClientTransport(new URL(`${origin}/mcp`), { authProvider });
  const client = new Client({ name: 'client', version: '1' });
  try {
    await client.connect(transport);
    return client;
  } catch (error) {
    if (error.name !== 'UnauthorizedError') throw error;
    await transport.finishAuth(back.code, back.iss);
    return connect();
  }
};
const call = async (client) => {
  const { content } = await client.callTool({ name: 'read', arguments: {} });
  return content[0].text;
};
const report = async (what, answers) =>
  console.log(JSON.stringify([name, what, await get('/counts'), answers.filter((answer) => answer === 'done').length, answers.length]));
const client = await connect();
const answer = await call(client);
if (name !== 'login') {
  await report('new process', [answer]);
  await sleep(6000);
  const answers = await Promise.allSettled([call(client), call(client), call(client)]);
  await report('three calls', answers.map(({ value }) => value));
}
process.exit(0);
JS
cat >client.py <<'PY'
import asyncio, json, pathlib, sys, time
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

origin, name = sys.argv[1:]


async def get(path, **params):
    async with httpx2.AsyncClient(timeout=30) as http:
        return (await http.get(origin + path, params=params)).json()


class Store:
    async def load(self, path, kind):
        return kind.model_validate_json(path.read_text()) if path.exists() else None

    async def get_tokens(self):
        return await self.load(pathlib.Path("tokens"), OAuthToken)

    async def set_tokens(self, tokens):
        pathlib.Path("tokens").write_text(tokens.model_dump_json())
        pathlib.Path("end").write_text(str(time.time() + tokens.expires_in))

    async def get_client_info(self):
        return await self.load(pathlib.Path("client"), OAuthClientInformationFull)

    async def set_client_info(self, info):
        pathlib.Path("client").write_text(info.model_dump_json())


class Timed(OAuthClientProvider):
    async def _initialize(self):
        await super()._initialize()
        self.context.token_expiry_time = float(pathlib.Path("end").read_text())


async def redirect(to):
    redirect.back = await get("/person", to=to)


async def callback():
    return AuthorizationCodeResult(**{key: redirect.back[key] for key in ("code", "state", "iss")})


async def call(client):
    return (await client.call_tool("read", {})).content[0].text


async def report(what, answers):
    print(json.dumps([name, what, await get("/counts"), answers.count("done"), len(answers)]))


async def main():
    metadata = OAuthClientMetadata(redirect_uris=["http://127.0.0.1/back"], token_endpoint_auth_method="none")
    kind = Timed if name == "Python with the time set" else OAuthClientProvider
    auth = kind(f"{origin}/mcp", metadata, Store(), redirect, callback)
    async with httpx2.AsyncClient(auth=auth, timeout=30) as http:
        async with Client(streamable_http_client(f"{origin}/mcp", http_client=http)) as client:
            answer = await call(client)
            if name != "login":
                await report("new process", [answer])
            if name == "Python":
                await asyncio.sleep(6)
                await report("three calls", await asyncio.gather(*(call(client) for _ in range(3)), return_exceptions=True))


asyncio.run(asyncio.wait_for(main(), 60))
PY
node --no-warnings server.js >server.log 2>&1 &
server=$!
for _ in {1..100}; do [ -s origin ] && break; sleep 0.2; done
origin=$(cat origin)
count() {
    node -p 'require("fs").readFileSync(0, "utf8").trim().split("\n").map(JSON.parse).map(([name, what, { refresh, person }, good, all]) =>
      `${name}, ${what}: ${refresh} refresh${refresh === 1 ? "" : "es"}, person asked ${person} time${person === 1 ? "" : "s"}, ` +
      `${good} of ${all} answered`).join("\n")'
}
later() { # a new process, after the end of the token
    sleep 6
    node -e 'fetch(process.argv[1])' "$origin/counts" # forget what was counted until now
    "$@"
}
{
    timeout 60 node client.js "$origin" login
    later timeout 60 node client.js "$origin" TypeScript 2>typescript.log
    v/bin/python -W ignore client.py "$origin" login
    later v/bin/python -W ignore client.py "$origin" Python
    later v/bin/python -W ignore client.py "$origin" 'Python with the time set'
} | count | tee seen
diff seen - <<'TEXT'
TypeScript, new process: 1 refresh, person asked 0 times, 1 of 1 answered
TypeScript, three calls: 3 refreshes, person asked 2 times, 0 of 3 answered
Python, new process: 0 refreshes, person asked 1 time, 1 of 1 answered
Python, three calls: 1 refresh, person asked 0 times, 3 of 3 answered
Python with the time set, new process: 1 refresh, person asked 0 times, 1 of 1 answered
TEXT
