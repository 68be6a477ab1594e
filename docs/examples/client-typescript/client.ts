// A client of Belay's WebSocket RPC: connect, send, stream, wait, abort.
//
//     curl -O http://127.0.0.1:8787/openapi.json
//     npm install && npm run build && node client.js ws://127.0.0.1:8787/ws "calculate 17*23"
//
// Needs Node 20. The protocol is described in docs/reference/websocket.md.

import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";
import WebSocket from "ws";
import type { components } from "./belay-api.js";

/** The types of the API, generated from its description. */
type Schemas = components["schemas"];
export type AgentEvent = Omit<Schemas["AgentEvent"], "data"> & { data: Record<string, unknown> };
/** How a run has ended, or the reply to a command. */
export type End = Schemas["EndedRun"] | Schemas["CommandAnswer"];
export type Waited = Schemas["WaitedRun"];
/** What a message may say beside its text, its session and its key. */
export type Options = Omit<Partial<Schemas["AgentParams"]>, "sessionKey" | "message" | "idempotencyKey">;

interface Failure {
  code: string;
  message: string;
  retryable: boolean;
  retryAfterMs?: number;
}

type Frame =
  | { type: "res"; id: string; ok: true; payload: unknown }
  | { type: "res"; id: string; ok: false; error: Failure }
  | { type: "event"; event: string; payload: unknown };

/** An answer that is an error. */
export class BelayError extends Error {
  readonly code: string;
  readonly retryable: boolean;
  constructor(failure: Failure) {
    super(`${failure.code}: ${failure.message}`);
    this.code = failure.code;
    this.retryable = failure.retryable;
  }
}

interface Pending {
  answered: boolean;
  first: (payload: unknown) => void;
  last?: (payload: unknown) => void;
  fail: (why: Error) => void;
}

/** A run that was accepted: how it ends. */
export interface Run {
  id: string;
  ended: Promise<End>;
}

export class Belay {
  private numbers = 0;
  private readonly pending = new Map<string, Pending>();
  private readonly listeners = new Set<(event: AgentEvent) => void>();

  private constructor(private readonly socket: WebSocket) {
    socket.on("message", (data) => this.take(JSON.parse(String(data)) as Frame));
    socket.on("close", () => this.fail(new Error("the connection has ended")));
    socket.on("error", (why) => this.fail(why));
  }

  /** Connects and shakes hands. */
  static async connect(url: string, token?: string): Promise<Belay> {
    const socket = new WebSocket(url);
    const belay = new Belay(socket);
    await new Promise<void>((open, failed) => socket.once("open", () => open()).once("error", failed));
    const client = { id: "client-typescript", version: "1", mode: "cli" };
    const auth = token === undefined ? {} : { token };
    await belay.call("connect", { minProtocol: 1, maxProtocol: 4, client, auth });
    return belay;
  }

  /** Ends the connection. Runs go on. */
  close(): void {
    this.socket.close();
  }

  /** Hears the events of the runs that are begun here; returns what ends that. */
  onEvent(listener: (event: AgentEvent) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Asks, and returns the first answer. */
  call<T>(method: string, params: object = {}): Promise<T> {
    return new Promise<T>((first, fail) => {
      this.ask(method, params, { answered: false, first: (payload) => first(payload as T), fail });
    });
  }

  /** Sends a message. The same key again gives the same run, also after a lost connection or a restart. */
  send(session: string, message: string, key: string = randomUUID(), options: Options = {}): Promise<Run> {
    const params: Schemas["AgentParams"] = { sessionKey: session, message, idempotencyKey: key, ...options };
    return new Promise<Run>((accepted, fail) => {
      let ends: (end: End) => void = () => undefined;
      let breaks: (why: Error) => void = fail;
      const ended = new Promise<End>((end, broken) => {
        ends = end;
        breaks = broken;
      });
      ended.catch(() => undefined); // nobody has to wait for it
      const first = (payload: unknown): void => {
        const answer = payload as Schemas["AcceptedAnswer"] | End;
        // Anything else is a command, or a message that was answered before.
        if (answer.status !== "accepted") ends(payload as End);
        accepted({ id: "runId" in answer ? answer.runId : "", ended });
      };
      const failed = (why: Error): void => (breaks(why), fail(why));
      this.ask("agent", params, { answered: false, first, last: (payload) => ends(payload as End), fail: failed });
    });
  }

  /** How a run has ended, or `status` "timeout" and `reason` "wait_expired". */
  wait(runId: string, timeoutMs = 20_000): Promise<Waited> {
    return this.call("agent.wait", { runId, timeoutMs });
  }

  /** Stops a run, or everything of a session. */
  abort(sessionKey: string, runId?: string): Promise<{ ok: boolean; aborted: boolean; runIds: string[] }> {
    return this.call("chat.abort", runId === undefined ? { sessionKey } : { sessionKey, runId });
  }

  private ask(method: string, params: object, pending: Pending): void {
    const id = String(++this.numbers);
    this.pending.set(id, pending);
    this.socket.send(JSON.stringify({ type: "req", id, method, params }));
  }

  private take(frame: Frame): void {
    if (frame.type === "event") {
      if (frame.event === "agent") this.listeners.forEach((listener) => listener(frame.payload as AgentEvent));
      return;
    }
    const pending = this.pending.get(frame.id);
    if (pending === undefined) return;
    if (!frame.ok) {
      this.pending.delete(frame.id);
      pending.fail(new BelayError(frame.error));
      return;
    }
    if (pending.answered) pending.last?.(frame.payload);
    else pending.first(frame.payload);
    const accepted = (frame.payload as { status?: string }).status === "accepted";
    if (pending.answered || pending.last === undefined || !accepted) this.pending.delete(frame.id);
    pending.answered = true;
  }

  private fail(why: Error): void {
    this.pending.forEach((pending) => pending.fail(why));
    this.pending.clear();
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const belay = await Belay.connect(process.argv[2] ?? "", process.env["BELAY_TOKEN"]);
  belay.onEvent((event) => {
    if (event.stream === "assistant") process.stdout.write(String(event.data["delta"]));
  });
  const run = await belay.send("example", process.argv[3] ?? "hello");
  const end = await run.ended;
  console.log(`\n[${end.status}: ${end.summary}]`);
  belay.close();
}
