#!/usr/bin/env python3
"""The traces, metrics and log lines that a real daemon sends to a collector of OpenTelemetry, decoded by its own package.

    BELAY_BIN=target/debug/belay tests/telemetry.py

The collector is a small HTTP server in this program, which can also refuse, be slow, or be absent. Needs the package `opentelemetry-proto`
(tests/run.py installs it under build/telemetry). Prints a line for each test and, as its last line, "N passed, N failed, N skipped".
"""

import http.server
import json
import math
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
import uuid

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from belay_process import Belay, until  # noqa: E402

BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
LIMIT_S = 300
# The time that the end of a daemon may take, with a collector that does not answer: 3 s for the last data, and its own end.
END_S = 60
# A collector that hangs does so for longer than any wait here.
HELD_S = 4 * LIMIT_S


class Collector:
    """Accepts all signals over HTTP. `statuses`: the answers to the first requests; after them it accepts."""

    def __init__(self, statuses=(), hold=None):
        self.statuses, self.hold = list(statuses), hold
        self.requests, self.lock = [], threading.Lock()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with collector.lock:
                    status = collector.statuses.pop(0) if collector.statuses else 200
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    collector.requests.append((self.path, headers, body, status))
                if collector.hold:
                    collector.hold.wait(HELD_S)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # a client that has ended

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        if self.hold:
            self.hold.set()
        self.server.shutdown()
        self.server.server_close()

    def bodies(self, signal):
        """The bodies of the accepted requests of a signal."""
        with self.lock:
            return [body for path, _, body, status in self.requests if status == 200 and path == f"/v1/{signal}"]

    def accepted(self):
        """The resources and the spans of the accepted requests."""
        resources, spans = [], []
        for body in self.bodies("traces"):
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                resources.append(facts(part.resource))
                spans.extend(span for scope in part.scope_spans for span in scope.spans)
        return resources, spans

    def metrics(self):
        """The metrics of the last accepted request by name, and its resource."""
        bodies = self.bodies("metrics")
        if not bodies:
            return {}, {}
        (part,) = ExportMetricsServiceRequest.FromString(bodies[-1]).resource_metrics
        return {metric.name: metric for scope in part.scope_metrics for metric in scope.metrics}, facts(part.resource)

    def lines(self):
        """The accepted log records, each with its target."""
        found = []
        for body in self.bodies("logs"):
            for part in ExportLogsServiceRequest.FromString(body).resource_logs:
                assert facts(part.resource)["service.name"] == "belay", part.resource
                found.extend((scope.scope.name, record) for scope in part.scope_logs for record in scope.log_records)
        return found

    def line(self, text, run=None):
        """The first log record with this text, of this run, once it has arrived."""

        def wanted():
            records = [record for _, record in self.lines() if record.body.string_value == text]
            return next((record for record in records if run is None or facts(record).get("run") == run), None)

        return until(f"the line {text!r}", wanted, LIMIT_S)

    def trace(self, run, limit_s=LIMIT_S):
        """The spans of a run, once its own has arrived."""
        wanted = uuid.UUID(run).bytes

        def of_run():
            spans = [span for span in self.accepted()[1] if span.trace_id == wanted]
            return spans if any(not span.parent_span_id for span in spans) else None

        return until(f"the trace of {run}", of_run, limit_s)


def facts(part):
    """The attributes of a resource, a span, a log record or a point of a metric."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in part.attributes}


def daemon(endpoint, settings=None, secrets=None, signals=("traces",)):
    own = {"llm.provider": "rehearsal", "telemetry.otlp_endpoint": endpoint, "telemetry.signals": json.dumps(signals)}
    return Belay(BINARY, {**own, **(settings or {})}, secrets)


def post(belay, path, body):
    request = urllib.request.Request(belay.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.load(answer)


def ask(belay, text, session="traces", wait_ms=LIMIT_S * 1000):
    return post(belay, "/api/v1/messages", {"session": session, "text": text, "wait_ms": wait_ms})


def page(belay):
    with urllib.request.urlopen(belay.url + "/metrics", timeout=LIMIT_S) as answer:
        return answer.read().decode()


def one(spans, name):
    found = [span for span in spans if span.name == name]
    assert len(found) == 1, (name, [span.name for span in spans])
    return found[0]


def a_run_is_a_trace_by_the_conventions_for_generative_ai():
    secrets = {"OTLP_HEADERS": "x-api-key=s3cret,x-tenant=a"}
    settings = {"telemetry.otlp_headers_env": "OTLP_HEADERS", "telemetry.service_name": "belay-test"}
    with Collector() as collector, daemon(collector.url, settings, secrets) as belay:
        before = time.time_ns()
        run = ask(belay, "calculate 17*23")
        assert "391" in run["reply"], run
        spans = collector.trace(run["run_id"])
        path, headers, body, _ = collector.requests[0]
        assert path == "/v1/traces" and headers["content-type"] == "application/x-protobuf", (path, headers)
        assert headers["x-api-key"] == "s3cret" and headers["x-tenant"] == "a", headers
        (resource, *_), _ = collector.accepted()
        assert resource["service.name"] == "belay-test" and resource["service.version"], resource

        root = one(spans, "invoke_agent belay-test")
        of_root = facts(root)
        assert root.kind == Span.SPAN_KIND_INTERNAL and root.status.code == Status.STATUS_CODE_UNSET, root
        assert of_root["gen_ai.operation.name"] == "invoke_agent" and of_root["gen_ai.agent.name"] == "belay-test", of_root
        assert of_root["gen_ai.provider.name"] == "rehearsal" and of_root["gen_ai.conversation.id"] == run["session"], of_root
        assert of_root["belay.run.id"] == run["run_id"] and of_root["belay.run.reason"] == "final_text", of_root
        assert of_root["gen_ai.usage.input_tokens"] == run["usage"]["input"], (of_root, run)
        assert of_root["gen_ai.usage.output_tokens"] == run["usage"]["output"], (of_root, run)
        assert before - 1_000_000 <= root.start_time_unix_nano <= root.end_time_unix_nano <= time.time_ns(), root

        tool = one(spans, "execute_tool calculate")
        of_tool = facts(tool)
        assert of_tool["gen_ai.operation.name"] == "execute_tool" and of_tool["gen_ai.tool.name"] == "calculate", of_tool
        assert of_tool["gen_ai.tool.call.id"] and of_tool["belay.tool.status"] == "success", of_tool
        chats = [span for span in spans if span.name.startswith("chat ")]
        assert len(chats) == 2 and len(spans) == 4, [span.name for span in spans]
        for chat in chats:
            of_chat = facts(chat)
            assert chat.kind == Span.SPAN_KIND_CLIENT and of_chat["gen_ai.operation.name"] == "chat", chat
            assert chat.name == f"chat {of_chat['gen_ai.request.model']}" and of_chat["gen_ai.response.model"], of_chat
            assert of_chat["gen_ai.usage.input_tokens"] > 0 and of_chat["gen_ai.usage.output_tokens"] > 0, of_chat
        for span in (tool, *chats):
            assert span.parent_span_id == root.span_id, span
            assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= root.end_time_unix_nano, span
        assert len({span.span_id for span in spans}) == 4

        for content in (b"17*23", b"391", b"gen_ai.input.messages", b"gen_ai.tool.call.result"):
            assert content not in body, f"{content} is content, and it is off"
        assert 'belay_otlp_exports_total{signal="traces",outcome="ok"} 1' in page(belay)


def content_is_sent_on_request_alone():
    with Collector() as collector, daemon(collector.url, {"telemetry.content": "true"}) as belay:
        run = ask(belay, "calculate 17*23")
        spans = collector.trace(run["run_id"])
        root = facts(one(spans, "invoke_agent belay"))
        (asked,), (said,) = json.loads(root["gen_ai.input.messages"]), json.loads(root["gen_ai.output.messages"])
        assert asked == {"role": "user", "parts": [{"type": "text", "content": "calculate 17*23"}]}, asked
        assert said == {"role": "assistant", "parts": [{"type": "text", "content": run["reply"]}]}, said
        tool = facts(one(spans, "execute_tool calculate"))
        assert "17*23" in tool["gen_ai.tool.call.arguments"] and "391" in tool["gen_ai.tool.call.result"], tool


def a_failed_run_is_an_error_and_a_stopped_one_is_not():
    # Nothing listens there: each model call fails.
    away = {"llm.provider": "openai", "llm.base_url": "http://127.0.0.1:9/v1", "llm.model": "absent", "llm.max_attempts": "1"}
    with Collector() as collector, daemon(collector.url, away) as belay:
        run = ask(belay, "hello")
        spans = collector.trace(run["run_id"])
        root, chat = one(spans, "invoke_agent belay"), one(spans, "chat absent")
        assert run["status"] == "failed" and facts(root)["error.type"] == run["reason"], (run, root)
        assert facts(chat)["error.type"] == "network" and facts(chat)["gen_ai.provider.name"] == "openai", chat
        assert root.status.code == chat.status.code == Status.STATUS_CODE_ERROR, (root, chat)
    with Collector() as collector, daemon(collector.url) as belay:
        run = ask(belay, "rehearse stall 20", wait_ms=0)["run_id"]
        until("the run's work", lambda: 'belay_runs{state="running"} 1' in page(belay), LIMIT_S)
        post(belay, f"/api/v1/runs/{run}/stop", {})
        spans = collector.trace(run)
        root = one(spans, "invoke_agent belay")
        assert facts(root)["belay.run.status"] == "stopped" and facts(root)["belay.run.reason"] == "user_stop", root
        assert all(span.status.code == Status.STATUS_CODE_UNSET for span in spans), spans


def the_calls_of_a_subagent_are_under_it():
    with Collector() as collector, daemon(collector.url) as belay:
        spans = collector.trace(ask(belay, "rehearse subagent calculate 17*23")["run_id"])
        by_id = {span.span_id: span for span in spans}
        parents = [by_id[one(spans, "execute_tool calculate").parent_span_id]]
        while parents[-1].parent_span_id:
            parents.append(by_id[parents[-1].parent_span_id])
        names = [span.name for span in parents]
        assert names == ["invoke_agent subagent", "execute_tool spawn_subagent", "invoke_agent belay"], names


def an_export_that_fails_is_repeated_and_one_that_is_refused_is_not():
    with Collector(statuses=[503, 429]) as collector, daemon(collector.url) as belay:
        run = ask(belay, "calculate 2*3")
        assert len(collector.trace(run["run_id"])) == 4
        assert [status for *_, status in collector.requests] == [503, 429, 200], collector.requests
        counted = page(belay)
        assert 'belay_otlp_exports_total{signal="traces",outcome="failed"} 2' in counted, counted
    with Collector(statuses=[400]) as collector, daemon(collector.url) as belay:
        ask(belay, "calculate 2*3")
        until("the refusal", lambda: 'belay_otlp_exports_total{signal="traces",outcome="refused"} 1' in page(belay), LIMIT_S)
        run = ask(belay, "calculate 3*4")
        assert len(collector.trace(run["run_id"])) == 4
        assert [status for *_, status in collector.requests] == [400, 200], "the refused batch alone is lost"


def the_last_traces_are_sent_before_the_daemon_ends():
    with Collector() as collector:
        with daemon(collector.url) as belay:
            runs = [ask(belay, f"calculate {n}*3", f"session-{n}")["run_id"] for n in range(3)]
            assert belay.stop() == 0, "".join(belay.log)
        for run in runs:
            assert len(collector.trace(run, limit_s=0.5)) == 4


def a_collector_that_hangs_slows_neither_runs_nor_the_end():
    with Collector(hold=threading.Event()) as collector, daemon(collector.url) as belay:
        ask(belay, "calculate 2*3")
        until("the first request", lambda: collector.requests, LIMIT_S)
        for n in range(5):
            assert ask(belay, f"calculate {n}+1")["status"] == "completed", "the run has waited for the collector"
        assert len(collector.requests) == 1, "the first request still hangs"
        begin = time.monotonic()
        assert belay.stop() == 0, "".join(belay.log)
        assert time.monotonic() - begin < END_S, "the end has waited for the collector"


def a_collector_that_is_away_is_reported_once_and_slows_nothing():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with daemon(f"http://127.0.0.1:{unused.getsockname()[1]}") as belay:
            for n in range(3):
                assert ask(belay, f"calculate {n}+1")["status"] == "completed"
            until("two attempts", lambda: 'outcome="failed"} 2' in page(belay), LIMIT_S)
            begin = time.monotonic()
            assert belay.stop() == 0, "".join(belay.log)
            assert time.monotonic() - begin < END_S
            warnings = [line for line in belay.log if "traces are not exported" in line]
            assert len(warnings) == 1, warnings


def points(metric):
    return getattr(metric, metric.WhichOneof("data")).data_points


def series(page):
    """The values of a page of Prometheus, by name and labels."""
    found = {}
    for name, labels, value in re.findall(r"^([a-z0-9_]+)(?:\{(.*)\})? (\S+)$", page, re.MULTILINE):
        found[name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))] = float(value)
    return found


def key(name, point, **more):
    return name, frozenset({**facts(point), **more}.items())


def le(bound):
    return "+Inf" if math.isinf(bound) else str(int(bound)) if bound == int(bound) else str(bound)


# Values that change between a page and a push.
MOVING = ("belay_otlp_", "belay_store_", "process_", "belay_oldest_", "belay_routines_next_", "belay_disk_free_")


def still(values):
    return {key: value for key, value in values.items() if not key[0].startswith(MOVING)}


def metrics_arrive_with_the_values_of_the_page():
    with Collector() as collector, daemon(collector.url, {"telemetry.metrics_interval_s": "1"}, signals=("metrics",)) as belay:
        for n in range(3):
            ask(belay, f"calculate {n}*3")

        def pushed():
            """A push between two readings of the page that are alike, so that nothing has changed meanwhile."""
            before, sent = still(series(page(belay))), len(collector.bodies("metrics"))
            # The first one may have been collected before the reading.
            until("two pushes", lambda: len(collector.bodies("metrics")) >= sent + 2, LIMIT_S)
            metrics, resource = collector.metrics()
            on_page = series(page(belay))
            return (on_page, metrics, resource) if still(on_page) == before else None

        on_page, metrics, resource = until("a push while nothing changes", pushed, LIMIT_S)
        ended = sum(point.count for point in points(metrics["belay_run_duration_seconds"]))
        assert ended == 3, metrics["belay_run_duration_seconds"]
        assert resource["service.name"] == "belay" and resource["service.version"], resource
        compared = {"sum": 0, "gauge": 0, "histogram": 0}
        for name, metric in metrics.items():
            kind = metric.WhichOneof("data")
            if kind == "sum":
                assert metric.sum.is_monotonic, name
            if kind in ("sum", "histogram"):
                assert getattr(metric, kind).aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE, name
            if name.startswith(MOVING):
                continue
            for point in points(metric):
                compared[kind] += 1
                if kind != "histogram":
                    value = getattr(point, point.WhichOneof("value"))
                    assert on_page[key(name, point)] == value, (name, point)
                    continue
                assert on_page[key(f"{name}_count", point)] == point.count, (name, point)
                assert math.isclose(on_page[key(f"{name}_sum", point)], point.sum), (name, point)
                below = 0
                for bound, count in zip([*point.explicit_bounds, math.inf], point.bucket_counts, strict=True):
                    below += count
                    assert on_page[key(f"{name}_bucket", point, le=le(bound))] == below, (name, bound, point)
        assert compared["sum"] > 5 and compared["gauge"] > 5 and compared["histogram"] > 3, compared
        names = {name.removesuffix("_bucket") for name, _ in on_page}
        missing = {name for name in names if name not in metrics and not re.search("_(sum|count)$", name)}
        assert not missing, f"on the page alone: {missing}"
        units = {name: metrics[name].unit for name in ("belay_run_duration_seconds", "process_resident_memory_bytes", "belay_runs_ended_total")}
        assert list(units.values()) == ["s", "By", ""], units
        assert points(metrics["process_resident_memory_bytes"])[0].as_double > 1e6
        assert metrics["belay_run_duration_seconds"].description


def gauges_are_read_for_each_push():
    with Collector() as collector, daemon(collector.url, {"telemetry.metrics_interval_s": "1"}, signals=("metrics",)) as belay:

        def running():
            metrics, _ = collector.metrics()
            states = {facts(point)["state"]: point.as_double for point in points(metrics["belay_runs"])} if "belay_runs" in metrics else {}
            return states.get("running")

        until("no run", lambda: running() == 0, LIMIT_S)
        run = ask(belay, "rehearse stall 20", wait_ms=0)["run_id"]
        until("a run", lambda: running() == 1, LIMIT_S)
        post(belay, f"/api/v1/runs/{run}/stop", {})
        until("no run again", lambda: running() == 0, LIMIT_S)


def the_last_metrics_and_log_lines_are_sent_before_the_daemon_ends():
    with Collector() as collector:
        with daemon(collector.url, {"telemetry.metrics_interval_s": "86400"}, signals=("metrics", "logs")) as belay:
            run = ask(belay, "calculate 2*3")["run_id"]
            assert belay.stop() == 0, "".join(belay.log)
        metrics, _ = collector.metrics()
        assert len(collector.bodies("metrics")) == 1 and [point.count for point in points(metrics["belay_run_duration_seconds"])] == [1]
        texts = [record.body.string_value for _, record in collector.lines()]
        assert "agent ended" in texts, texts
        assert collector.line("run ended", run)


def log_lines_arrive_with_the_trace_of_their_run():
    settings = {"telemetry.log": "debug"}
    with Collector() as collector, daemon(collector.url, settings, signals=("traces", "metrics", "logs")) as belay:
        before = time.time_ns()
        run = ask(belay, "calculate 17*23")
        record = collector.line("run ended", run["run_id"])
        of_record = facts(record)
        assert record.severity_number == SeverityNumber.SEVERITY_NUMBER_INFO and record.severity_text == "INFO", record
        assert of_record["session"] == run["session"] and of_record["status"] == "completed", of_record
        assert of_record["input_tokens"] == run["usage"]["input"], (of_record, run)
        assert before <= record.time_unix_nano <= time.time_ns(), record
        root = one(collector.trace(run["run_id"]), "invoke_agent belay")
        assert record.trace_id == root.trace_id == uuid.UUID(run["run_id"]).bytes and record.span_id == root.span_id, (record, root)
        assert "belay_agent::lane::ends" in {target for target, _ in collector.lines()}, collector.lines()
        on_stderr = {json.loads(line)["message"] for line in belay.log if line.startswith("{")}
        arrived = {record.body.string_value for _, record in collector.lines()}
        assert arrived <= on_stderr and len(arrived) > 3, (arrived, on_stderr)
    # A line about a call of the model names no run; it has that of the turn around it.
    away = {"llm.provider": "openai", "llm.base_url": "http://127.0.0.1:9/v1", "llm.model": "absent", "llm.max_attempts": "2"}
    with Collector() as collector, daemon(collector.url, {**settings, **away}, signals=("logs",)) as belay:
        run = ask(belay, "hello")["run_id"]
        collector.line("run ended", run)
        pause = collector.line("waiting to ask a model again", run)
        assert pause.trace_id == uuid.UUID(run).bytes and pause.span_id == collector.line("run ended", run).span_id, pause


def no_secret_and_no_text_of_a_message_arrives():
    secrets = {"OTLP_HEADERS": "x-api-key=s3cret-header", "BELAY_TEST_KEY": "s3cret-key", "API_TOKEN": "s3cret-token-of-the-api"}
    settings = {
        "telemetry.otlp_headers_env": "OTLP_HEADERS",
        "telemetry.log": "trace",
        "telemetry.metrics_interval_s": "1",
        # A model that rejects the key, so that lines about it are written.
        "llm.provider": "openai",
        "llm.base_url": "http://127.0.0.1:9/v1",
        "llm.model": "absent",
        "llm.max_attempts": "1",
        "llm.api_key_env": "BELAY_TEST_KEY",
    }
    signals = ("traces", "metrics", "logs")
    for content in ("false", "true"):
        with Collector() as collector:
            with daemon(collector.url, {**settings, "telemetry.content": content}, secrets, signals) as belay:
                run = ask(belay, "a-text-of-a-message")["run_id"]
                collector.trace(run)
                collector.line("run ended", run)
                until("metrics", lambda: collector.bodies("metrics"), LIMIT_S)
                assert belay.stop() == 0, "".join(belay.log)
            bodies = [(path, body) for path, _, body, _ in collector.requests]
            assert not [path for path, body in bodies if b"s3cret" in body], "a secret"
            with_text = {path for path, body in bodies if b"a-text-of-a-message" in body}
            assert bool(with_text) == (content == "true"), with_text
            levels = {record.severity_text for _, record in collector.lines()}
            assert ("TRACE" in levels) == (content == "true") and "DEBUG" in levels, levels
            # The lines of an export would cause another export.
            for target, record in collector.lines():
                assert not target.startswith(("hyper", "reqwest", "rustls", "belay_telemetry::otlp", "belay_telemetry::traces")), (target, record)


def a_collector_that_fails_costs_counted_lines_alone():
    signals = ("metrics", "logs")
    with Collector(statuses=[503, 429]) as collector, daemon(collector.url, signals=("logs",)) as belay:
        run = ask(belay, "calculate 2*3")["run_id"]
        collector.line("run ended", run)
        assert [status for *_, status in collector.requests][:3] == [503, 429, 200], collector.requests
        counted = series(page(belay))
        failed = ("belay_otlp_exports_total", frozenset({"signal": "logs", "outcome": "failed"}.items()))
        assert counted[failed] == 2 and not any(name == "belay_otlp_dropped_log_lines_total" for name, _ in counted), counted
    with Collector(statuses=[400]) as collector, daemon(collector.url, signals=("logs",)) as belay:
        ask(belay, "calculate 1*2")
        until("dropped lines", lambda: 'belay_otlp_dropped_log_lines_total' in page(belay), LIMIT_S)
        run = ask(belay, "calculate 2*3")["run_id"]
        collector.line("run ended", run)
        until("a report", lambda: any("log lines were not sent to the collector" in line for line in belay.log), LIMIT_S)
    with Collector(hold=threading.Event()) as collector, daemon(collector.url, {"telemetry.metrics_interval_s": "1"}, signals=signals) as belay:
        ask(belay, "calculate 2*3")
        until("both first requests", lambda: {path for path, *_ in collector.requests} == {"/v1/metrics", "/v1/logs"}, LIMIT_S)
        for n in range(5):
            assert ask(belay, f"calculate {n}+1")["status"] == "completed", "the run has waited for the collector"
        begin = time.monotonic()
        assert belay.stop() == 0, "".join(belay.log)
        assert time.monotonic() - begin < END_S, "the end has waited for the collector"
        assert any("log lines were not sent to the collector" in line for line in belay.log), belay.log
        assert any("the last metrics could not be exported in time" in line for line in belay.log), belay.log


def each_signal_can_be_left_out():
    for signal in ("traces", "metrics", "logs"):
        with Collector() as collector, daemon(collector.url, {"telemetry.metrics_interval_s": "1"}, signals=(signal,)) as belay:
            ask(belay, "calculate 2*3")
            until(signal, lambda: collector.bodies(signal), LIMIT_S)
            assert belay.stop() == 0, "".join(belay.log)
            assert {path for path, *_ in collector.requests} == {f"/v1/{signal}"}, collector.requests
    with Collector() as collector:
        belay = daemon(collector.url)
        del belay.settings["telemetry.signals"]
        with belay:
            ask(belay, "calculate 2*3")
            assert belay.stop() == 0, "".join(belay.log)
        assert {path for path, *_ in collector.requests} == {"/v1/traces", "/v1/metrics", "/v1/logs"}, "by default, all are sent"


def variables_of_the_environment_change_no_signal():
    variables = {
        "OTEL_RESOURCE_ATTRIBUTES": "team=of-the-environment",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-other=of-the-environment",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
    }
    signals = ("traces", "metrics", "logs")
    with Collector() as collector:
        with daemon(collector.url, secrets=variables, signals=signals) as belay:
            ask(belay, "calculate 2*3")
            assert belay.stop() == 0, "".join(belay.log)
        assert {path for path, *_ in collector.requests} == {f"/v1/{signal}" for signal in signals}, collector.requests
        assert not [path for path, headers, body, _ in collector.requests if "x-other" in headers or b"of-the-environment" in body]
        ended = collector.metrics()[0]["belay_runs_ended_total"].sum
        assert ended.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE, ended


def nothing_is_exported_by_default():
    with daemon("") as belay:
        ask(belay, "calculate 2*3")
        assert "belay_otlp" not in page(belay)


def unusable_settings_are_refused_without_showing_the_headers():
    cases = [
        ({"telemetry.otlp_endpoint": "grpc://127.0.0.1:4317"}, {}, "telemetry.otlp_endpoint"),
        ({"telemetry.signals": '["spans"]'}, {}, "telemetry.signals"),
        ({"telemetry.metrics_interval_s": "0"}, {}, "telemetry.metrics_interval_s"),
        ({"telemetry.otlp_headers_env": "OTLP_HEADERS"}, {}, "OTLP_HEADERS is not set"),
        ({"telemetry.otlp_headers_env": "OTLP_HEADERS"}, {"OTLP_HEADERS": "s3cret"}, "header 1 is not of the form name=value"),
    ]
    for settings, secrets, words in cases:
        belay = daemon("http://127.0.0.1:4318", settings, secrets)
        try:
            done = subprocess.run(belay.command("run"), env=belay.environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
        finally:
            belay.remove()
        said = done.stderr.decode()
        assert done.returncode == 78 and words in said and "s3cret" not in said, (done.returncode, said)


TESTS = [
    a_run_is_a_trace_by_the_conventions_for_generative_ai,
    content_is_sent_on_request_alone,
    a_failed_run_is_an_error_and_a_stopped_one_is_not,
    the_calls_of_a_subagent_are_under_it,
    an_export_that_fails_is_repeated_and_one_that_is_refused_is_not,
    the_last_traces_are_sent_before_the_daemon_ends,
    a_collector_that_hangs_slows_neither_runs_nor_the_end,
    a_collector_that_is_away_is_reported_once_and_slows_nothing,
    metrics_arrive_with_the_values_of_the_page,
    gauges_are_read_for_each_push,
    the_last_metrics_and_log_lines_are_sent_before_the_daemon_ends,
    log_lines_arrive_with_the_trace_of_their_run,
    no_secret_and_no_text_of_a_message_arrives,
    a_collector_that_fails_costs_counted_lines_alone,
    each_signal_can_be_left_out,
    variables_of_the_environment_change_no_signal,
    nothing_is_exported_by_default,
    unusable_settings_are_refused_without_showing_the_headers,
]


def main():
    failed = 0
    for test in TESTS:
        name = test.__name__.replace("_", " ")
        try:
            test()
            print(f"ok {name}")
        except Exception:  # each failure is counted, whatever it is
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
    print(f"{len(TESTS) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
