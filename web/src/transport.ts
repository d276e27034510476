/** How the page reaches the daemon: over HTTP from a browser, or through Cockpit's bridge over the unix socket. */

import type { ErrorPartsDocument } from "./api";
import { T } from "./texts";

export interface Reply {
  status: number;
  etag: string | null;
  body: unknown;
}

export interface Stream {
  /** Ends when the stream ends; rejects where it could not be opened. */
  done: Promise<void>;
  close(): void;
}

export interface Transport {
  request(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply>;
  /** Server-sent events as text, in pieces as they come. */
  stream(path: string, headers: Record<string, string>, onText: (text: string) => void): Stream;
}

/** The daemon refused; the parts are those that the command line prints. */
export class Refusal extends Error {
  constructor(readonly parts: ErrorPartsDocument, readonly status: number) {
    super(parts.error);
  }
}

/** No answer: the daemon is down, or what leads to it is. */
export class Unreachable extends Error {
  constructor(
    message: string,
    /** Whether what was asked for may have begun. */
    readonly mayHaveBegun = true,
  ) {
    super(message);
  }
}

/** The token's session is over. */
export class SessionEnded extends Error {
  constructor() {
    super(T.sessionEnded);
  }
}

/** The daemon is down, or the way to it; libvirt's or a driver's absence is the daemon's own answer. */
const AWAY = new Set(["VG350", "VG360", "VG361"]);
/** No daemon took the request. One of another host may have: ssh does not say when it ended. */
const NOT_TAKEN = "VG350";

/** A request with its document. Throws Refusal, Unreachable, SessionEnded. */
export async function ask<D>(way: Transport, method: string, path: string, body?: unknown, headers?: Record<string, string>) {
  const reply = await way.request(method, path, body, headers);
  if (reply.status === 401) throw new SessionEnded();
  if (reply.status >= 400) {
    const parts = readError(reply);
    if (reply.status >= 502 && (!parts.id || AWAY.has(parts.id))) throw new Unreachable(parts.error, parts.id !== NOT_TAKEN);
    throw new Refusal(parts, reply.status);
  }
  return { document: reply.body as D, etag: reply.etag };
}

function readError(reply: Reply): ErrorPartsDocument {
  const parts = (reply.body as { error?: ErrorPartsDocument } | null)?.error;
  if (parts && typeof parts.error === "string") return parts;
  return { id: "", error: T.unexpectedAnswer(reply.status), cause: null, why: null, held_by: [], try: null, exit_code: 1 };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const KEY = "vgpumgr-key";

/**
 * The session's key. The address has a code that brings it once, so that no address has the key itself: browsers write those
 * down. It is kept for this origin: with its port, as no cookie is, so that pages that others serve on this machine cannot read it.
 */
async function takeKey(): Promise<string> {
  const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  if (!code) return recall();
  history.replaceState(null, "", location.pathname);
  const reply = await fetch("key", { method: "POST", headers: { "X-Vgpumgr-Page": code }, cache: "no-store" }).catch(() => null);
  // an address of the browser's history: its code is used, and what it brought is here
  if (!reply?.ok) return recall();
  const { key } = (await reply.json()) as { key: string };
  keep((storage) => storage.setItem(KEY, key));
  return key;
}

const recall = (): string => keep((storage) => storage.getItem(KEY)) ?? "";

/** A key that opens nothing any more goes, unless another tab has a newer one there. */
const forget = (key: string): void => void (recall() === key && keep((storage) => storage.removeItem(KEY)));

/** Does something with the browser's storage, where the user lets a page have one. */
function keep<A>(use: (storage: Storage) => A): A | null {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

class FetchTransport implements Transport {
  private readonly key: Promise<string> = takeKey();

  async request(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Reply> {
    const key = await this.key;
    const all: Record<string, string> = { ...headers, "X-Vgpumgr-Page": key };
    if (body !== undefined) all["Content-Type"] = "application/json";
    let response: Response;
    let text: string;
    try {
      const content = body === undefined ? undefined : JSON.stringify(body);
      response = await fetch(path, { method, headers: all, body: content, cache: "no-store" });
      text = await response.text();
    } catch {
      throw new Unreachable(T.noAnswer);
    }
    if (response.status === 401) forget(key);
    return { status: response.status, etag: response.headers.get("ETag"), body: parse(text) };
  }

  stream(path: string, headers: Record<string, string>, onText: (text: string) => void): Stream {
    const controller = new AbortController();
    const read = async () => {
      const all = { ...headers, "X-Vgpumgr-Page": await this.key };
      const response = await fetch(path, { headers: all, signal: controller.signal, cache: "no-store" });
      if (response.status === 401) throw new SessionEnded();
      if (!response.ok || !response.body) throw new Unreachable(T.noAnswer);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        onText(value);
      }
    };
    return { done: read(), close: () => controller.abort() };
  }
}

/** What this page uses of Cockpit's library. */
interface CockpitRequest extends Promise<string> {
  stream(callback: (text: string) => void): CockpitRequest;
  response(callback: (status: number, headers: Record<string, string>) => void): CockpitRequest;
  close(): void;
}
interface Cockpit {
  http(socket: string, options: { superuser: "try" }): {
    request(options: { method: string; path: string; body: string; headers: Record<string, string> }): CockpitRequest;
  };
}

const SOCKET = "/run/vgpumgr/vgpumgr.sock";

class CockpitTransport implements Transport {
  private readonly client;

  constructor(cockpit: Cockpit) {
    this.client = cockpit.http(SOCKET, { superuser: "try" });
  }

  request(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Reply> {
    const all = { Host: "vgpumgr", ...headers, ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
    let status = 0;
    let etag: string | null = null;
    const text = body === undefined ? "" : JSON.stringify(body);
    const call = this.client.request({ method, path, body: text, headers: all }).response((code, fields) => {
      status = code;
      etag = fields["ETag"] ?? fields["etag"] ?? null;
    });
    return new Promise((resolve, reject) => {
      call.then(
        (data) => resolve({ status: status || 200, etag, body: parse(data) }),
        // the bridge rejects every status of 400 and more, and hands over the body
        (problem: { status?: number }, data?: string) =>
          problem.status ? resolve({ status: problem.status, etag, body: parse(data ?? "") }) : reject(new Unreachable(T.noAnswer)),
      );
    });
  }

  stream(path: string, headers: Record<string, string>, onText: (text: string) => void): Stream {
    const call = this.client.request({ method: "GET", path, body: "", headers: { Host: "vgpumgr", ...headers } }).stream(onText);
    const done = new Promise<void>((resolve, reject) => {
      call.then(() => resolve(), () => reject(new Unreachable(T.noAnswer)));
    });
    return { done, close: () => call.close() };
  }
}

export const isInCockpit = (): boolean => "cockpit" in window;

/** Cockpit's bridge where the page is inside Cockpit, else HTTP. */
export function openTransport(): Transport {
  const cockpit = (window as { cockpit?: Cockpit }).cockpit;
  return cockpit ? new CockpitTransport(cockpit) : new FetchTransport();
}
