#!/usr/bin/env bash
# Guess: an answer of the API for embeddings gives each vector an `index`. Clients that return plain lists of vectors for a list of texts
# sort by it, or check it, so the order of `data` does not matter.
# Seen with openai 3.57.0, langchain-openai 1.7.4, llama-index-embeddings-openai 0.6.0, haystack-ai 3.4.1, litellm 1.110.2, pydantic-ai-slim
# 2.68.0 and agno 3.1.10 for Python, openai 7.59.0, ai 7.0.173 with @ai-sdk/openai 4.0.118 and with @ai-sdk/openai-compatible 3.0.92,
# @langchain/openai 1.5.8 and @llamaindex/openai 0.4.22 for Node: none of the twelve reads `index`. The vectors of an answer in another
# order go to other texts, without an error, and haystack writes them into the wrong documents. So a server or a gateway that spreads the
# texts of one request has to sort the answer itself.
# Output seen (Python 3.11, Node 20.20.2), for the texts 0, 1 and 2, whose vectors begin with their numbers, answered in the order 2, 0, 1:
#   Python openai: 2, 0, 1
#   Python langchain: 2, 0, 1
#   Python llama-index: 2, 0, 1
#   Python haystack: 2, 0, 1
#   Python litellm: 2, 0, 1
#   Python pydantic-ai: 2, 0, 1
#   Python agno: 2, 0, 1
#   Node openai: 2, 0, 1
#   Node ai: 2, 0, 1
#   Node ai, compatible: 2, 0, 1
#   Node langchain: 2, 0, 1
#   Node llamaindex: 2, 0, 1
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts openai@7.59.0 ai@7.0.173 @ai-sdk/openai@4.0.118 @ai-sdk/openai-compatible@3.0.92 \
    @langchain/openai@1.5.8 @langchain/core@1.4.0 @llamaindex/openai@0.4.22 llamaindex@0.12.1 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check openai==3.57.0 langchain-openai==1.7.4 \
    llama-index-embeddings-openai==0.6.0 haystack-ai==3.4.1 litellm==1.110.2 'pydantic-ai-slim[openai]==2.68.0' agno==3.1.10
cat >server.py <<'PY'
import base64, json, pathlib, struct
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(BaseHTTPRequestHandler):
    log_message = lambda *_: None

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        data = []
        for index, text in enumerate(asked["input"]):
            vector = [float(text.split()[1]), 0.5]
            if asked.get("encoding_format") == "base64":
                vector = base64.b64encode(struct.pack("<2f", *vector)).decode()
            data.append({"object": "embedding", "index": index, "embedding": vector})
        data = data[-1:] + data[:-1]
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        self.wfile.write(json.dumps({"object": "list", "model": asked["model"], "data": data, "usage": usage}).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
pathlib.Path("port").write_text(str(server.server_address[1]))
server.serve_forever()
PY
cat >clients.py <<'PY'
import asyncio, logging, os, pathlib, warnings

base = f"http://127.0.0.1:{pathlib.Path('port').read_text()}/v1"
os.environ.update(OPENAI_API_KEY="none", OPENAI_BASE_URL=base, LITELLM_LOCAL_MODEL_COST_MAP="True", HAYSTACK_TELEMETRY_ENABLED="False")
import litellm
from agno.knowledge.embedder.openai import OpenAIEmbedder
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai import OpenAIEmbedding
from openai import OpenAI
from pydantic_ai import Embedder

warnings.simplefilter("ignore")
logging.disable()
model = "text-embedding-3-small"
texts = ["text 0", "text 1", "text 2"]


def haystack():
    documents = OpenAIDocumentEmbedder(model=model, progress_bar=False).run([Document(content=text) for text in texts])["documents"]
    return [next(document.embedding for document in documents if document.content == text) for text in texts]


clients = {
    "openai": lambda: [one.embedding for one in OpenAI().embeddings.create(model=model, input=texts).data],
    "langchain": lambda: OpenAIEmbeddings(model=model, check_embedding_ctx_length=False).embed_documents(texts),
    "llama-index": lambda: OpenAIEmbedding(model=model, api_base=base).get_text_embedding_batch(texts),
    "haystack": haystack,
    "litellm": lambda: [one["embedding"] for one in litellm.embedding(f"openai/{model}", texts, api_base=base, api_key="none").data],
    "pydantic-ai": lambda: asyncio.run(Embedder(f"openai:{model}").embed_documents(texts)).embeddings,
    "agno": lambda: asyncio.run(OpenAIEmbedder(id=model).async_get_embeddings_batch_and_usage(texts))[0],
}
for name, call in clients.items():
    print(f"Python {name}: {', '.join(f'{vector[0]:.0f}' for vector in call())}")
PY
cat >clients.js <<'JS'
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { embedMany } from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { OpenAIEmbeddings } from '@langchain/openai';
import { OpenAIEmbedding } from '@llamaindex/openai';

const apiKey = 'none';
const baseURL = `http://127.0.0.1:${readFileSync('port', 'utf8')}/v1`;
const model = 'text-embedding-3-small';
const values = ['text 0', 'text 1', 'text 2'];
const compatible = createOpenAICompatible({ name: 'own', apiKey, baseURL });
const clients = {
  openai: async () => (await new OpenAI({ apiKey, baseURL }).embeddings.create({ model, input: values })).data.map((one) => one.embedding),
  ai: async () => (await embedMany({ model: createOpenAI({ apiKey, baseURL }).embedding(model), values })).embeddings,
  'ai, compatible': async () => (await embedMany({ model: compatible.embeddingModel(model), values })).embeddings,
  langchain: () => new OpenAIEmbeddings({ model, apiKey, configuration: { baseURL } }).embedDocuments(values),
  llamaindex: () => new OpenAIEmbedding({ model, apiKey, baseURL }).getTextEmbeddings(values),
};
for (const [name, call] of Object.entries(clients)) console.log(`Node ${name}: ${(await call()).map(([first]) => first).join(', ')}`);
JS
python3 server.py 2>errors & server=$!
until [ -s port ]; do
    kill -0 $server 2>/dev/null || { cat errors; exit 1; }
    sleep 0.1
done
{ v/bin/python clients.py && node clients.js; } 2>>errors | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
Python openai: 2, 0, 1
Python langchain: 2, 0, 1
Python llama-index: 2, 0, 1
Python haystack: 2, 0, 1
Python litellm: 2, 0, 1
Python pydantic-ai: 2, 0, 1
Python agno: 2, 0, 1
Node openai: 2, 0, 1
Node ai: 2, 0, 1
Node ai, compatible: 2, 0, 1
Node langchain: 2, 0, 1
Node llamaindex: 2, 0, 1
TEXT
