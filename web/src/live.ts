/** Keeps the state in step with the daemon: reads all once, then what each event concerns. */

import type {
  ChannelListDocument, CheckListDocument, GpuListDocument, MigProfilesDocument, OperationDocument, OperationListDocument,
  ProgressDocument, StatusDocument, VgpuTypesDocument, VmListDocument,
} from "./api";
import { line } from "./commands";
import { type HostEvent, type Server, type State, announce, change, getState, groupSame, keepSame } from "./store";
import { T } from "./texts";
import { Refusal, SessionEnded, type Stream, type Transport, Unreachable, ask, openTransport } from "./transport";

/** Events of the last minutes, as the daemon keeps them. */
const KEPT_EVENTS = 300;
const KEPT_OPERATIONS = 100;
/** Milliseconds in which events are gathered before what they concern is read: those of one change come together. */
const GATHER_MS = 5;
/** In a burst what they concern is read this often at most. */
const SPACING_MS = 100;
/** What is seen first has the daemon for itself so long. A part that takes longer keeps no other back. */
const HEAD_START_MS = 150;
/** What changes without an event (memory, load, counters) is read this often while the page is seen. */
export const COUNTERS_MS = 10_000;
/** Every so many times the comparison with the record is read, too: the daemon's own comes as an event. */
const STATUS_EVERY = 3;
/** The daemon sends a comment every 15 s; after this long without one the stream is dead. */
const SILENCE_MS = 40_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 4_000;

export const way: Transport = openTransport();
export const get = async <D>(path: string): Promise<D> => (await ask<D>(way, "GET", path)).document;

type Part = "gpus" | "vms" | "status" | "profiles" | "types" | "operations" | "channels" | "server";
/** All that events concern; whether the machine is in a pool changes with events of that type alone. */
const ALL: readonly Part[] = ["gpus", "vms", "status", "profiles", "types", "operations", "channels"];

/** The order in which parts are read: what the overview draws, what fits, and what takes longest. */
const ORDER: readonly (readonly Part[])[] = [["gpus", "vms", "operations", "server"], ["profiles", "types", "channels"], ["status"]];

/** Changes that leave VMs and their channels as they were. */
const OF_GPUS_ALONE = new Set(["drain_gpu", "resume_gpu"]);
const GPUS_ALONE: readonly Part[] = ["gpus", "operations", "profiles", "types", "status"];

const READ: Record<Part, () => Promise<Partial<State>>> = {
  async gpus() {
    const { gpus, others, lost, machine } = await get<GpuListDocument>("/1.0/gpus");
    const now = getState();
    return {
      machine,
      gpus: keepSame(now.gpus, gpus, (gpu) => gpu.uuid),
      others: keepSame(now.others, others, (gpu) => gpu.pci),
      lost: keepSame(now.lost, lost, (gpu) => String(gpu.index)),
    };
  },
  async vms() {
    const { vms } = await get<VmListDocument>("/1.0/vms");
    return { vms: keepSame(getState().vms, vms, (vm) => vm.uuid) };
  },
  async channels() {
    const { channels } = await get<ChannelListDocument>("/1.0/channels");
    return { channels: groupSame(getState().channels, channels, (channel) => channel.vm) };
  },
  async status() {
    return { status: await get<StatusDocument>("/1.0/status") };
  },
  async profiles() {
    const { profiles } = await get<MigProfilesDocument>("/1.0/mig/profiles");
    return { profiles: groupSame(getState().profiles, profiles, (row) => row.gpu_uuid) };
  },
  async types() {
    const { types } = await get<VgpuTypesDocument>("/1.0/vgpus/types");
    return { types: groupSame(getState().types, types, (type) => type.gpu) };
  },
  async server() {
    const server = await get<Server>("/1.0");
    const now = getState().server;
    return { server: now && JSON.stringify(now) === JSON.stringify(server) ? now : server };
  },
  async operations() {
    const { operations } = await get<OperationListDocument>("/1.0/operations");
    const now = getState().operations;
    return { operations: keepSame(now, operations.map((operation) => keepNewer(now, operation)), (operation) => operation.id) };
  },
};

/** An event may have come while the list was read. An end that is read is final: a daemon that was killed says it of what it ran. */
function keepNewer(now: readonly OperationDocument[], read: OperationDocument): OperationDocument {
  const known = now.find((operation) => operation.id === read.id);
  return known && !isOver(read) && known.updated_s > read.updated_s ? { ...read, status: known.status, progress: known.progress, updated_s: known.updated_s } : read;
}

const waiting = new Set<Part>();
let timer: ReturnType<typeof setTimeout> | undefined;
let begunAt = -SPACING_MS;
/** The last read of each part, begun or to come. */
const last = new Map<Part, Promise<void>>();
/** Counts connections: what was asked for before the present one is not shown. */
let era = 0;

/** Reads parts soon; what is asked for meanwhile is read with them. */
export function refresh(parts: readonly Part[] = ALL): void {
  for (const part of parts) waiting.add(part);
  timer ??= setTimeout(() => {
    timer = undefined;
    readWaiting().catch(report);
  }, Math.max(GATHER_MS, begunAt + SPACING_MS - performance.now()));
}

/** What is seen first is asked for first: the daemon answers one read after the other. */
async function readWaiting(): Promise<void> {
  if (waiting.has("gpus")) begunAt = performance.now();
  const all: Promise<unknown>[] = [];
  for (const group of ORDER) {
    const reads = Promise.all(group.filter((part) => waiting.has(part)).map(readNext));
    reads.catch(() => undefined);
    all.push(reads);
    await Promise.race([reads, new Promise((resolve) => setTimeout(resolve, HEAD_START_MS))]);
  }
  await Promise.all(all);
}

/** Of a part one read follows the other: an older answer never replaces a newer one. What is asked for while one waits is read with it. */
function readNext(part: Part): Promise<void> {
  const next = (last.get(part) ?? Promise.resolve()).catch(() => undefined).then(() => (waiting.delete(part) ? readPart(part) : undefined));
  last.set(part, next);
  return next;
}

/** A part is shown as soon as it is there: a slow one keeps no other back. */
async function readPart(part: Part): Promise<void> {
  const mine = era;
  try {
    const patch = await READ[part]();
    if (mine !== era) return;
    const { [part]: mended, ...problems } = getState().problems;
    change({ ...patch, ...(mended && { problems }), asOf: Date.now() });
  } catch (error) {
    if (mine !== era) return;
    // a part that is refused leaves the others as they are
    if (!(error instanceof Refusal)) throw error;
    change({ problems: { ...getState().problems, [part]: error }, asOf: Date.now() });
  }
}

function report(error: unknown): void {
  if (error instanceof SessionEnded) return end();
  // what is not understood ends no reading: the page connects again, and reads all
  if (!(error instanceof Unreachable)) console.error(error);
  stream?.close();
}

/** What the refusal says is not shown: once the command has ended, another user of the machine may serve its port. */
function end(): void {
  change({ connection: "ended" });
  announce(T.ended);
}

/** A page that is not seen has no stream: a browser has six connections to a host, for all of its tabs. */
let isAsleep = document.visibilityState === "hidden";

function sleepWhileHidden(): void {
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") return;
    isAsleep = true;
    stream?.close();
  });
}

/** When the page is seen. */
async function awaken(): Promise<void> {
  change({ connection: "connecting" });
  while (document.visibilityState !== "visible") {
    await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
  isAsleep = false;
}

let stream: Stream | undefined;
let lastId = 0;
let pid = 0;

/** Follows the daemon for as long as the page is open. */
export async function follow(): Promise<void> {
  sleepWhileHidden();
  let turn = 0;
  setInterval(() => {
    if (getState().connection !== "live" || document.visibilityState !== "visible") return;
    turn += 1;
    refresh(turn % STATUS_EVERY ? ["gpus", "channels"] : ["gpus", "channels", "status", "server"]);
  }, COUNTERS_MS);
  let pause = FIRST_PAUSE_MS;
  for (;;) {
    if (isAsleep) await awaken();
    const began = Date.now();
    try {
      await connect();
    } catch (error) {
      if (error instanceof SessionEnded) return end();
      // a user whom the daemon does not know, inside Cockpit; groups may change meanwhile
      if (error instanceof Refusal) change({ connection: "refused", problems: { ...getState().problems, server: error } });
    }
    if (getState().connection === "ended") return;
    if (isAsleep) continue;
    const { connection } = getState();
    if (connection !== "lost" && connection !== "refused") {
      change({ connection: "lost" });
      announce(T.lost);
    }
    pause = Date.now() - began > LONGEST_PAUSE_MS ? FIRST_PAUSE_MS : Math.min(pause * 2, LONGEST_PAUSE_MS);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function connect(): Promise<void> {
  const server = await get<Server>("/1.0");
  // another daemon counts its events from the beginning
  if (server.pid !== pid) lastId = 0;
  pid = server.pid;
  const { server: refused, ...problems } = getState().problems;
  change({ server, ...(refused && { problems }) });
  change({ again: line("web") });
  let rest = "";
  let silence = startSilence();
  stream = way.stream("/1.0/events", { "Last-Event-ID": String(lastId) }, (text) => {
    clearTimeout(silence);
    silence = startSilence();
    rest = takeEvents(rest + text.replaceAll("\r", ""));
  });
  const ended = stream.done.finally(() => clearTimeout(silence));
  ended.catch(() => undefined);
  era += 1;
  last.clear();
  for (const part of ALL) waiting.add(part);
  try {
    await Promise.race([readWaiting(), ended]);
    change({ connection: "live" });
    announce(T.connected);
    await ended;
  } finally {
    stream.close();
  }
}

const startSilence = () => setTimeout(() => stream?.close(), SILENCE_MS);

/** Hands over whole events; returns what is left. */
function takeEvents(text: string): string {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  const events: HostEvent[] = [];
  for (const block of blocks) {
    const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
    if (data) events.push(JSON.parse(data) as HostEvent);
  }
  if (events.length) take(events);
  return rest;
}

const ENDED = new Set(["succeeded", "failed", "cancelled", "interrupted"]);
export const isOver = (operation: OperationDocument): boolean => ENDED.has(operation.status);

/** Whether it may have changed what is shown: of an operation's, the last one. */
export const concerns = (event: HostEvent): boolean => event.type !== "operation" || ENDED.has(String(event.status));

/** What it may have changed. One that failed may have undone more. */
function partsOf(event: HostEvent): readonly Part[] {
  const isOfGpus = event.type === "operation" && event.status === "succeeded" && OF_GPUS_ALONE.has(String(event.name));
  return isOfGpus ? GPUS_ALONE : ALL;
}

function take(events: readonly HostEvent[]): void {
  let operations = getState().operations;
  const concerned = new Set<Part>();
  for (const event of events) {
    lastId = event.id;
    if (event.type === "operation") {
      // what no event says, as whether it can be cancelled
      if (!operations.some((operation) => operation.id === event.operation)) concerned.add("operations");
      operations = withEvent(operations, event);
    }
    if (!concerns(event)) continue;
    for (const part of partsOf(event)) concerned.add(part);
    if (event.type === "pool") concerned.add("server");
  }
  const kept = [...events].reverse().concat(getState().events).slice(0, KEPT_EVENTS);
  change({ events: kept, operations: operations.slice(-KEPT_OPERATIONS) });
  if (concerned.size) refresh([...concerned]);
}

/** An operation's steps come with its events: nothing more is asked for them. */
function withEvent(operations: readonly OperationDocument[], event: HostEvent): readonly OperationDocument[] {
  const id = String(event.operation);
  const old = operations.find((operation) => operation.id === id);
  // what an older daemon said again after a restart is known already
  if (old && (ENDED.has(old.status) || old.updated_s > event.time_s)) return operations;
  const step = event.step as ProgressDocument | null;
  const base: OperationDocument = old ?? {
    id, operation: String(event.name), subject: event.subject as string | null, status: "waiting", uid: -1, caller: null, created_s: event.time_s,
    updated_s: event.time_s, cancellable: false, progress: [], result: null, error: null,
  };
  const known = step === null || base.progress.some((other) => other.time_s === step.time_s);
  const next: OperationDocument = {
    ...base,
    status: event.status as OperationDocument["status"],
    updated_s: event.time_s,
    progress: known ? base.progress : [...base.progress, step],
  };
  return old ? operations.map((operation) => (operation.id === id ? next : operation)) : [...operations, next];
}

/** Doctor's findings take a moment and are read when they are seen. */
export async function readChecks(): Promise<void> {
  const { checks } = await get<CheckListDocument>("/1.0/checks");
  change({ checks });
}
