#!/usr/bin/env bash
# Guess: a tool that needs another scope answers 403 with `insufficient_scope`, and the clients of MCP ask the person once more and repeat
# the call ("step-up"). That works with each server that lets clients register themselves.
# Seen with oidc-provider 9.13.3, @modelcontextprotocol/client 2.4.0 and mcp 2.3.0: both clients register with the scope that the first
# challenge names, also if their program has named both scopes for the registration and the metadata list both. The server keeps that as
# the limit of the client (RFC 7591). The step-up asks for more with the same client, and is `invalid_scope`, each time, and neither client
# registers anew. In Python the call does not fail alone: the error of the callback, which has no other way to tell, ends the connection.
# A client that is known beforehand, without a scope, works. So a first challenge names all scopes, or clients do not register themselves.
# Output seen (Node 20.20.2, Python 3.11):
#   TypeScript, registered: scope "mcp:read offline_access": read answered, write invalid_scope, read answered
#   Python, registered: scope "mcp:read offline_access": read answered, invalid_scope, connection ended
#   TypeScript, registered by its program for both: scope "mcp:read offline_access": read answered, write invalid_scope, read answered
#   Python, registered by its program for both: scope "mcp:read offline_access": read answered, invalid_scope, connection ended
#   TypeScript, known: scope "": read answered, write answered, read answered
#   Python, known: scope "": read answered, write answered, read answered
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

let origin, provider;
const mcp = createMcpHandler(() => {
  const server = new McpServer({ name: 'server', version: '1' });
  for (const name of ['read', 'write'])
    server.registerTool(name, { inputSchema: z.object({}) }, async () => ({ content: [{ type: 'text', text: 'answered' }] }));
  return server;
});
const person = async (to) => {
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
  if (pathname === '/.well-known/oauth-protected-resource/mcp')
    return json({ resource: `${origin}/mcp`, authorization_servers: [origin], scopes_supported: ['mcp:read', 'mcp:write'] });
  if (pathname !== '/mcp') return provider.callback()(request, response);
  const { method, headers } = request;
  const parts = await request.toArray();
  const body = parts.length ? Buffer.concat(parts) : undefined;
  const token = await provider.AccessToken.find((headers.authorization ?? '').slice(7));
  const scope = body?.includes('"name":"write"') ? 'mcp:write' : 'mcp:read';
  const place = `scope="${scope}", resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"`;
  if (!token?.isValid) return json({}, 401, { 'www-authenticate': `Bearer ${place}` });
  if (!token.scope.split(' ').includes(scope))
    return json({}, 403, { 'www-authenticate': `Bearer error="insufficient_scope", ${place}` });
  const answer = await mcp.fetch(new Request(`${origin}/mcp`, { method, headers, body }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  for await (const part of answer.body ?? []) response.write(part);
  response.end();
};
const http = createServer((request, response) => serve(request, response).catch((error) => response.destroy(error)));
http.listen(0, '127.0.0.1', () => {
  origin = `http://127.0.0.1:${http.address().port}`;
  provider = new Provider(origin, {
    clients: [{
      client_id: 'known',
      application_type: 'native',
      redirect_uris: ['http://127.0.0.1/back'],
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method: 'none',
    }],
    scopes: ['offline_access', 'mcp:read', 'mcp:write'],
    findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    ttl: { AccessToken: 600, Grant: 86400, Interaction: 600, RefreshToken: 86400, Session: 86400 },
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({ scope: 'mcp:read mcp:write', accessTokenFormat: 'opaque' }),
      },
    },
  });
  writeFileSync('origin', origin);
});
JS
cat >client.js <<'JS'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [origin, kind] = process.argv.slice(2);
const store = kind === 'known' ? { client: { client_id: kind, issuer: origin } } : {};
const save = (key) => (value) => (store[key] = value);
let back;
const authProvider = {
  redirectUrl: 'http://127.0.0.1/back',
  clientMetadata: {
    ...(kind === 'registered by its program for both' && { scope: 'mcp:read mcp:write' }),
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
  redirectToAuthorization: async (to) => {
    back = await (await fetch(`${origin}/person?to=${encodeURIComponent(to)}`)).json();
  },
};
let transport;
const withPerson = async (work) => {
  try {
    return await work();
  } catch (error) {
    if (error.name !== 'UnauthorizedError') throw error;
    if (back.error) return back.error;
    await transport.finishAuth(back.code, back.iss);
    return withPerson(work);
  }
};
const client = await withPerson(async () => {
  transport = new StreamableHTTPClientTransport(new URL(`${origin}/mcp`), { authProvider });
  const connected = new Client({ name: 'client', version: '1' });
  await connected.connect(transport);
  return connected;
});
const call = (name) => withPerson(async () => (await client.callTool({ name, arguments: {} })).content[0].text);
const answers = [];
for (const name of ['read', 'write', 'read']) answers.push(`${name} ${await call(name)}`);
console.log(`TypeScript, ${kind}: scope "${store.client.scope ?? ''}": ${answers.join(', ')}`);
process.exit(0);
JS
cat >client.py <<'PY'
import asyncio, sys
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

origin, kind = sys.argv[1:]
answers = []


class Refused(Exception):
    pass


class Store:
    tokens = None
    back = {"redirect_uris": ["http://127.0.0.1/back"], "token_endpoint_auth_method": "none"}
    info = OAuthClientInformationFull(client_id=kind, issuer=origin, **back) if kind == "known" else None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.info

    async def set_client_info(self, info):
        self.info = info


async def redirect(to):
    async with httpx2.AsyncClient(timeout=30) as http:
        redirect.back = (await http.get(f"{origin}/person", params={"to": to})).json()


async def callback():
    if "error" in redirect.back:
        raise Refused(redirect.back["error"])
    return AuthorizationCodeResult(**{key: redirect.back[key] for key in ("code", "state", "iss")})


async def call(client, name):
    answers.append(f"{name} {(await client.call_tool(name, {})).content[0].text}")


async def main():
    scope = "mcp:read mcp:write" if kind == "registered by its program for both" else None
    metadata = OAuthClientMetadata(scope=scope, **Store.back)
    auth = OAuthClientProvider(f"{origin}/mcp", metadata, Store(), redirect, callback)
    try:
        async with httpx2.AsyncClient(auth=auth, timeout=30) as http:
            async with Client(streamable_http_client(f"{origin}/mcp", http_client=http)) as client:
                for name in ("read", "write", "read"):
                    await call(client, name)
    except* Refused as error:
        answers.append(f"{error.exceptions[0]}, connection ended")
    print(f'Python, {kind}: scope "{auth.context.client_info.scope or ""}": {", ".join(answers)}')


asyncio.run(asyncio.wait_for(main(), 60))
PY
node --no-warnings server.js >server.log 2>&1 &
server=$!
for _ in {1..100}; do [ -s origin ] && break; sleep 0.2; done
origin=$(cat origin)
for kind in registered 'registered by its program for both' known; do
    timeout 60 node client.js "$origin" "$kind"
    v/bin/python -W ignore client.py "$origin" "$kind" 2>python.log || { cat python.log; exit 1; }
done | tee seen
diff seen - <<'TEXT'
TypeScript, registered: scope "mcp:read offline_access": read answered, write invalid_scope, read answered
Python, registered: scope "mcp:read offline_access": read answered, invalid_scope, connection ended
TypeScript, registered by its program for both: scope "mcp:read offline_access": read answered, write invalid_scope, read answered
Python, registered by its program for both: scope "mcp:read offline_access": read answered, invalid_scope, connection ended
TypeScript, known: scope "": read answered, write answered, read answered
Python, known: scope "": read answered, write answered, read answered
TEXT
