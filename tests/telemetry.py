#!/usr/bin/env python3
"""The traces that a real daemon sends to a collector of OpenTelemetry, decoded by OpenTelemetry's own package.

    BELAY_BIN=target/debug/belay tests/telemetry.py

The collector is a small HTTP server in this program, which can also refuse, be slow, or be absent. Needs the package `opentelemetry-proto`
(tests/run.py installs it under build/telemetry). Prints a line for each test and, as its last line, "N passed, N failed, N skipped".
"""

import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
import uuid

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from belay_process import Belay, until  # noqa: E402

BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
LIMIT_S = 30
# The time that the end of a daemon may take, with a collector that does not answer: 3 s for the last traces, and its own end.
END_S = 60
# A collector that hangs does so for longer than any wait here.
HELD_S = 4 * LIMIT_S


class Collector:
    """Accepts traces over HTTP. `statuses`: the answers to the first requests; after them it accepts."""

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

    def accepted(self):
        """The resources and the spans of the accepted requests."""
        with self.lock:
            bodies = [body for _, _, body, status in self.requests if status == 200]
        resources, spans = [], []
        for body in bodies:
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                resources.append(facts(part.resource))
                spans.extend(span for scope in part.scope_spans for span in scope.spans)
        return resources, spans

    def trace(self, run, limit_s=LIMIT_S):
        """The spans of a run, once its own has arrived."""
        wanted = uuid.UUID(run).bytes

        def of_run():
            spans = [span for span in self.accepted()[1] if span.trace_id == wanted]
            return spans if any(not span.parent_span_id for span in spans) else None

        return until(f"the trace of {run}", of_run, limit_s)


def facts(part):
    """The attributes of a resource or a span."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in part.attributes}


def daemon(endpoint, settings=None, secrets=None):
    own = {"llm.provider": "rehearsal", "telemetry.otlp_endpoint": endpoint}
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
        assert 'belay_otlp_exports_total{outcome="ok"} 1' in page(belay)


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
        assert 'belay_otlp_exports_total{outcome="failed"} 2' in counted, counted
    with Collector(statuses=[400]) as collector, daemon(collector.url) as belay:
        ask(belay, "calculate 2*3")
        until("the refusal", lambda: 'belay_otlp_exports_total{outcome="refused"} 1' in page(belay), LIMIT_S)
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


def nothing_is_exported_by_default():
    with daemon("") as belay:
        ask(belay, "calculate 2*3")
        assert "belay_otlp" not in page(belay)


def unusable_settings_are_refused_without_showing_the_headers():
    cases = [
        ({"telemetry.otlp_endpoint": "grpc://127.0.0.1:4317"}, {}, "telemetry.otlp_endpoint"),
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
