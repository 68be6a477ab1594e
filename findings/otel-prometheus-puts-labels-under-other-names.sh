#!/usr/bin/env bash
# Guess: two libraries may have an instrument of the same name, such as http.client.duration. The Prometheus exporter of
# OpenTelemetry gives each value with the labels of its own library (`otel_scope_name`), and each label its own value.
# Seen with opentelemetry-exporter-prometheus 0.66b1 and opentelemetry-sdk 1.45.1 for Python, with the instrumentations
# for httpx and requests 0.66b1, and @opentelemetry/exporter-prometheus 0.301.0 for Node: the exporter for Python has
# one list of label names for all, that of the library which comes first. The values of the other library, in the order
# of its own label names, go under those names, and surplus values are cut off. So with httpx and requests in one
# program, the requests of one of them have the method "1.1" and the status "GET". There is no error and no warning.
# Node gives right labels.
# Output seen (Python 3.11, Node 20.20.2): the labels of a GET with each library, and of a counter "calls" with the
# attribute tool=clock of the scope "chat", and user=bob of the scope "mail"
#   httpx: http_method="GET" http_scheme="http" http_status_code="200" otel_scope_name="opentelemetry.instrumentation.httpx"
#   requests: http_method="1.1" http_scheme="127.0.0.1" http_status_code="GET" otel_scope_name="http"
#   Python: otel_scope_name="chat" tool="clock" | otel_scope_name="mail" tool="bob"
#   Node: otel_scope_name="chat" tool="clock" | otel_scope_name="mail" user="bob"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset "${!OTEL_@}"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @opentelemetry/api@1.10.0 @opentelemetry/exporter-prometheus@0.301.0 \
    @opentelemetry/sdk-metrics@3.1.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check opentelemetry-sdk==1.45.1 opentelemetry-exporter-prometheus==0.66b1 \
    opentelemetry-instrumentation-httpx==0.66b1 opentelemetry-instrumentation-requests==0.66b1 prometheus-client==0.26.0 httpx==0.28.1 \
    requests==2.34.2 2>errors
cat >labels.py <<'PY'
import http.server, re, sys, threading
import httpx, prometheus_client, requests
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.sdk.metrics import MeterProvider


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def labels(name):
    """The labels of each sample with this name, in the order of the page, without version and schema."""
    page = prometheus_client.generate_latest().decode()
    lines = re.findall(rf"^{name}{{(.*)}}", page, re.MULTILINE)
    return [" ".join(re.findall(r'\b(?!otel_scope_[sv])\w+="[^"]*"', line)) for line in lines]


provider = MeterProvider(metric_readers=[PrometheusMetricReader()])
if sys.argv[1] == "libraries":
    HTTPXClientInstrumentor().instrument(meter_provider=provider)
    RequestsInstrumentor().instrument(meter_provider=provider)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, get in (("httpx", httpx.get), ("requests", requests.get)):
        get(f"http://127.0.0.1:{server.server_port}/")
        print(f"{name}: {labels('http_client_duration_milliseconds_count')[-1]}")
else:
    provider.get_meter("chat").create_counter("calls").add(1, {"tool": "clock"})
    provider.get_meter("mail").create_counter("calls").add(1, {"user": "bob"})
    print(f"Python: {' | '.join(labels('calls_total'))}")
PY
cat >labels.js <<'JS'
import { PrometheusExporter, PrometheusSerializer } from '@opentelemetry/exporter-prometheus';
import { MeterProvider } from '@opentelemetry/sdk-metrics';

const exporter = new PrometheusExporter({ preventServerStart: true });
const provider = new MeterProvider({ readers: [exporter] });
provider.getMeter('chat').createCounter('calls').add(1, { tool: 'clock' });
provider.getMeter('mail').createCounter('calls').add(1, { user: 'bob' });
const { resourceMetrics } = await exporter.collect();
const page = new PrometheusSerializer().serialize(resourceMetrics);
const lines = [...page.matchAll(/^calls_total\{(.*)\}/gm)].map(([, labels]) => labels.match(/\b(?!otel_scope_[sv])\w+="[^"]*"/g).sort().join(' '));
console.log(`Node: ${lines.join(' | ')}`);
JS
{ v/bin/python labels.py libraries 2>>errors && v/bin/python labels.py scopes 2>>errors && node labels.js 2>>errors; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
httpx: http_method="GET" http_scheme="http" http_status_code="200" otel_scope_name="opentelemetry.instrumentation.httpx"
requests: http_method="1.1" http_scheme="127.0.0.1" http_status_code="GET" otel_scope_name="http"
Python: otel_scope_name="chat" tool="clock" | otel_scope_name="mail" tool="bob"
Node: otel_scope_name="chat" tool="clock" | otel_scope_name="mail" user="bob"
TEXT
