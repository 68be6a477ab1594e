#!/usr/bin/env bash
# Guess: OpenTelemetry says how the name and the unit of an instrument become a name in Prometheus, so its exporters
# agree, and one dashboard is right for programs in Python and Node. A histogram has buckets `NAME_bucket` that count
# each value up to their limit.
# Seen with opentelemetry-exporter-prometheus 0.66b1 and opentelemetry-exporter-prometheus-remote-write 0.66b1 for
# Python (opentelemetry-sdk 1.45.1), and @opentelemetry/exporter-prometheus 0.301.0 for Node: a page of Python has the
# unit as a word behind the name, one of Node has none, and remote write has the short unit, for a counter without
# `_total`. The histogram of remote write has no `_bucket`, and each of its buckets counts only its own values: the one
# without a limit holds 0 of three. Remote write leaves out the scope too, so two scopes with a counter "calls" give one
# series twice in a request, with two values. No exporter gives an error or a warning.
# Output seen (Python 3.11, Node 20.20.2): 1 call in the scope "chat" and 4 in "mail"; 0.5 s, 0.6 s and 5 s with the
# limits 1 and 10; 3 bytes; 50 %; 2 jobs
#   Python, page: calls_total(chat) 1 | calls_total(mail) 4 | job_duration_seconds_bucket(1) 2 | job_duration_seconds_bucket(10) 3 | job_duration_seconds_bucket(+Inf) 3 | bytes_sent_bytes_total 3 | disk_used_percent 50 | queue_size 2
#   Python, remote write: calls 1 | job_duration_s(1) 2 | job_duration_s(10) 1 | job_duration_s(+Inf) 0 | bytes_sent_By 3 | disk_used__ 50 | queue_size__job_ 2 | calls 4
#   Node, page: calls_total(chat) 1 | calls_total(mail) 4 | job_duration_bucket(1) 2 | job_duration_bucket(10) 3 | job_duration_bucket(+Inf) 3 | bytes_sent_total 3 | disk_used 50 | queue_size 2
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
    opentelemetry-exporter-prometheus-remote-write==0.66b1 prometheus-client==0.26.0 python-snappy==0.7.3 2>errors
cat >names.py <<'PY'
import http.server, pathlib, threading
import prometheus_client.parser, snappy
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.exporter.prometheus_remote_write import PrometheusRemoteWriteMetricsExporter
from opentelemetry.exporter.prometheus_remote_write.gen.remote_pb2 import WriteRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

requests = []


class Service(http.server.BaseHTTPRequestHandler):
    """Keeps what is written to it."""

    def do_POST(self):
        requests.append(WriteRequest.FromString(snappy.decompress(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
exporter = PrometheusRemoteWriteMetricsExporter(f"http://127.0.0.1:{server.server_port}/")
writer = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
provider = MeterProvider(metric_readers=[PrometheusMetricReader(), writer])
chat, mail = provider.get_meter("chat"), provider.get_meter("mail")
chat.create_counter("calls").add(1)
mail.create_counter("calls").add(4)
duration = chat.create_histogram("job.duration", unit="s", explicit_bucket_boundaries_advisory=[1, 10])
for seconds in (0.5, 0.6, 5):
    duration.record(seconds)
chat.create_counter("bytes.sent", unit="By").add(3)
chat.create_gauge("disk.used", unit="%").set(50)
chat.create_up_down_counter("queue.size", unit="{job}").add(2)


def short(samples):
    """The samples of the instruments, each with its limit or its scope."""
    seen = []
    for name, labels, value in samples:
        if name.startswith(("calls", "job_", "bytes_", "disk_", "queue_")) and not name.endswith(("_created", "_sum", "_count")):
            mark = labels.get("le") or (labels.get("otel_scope_name") if name.startswith("calls") else None)
            seen.append(f"{name}{f'({mark})' if mark else ''} {value:g}")
    return " | ".join(seen)


def page_samples(page):
    return [sample[:3] for family in prometheus_client.parser.text_string_to_metric_families(page) for sample in family.samples]


def written_samples(request):
    for series in request.timeseries:
        labels = {label.name: label.value for label in series.labels}
        yield labels.pop("__name__"), labels, series.samples[0].value


print(f"Python, page: {short(page_samples(prometheus_client.generate_latest().decode()))}")
writer.force_flush()
print(f"Python, remote write: {short(written_samples(requests[0]))}")
print(f"Node, page: {short(page_samples(pathlib.Path('node.txt').read_text()))}")
PY
cat >names.js <<'JS'
import { PrometheusExporter, PrometheusSerializer } from '@opentelemetry/exporter-prometheus';
import { MeterProvider } from '@opentelemetry/sdk-metrics';

const exporter = new PrometheusExporter({ preventServerStart: true });
const provider = new MeterProvider({ readers: [exporter] });
const chat = provider.getMeter('chat');
chat.createCounter('calls').add(1);
provider.getMeter('mail').createCounter('calls').add(4);
const duration = chat.createHistogram('job.duration', { unit: 's', advice: { explicitBucketBoundaries: [1, 10] } });
for (const seconds of [0.5, 0.6, 5]) duration.record(seconds);
chat.createCounter('bytes.sent', { unit: 'By' }).add(3);
chat.createGauge('disk.used', { unit: '%' }).record(50);
chat.createUpDownCounter('queue.size', { unit: '{job}' }).add(2);
const { resourceMetrics } = await exporter.collect();
console.log(new PrometheusSerializer().serialize(resourceMetrics));
JS
{ node names.js >node.txt 2>>errors && v/bin/python names.py 2>>errors; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
Python, page: calls_total(chat) 1 | calls_total(mail) 4 | job_duration_seconds_bucket(1) 2 | job_duration_seconds_bucket(10) 3 | job_duration_seconds_bucket(+Inf) 3 | bytes_sent_bytes_total 3 | disk_used_percent 50 | queue_size 2
Python, remote write: calls 1 | job_duration_s(1) 2 | job_duration_s(10) 1 | job_duration_s(+Inf) 0 | bytes_sent_By 3 | disk_used__ 50 | queue_size__job_ 2 | calls 4
Node, page: calls_total(chat) 1 | calls_total(mail) 4 | job_duration_bucket(1) 2 | job_duration_bucket(10) 3 | job_duration_bucket(+Inf) 3 | bytes_sent_total 3 | disk_used 50 | queue_size 2
TEXT
