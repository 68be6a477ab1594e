#!/usr/bin/env bash
# Guess: the official messages of OpenTelemetry, written as JSON by protobuf's own function, are the JSON that OTLP over HTTP takes.
# Seen with opentelemetry-proto 1.45.2 and protobuf 7.36.2: ids come as base64 and kinds as names. OTLP's JSON has ids in hexadecimal
# and kinds as numbers (OTLP specification, "JSON Protobuf Encoding"), so a collector reads other ids or refuses the request. The
# package brings no function for the right form.
# Output seen:
#   {'traceId': 'AAECAwQFBgcICQoLDA0ODw==', 'spanId': 'AAECAwQFBgc=', 'kind': 'SPAN_KIND_SERVER'}
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/python"
"$folder/python/bin/pip" install --quiet --disable-pip-version-check opentelemetry-proto==1.45.2 protobuf==7.36.2
"$folder/python/bin/python" - >"$folder/seen" <<'PY'
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.trace.v1.trace_pb2 import Span

print(MessageToDict(Span(trace_id=bytes(range(16)), span_id=bytes(range(8)), kind=2)))
PY
cat "$folder/seen"
diff "$folder/seen" - <<'SEEN'
{'traceId': 'AAECAwQFBgcICQoLDA0ODw==', 'spanId': 'AAECAwQFBgc=', 'kind': 'SPAN_KIND_SERVER'}
SEEN
