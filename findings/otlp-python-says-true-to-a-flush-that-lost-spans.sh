#!/usr/bin/env bash
# Guess: `force_flush` says whether what was recorded has arrived, since OpenTelemetry's specification asks for a result by which a caller
# knows of success, failure or timeout. An answer with `partial_success`, by which a collector says how many items it has dropped and why,
# is at least logged as a warning (OTLP, "Partial Success").
# Seen with opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http 1.45.2 for Python, @opentelemetry/sdk-trace 3.1.1 and
# @opentelemetry/exporter-trace-otlp-proto 0.301.1 for Node: for Python `force_flush` is True after each answer with which the items are
# lost, for spans, logs and metrics. Its timeout of half a second does not end the wait for a `retry-after` of 2 seconds, and the result is
# True then too. A dropped item is neither an error nor a line in the log. A program that flushes before it ends cannot tell, and only the
# log shows a refused batch. The SDK for Node rejects the promise of a flush, and logs what a partial success says.
# Output seen (Python 3.11, Node 20.20.2): the result of a flush, and the number of lines in the log, by what the collector answers first
#   Python, spans: 400 True, 1 line | partial True, 0 lines | 429 True after the timeout, 1 line
#   Python, logs: 400 True, 1 line | partial True, 0 lines | 429 True after the timeout, 1 line
#   Python, metrics: 400 True, 1 line | partial True, 0 lines | 429 True after the timeout, 1 line
#   Node, spans: 400 rejected, 0 lines | partial resolved, 1 line
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @opentelemetry/exporter-trace-otlp-proto@0.301.1 @opentelemetry/sdk-trace@3.1.1 \
    @opentelemetry/api@1.10.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2
cat >collector.js <<'JS'
import { createServer } from 'node:http';

// The first part of a path is the answer to its first request. A partial success says 1 dropped item, and "too old".
const partial = Buffer.from('\x0a\x0b\x08\x01\x12\x07too old', 'latin1');
const asked = new Set();
const server = createServer(async (request, response) => {
  await request.toArray();
  const answer = request.url.split('/')[1];
  if (/^\d+$/.test(answer) && !asked.has(request.url)) response.statusCode = Number(answer);
  asked.add(request.url);
  if (response.statusCode === 429) response.setHeader('retry-after', '2');
  response.setHeader('content-type', 'application/x-protobuf');
  response.end(answer === 'partial' ? partial : '');
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
JS
mkfifo ready
node collector.js >ready &
server=$!
read -r port <ready
cat >flush.py <<'PY'
import logging, sys, time
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

lines = []


class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())


logging.basicConfig(level=logging.WARNING, handlers=[Lines()])


def spans(url):
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    provider.get_tracer("t").start_span("s").end()
    return provider


def logs(url):
    provider = LoggerProvider()
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=url)))
    provider.get_logger("l").emit(LogRecord(timestamp=1, body="text", severity_number=SeverityNumber.INFO))
    return provider


def metrics(url):
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=url))])
    provider.get_meter("m").create_counter("c").add(1)
    return provider


for record in (spans, logs, metrics):
    seen = []
    for answer in ("400", "partial", "429"):
        provider = record(f"http://127.0.0.1:{sys.argv[1]}/{answer}/{record.__name__}")
        lines.clear()
        begin = time.monotonic()
        flushed = provider.force_flush(500 if answer == "429" else 20000)
        late = " after the timeout" if answer == "429" and time.monotonic() - begin > 1.5 else ""
        seen.append(f"{answer} {flushed}{late}, {len(lines)} line{'' if len(lines) == 1 else 's'}")
        provider.shutdown()
    print(f"Python, {record.__name__}: {' | '.join(seen)}")
PY
cat >flush.js <<'JS'
import { diag, DiagLogLevel } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { BatchSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';

let lines = 0;
const count = () => lines++;
diag.setLogger({ error: count, warn: count, info: count, debug: count, verbose: count }, DiagLogLevel.WARN);
const seen = [];
for (const answer of ['400', 'partial']) {
  const exporter = new OTLPTraceExporter({ url: `http://127.0.0.1:${process.argv[2]}/${answer}/node` });
  const provider = new TracerProvider({ spanProcessors: [new BatchSpanProcessor({ exporter })] });
  provider.getTracer('t').startSpan('s').end();
  lines = 0;
  const flushed = await provider.forceFlush().then(() => 'resolved', () => 'rejected');
  seen.push(`${answer} ${flushed}, ${lines} line${lines === 1 ? '' : 's'}`);
  await provider.shutdown();
}
console.log(`Node, spans: ${seen.join(' | ')}`);
JS
{
    v/bin/python flush.py "$port"
    node flush.js "$port"
} | tee seen
diff seen - <<'TEXT'
Python, spans: 400 True, 1 line | partial True, 0 lines | 429 True after the timeout, 1 line
Python, logs: 400 True, 1 line | partial True, 0 lines | 429 True after the timeout, 1 line
Python, metrics: 400 True, 1 line | partial True, 0 lines | 429 True after the timeout, 1 line
Node, spans: 400 rejected, 0 lines | partial resolved, 1 line
TEXT
