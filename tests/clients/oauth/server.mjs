// A small MCP server that wants a token, and the authorization server `oidc-provider` of npm beside it.
//
//     node server.mjs FOLDER-WITH-NODE_MODULES
//
// Prints the address of the MCP server as its first line. Paths below /test change what it does.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(`${process.argv[2]}/package.json`);
const { default: Provider, errors } = await import(pathToFileURL(require.resolve('oidc-provider')));

const listen = (handler) => new Promise((done) => {
  const server = createServer(handler);
  server.listen(0, '127.0.0.1', () => done({ server, url: `http://127.0.0.1:${server.address().port}` }));
});

let provider;
let needed = 'mcp:read';
let lifetime = 3600;
const seen = { refreshes: 0, registrations: 0, calls: 0 };
let answer;
const authorization = await listen((request, response) => answer(request, response));
const mcp = await listen((request, response) => serve(request, response).catch((error) => response.writeHead(500).end(String(error))));
const resource = `${mcp.url}/mcp`;

provider = new Provider(authorization.url, {
  scopes: ['openid', 'offline_access', 'mcp:read', 'mcp:write'],
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  ttl: { RefreshToken: 86400 },
  features: {
    registration: { enabled: true, initialAccessToken: false },
    revocation: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => false,
      getResourceServerInfo: (_, asked) => {
        if (asked !== resource) throw new errors.InvalidTarget();
        return { scope: 'mcp:read mcp:write', audience: resource, accessTokenFormat: 'opaque', accessTokenTTL: lifetime };
      },
    },
  },
});
provider.use(async (context, next) => {
  await next();
  if (context.path === '/reg' && context.status === 201) seen.registrations += 1;
  if (context.oidc?.params?.grant_type === 'refresh_token' && context.status === 200) seen.refreshes += 1;
});
answer = provider.callback();

const read = async (request) => {
  let body = '';
  for await (const part of request) body += part;
  return body;
};

const json = (response, status, body, headers = {}) => {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
};

async function serve(request, response) {
  const url = new URL(request.url, mcp.url);
  const body = await read(request);
  if (url.pathname === '/.well-known/oauth-protected-resource/mcp') {
    return json(response, 200, { resource, authorization_servers: [authorization.url], scopes_supported: ['mcp:read'] });
  }
  if (url.pathname.startsWith('/test')) return json(response, 200, await test(url.pathname, body));
  if (url.pathname !== '/mcp') return response.writeHead(404).end();
  const token = await provider.AccessToken.find((request.headers.authorization ?? '').replace('Bearer ', ''));
  const metadata = `resource_metadata="${mcp.url}/.well-known/oauth-protected-resource/mcp"`;
  if (!token?.isValid || token.aud !== resource) {
    return json(response, 401, {}, { 'www-authenticate': `Bearer ${metadata}` });
  }
  if (request.method !== 'POST') return response.writeHead(405).end();
  const { id, method } = JSON.parse(body);
  if (method === 'tools/call' && !token.scope.split(' ').includes(needed)) {
    return json(response, 403, {}, { 'www-authenticate': `Bearer error="insufficient_scope", scope="${needed}", ${metadata}` });
  }
  if (method === 'tools/call') seen.calls += 1;
  const results = {
    initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'guarded', version: '1' } },
    'tools/list': { tools: [{ name: 'greet', description: 'Greets.', inputSchema: { type: 'object' } }] },
    'tools/call': { content: [{ type: 'text', text: `hello ${token.accountId}` }] },
  };
  if (id === undefined) return response.writeHead(202).end();
  if (!results[method]) return json(response, 404, { jsonrpc: '2.0', id, error: { code: -32601, message: 'Method not found' } });
  return json(response, 200, { jsonrpc: '2.0', id, result: results[method] });
}

async function test(path, body) {
  const said = body ? JSON.parse(body) : {};
  if (path === '/test/set') {
    needed = said.needed ?? needed;
    lifetime = said.lifetime ?? lifetime;
  }
  if (path === '/test/expire') await (await provider.AccessToken.find(said.token)).destroy();
  if (path === '/test/revoke') await provider.Grant.adapter.destroy((await provider.RefreshToken.find(said.token)).grantId);
  if (path === '/test/token') {
    const fields = new URLSearchParams({ grant_type: 'refresh_token', refresh_token: said.token, client_id: said.client, resource });
    return { status: (await fetch(`${authorization.url}/token`, { method: 'POST', body: fields })).status };
  }
  if (path === '/test/known') return { known: Boolean(await provider.RefreshToken.find(said.token)) };
  return seen;
}

console.log(resource);
