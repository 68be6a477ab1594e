#!/usr/bin/env bash
# Guess: a client that openapi-python-client generates sends a query array as the document says: with `explode: false` as one
# comma list, `status=a,b`; what the generator cannot do, it names when it generates.
# Seen with openapi-python-client 0.29.1 on Python 3.11: it sends `status=a&status=b` with `explode: false` too, and says nothing. A
# server that takes exactly what its document says refuses the request, or takes one of the two values.
# Output seen:
#   http://x/list?status=a&status=b
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check openapi-python-client==0.29.1
cat >openapi.json <<'JSON'
{"openapi": "3.1.0", "info": {"title": "T", "version": "1"}, "paths": {"/list": {"get": {
  "operationId": "list", "tags": ["t"],
  "parameters": [{"name": "status", "in": "query", "style": "form", "explode": false,
                  "schema": {"type": "array", "items": {"type": "string"}}}],
  "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"type": "string"}}}}}}}}}
JSON
v/bin/openapi-python-client generate --path openapi.json --meta none --output-path t_client >log 2>&1
url=$(v/bin/python -c '
import httpx
from t_client.api.t import list_
kwargs = list_._get_kwargs(status=["a", "b"])
print(httpx.Client(base_url="http://x").build_request(kwargs["method"], kwargs["url"], params=kwargs["params"]).url)')
echo "$url"
[ "$url" = 'http://x/list?status=a&status=b' ]
! grep -qiE 'explode|status|parameter' log
