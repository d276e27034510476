/** What the page knows, in one value; parts that did not change keep their identity, so that only what changed is drawn. */

import { useEffect, useState } from "preact/hooks";
import type {
  ChannelDocument, CheckDocument, GpuDocument, LostGpuDocument, MachineDocument, MigProfileRow, OperationDocument, PciGpuDocument, PhysicalDocument,
  ServerDocument, StatusDocument, VgpuTypeDocument, VmDocument,
} from "./api";
import type { Action } from "./actions";
import type { Refusal } from "./transport";
import type { Named } from "./vgpu";

export type Connection = "connecting" | "live" | "lost" | "refused" | "ended";

/** What is open above the page. */
export type DialogRequest =
  | { kind: "act"; action: Action }
  | { kind: "attach"; vm?: string; profile?: string; gpu?: string }
  | { kind: "why"; profile: string; gpu: string; name: string }
  | { kind: "layout"; gpu: string }
  | { kind: "vgpu"; gpu: Named; type: string }
  | { kind: "vfs"; physical: PhysicalDocument };

/** An event of the daemon; keys beside these depend on the type. */
export interface HostEvent {
  id: number;
  type: string;
  time_s: number;
  [key: string]: unknown;
}

/** Rows by a name. No plain object: a VM may be called `constructor` or `__proto__`. */
export type Groups<R> = ReadonlyMap<string, readonly R[]>;

/** What the daemon says of itself, and `vgpumgr web` of the session: the program, with the host or machine that it is for. */
export type Server = ServerDocument & { readonly command?: string };

export interface State {
  connection: Connection;
  /** When what is shown was read, in ms of the browser's clock. */
  asOf: number;
  server: Server | null;
  machine: MachineDocument | null;
  gpus: readonly GpuDocument[];
  others: readonly PciGpuDocument[];
  lost: readonly LostGpuDocument[];
  profiles: Groups<MigProfileRow>;
  types: Groups<VgpuTypeDocument>;
  vms: readonly VmDocument[];
  channels: Groups<ChannelDocument>;
  status: StatusDocument | null;
  operations: readonly OperationDocument[];
  checks: readonly CheckDocument[] | null;
  events: readonly HostEvent[];
  /** What could not be read, by part: libvirt may be gone while the GPUs answer. */
  problems: Readonly<Record<string, Refusal>>;
  dialog: DialogRequest | null;
  /** The command that opens another session. */
  again: string;
  /** For screen readers. */
  said: string;
}

const EMPTY: State = {
  connection: "connecting", asOf: 0, server: null, machine: null, gpus: [], others: [], lost: [], profiles: new Map(), types: new Map(), vms: [],
  channels: new Map(), status: null, operations: [], checks: null, events: [], problems: {}, dialog: null, again: "vgpumgr web", said: "",
};

let state: State = EMPTY;
const listeners = new Set<() => void>();

export const getState = (): State => state;

export function change(patch: Partial<State>): void {
  state = { ...state, ...patch };
  for (const listener of [...listeners]) listener();
}

export const openDialog = (dialog: DialogRequest): void => change({ dialog });
export const closeDialog = (): void => change({ dialog: null });

/** Says it to those who hear the page. */
export const announce = (said: string): void => change({ said });

/** A part of the state; the component is drawn again only when that part is another one. */
export function useStore<P>(select: (state: State) => P): P {
  const [, draw] = useState(0);
  const part = select(state);
  useEffect(() => {
    let last = part;
    const listen = () => {
      const now = select(state);
      if (Object.is(now, last)) return;
      last = now;
      draw((count) => count + 1);
    };
    listeners.add(listen);
    listen();
    return () => void listeners.delete(listen);
  }, [part]);
  return part;
}

/** The new list, in which rows with the same content are the old ones; the old list where all are. */
export function keepSame<R>(before: readonly R[], after: readonly R[], key: (row: R) => string): readonly R[] {
  const known = new Map(before.map((row) => [key(row), row]));
  const rows = after.map((row) => {
    const old = known.get(key(row));
    return old !== undefined && JSON.stringify(old) === JSON.stringify(row) ? old : row;
  });
  return rows.length === before.length && rows.every((row, index) => row === before[index]) ? before : rows;
}

/** Rows by a key; groups with the same content are the old ones. */
export function groupSame<R>(before: Groups<R>, rows: readonly R[], key: (row: R) => string): Groups<R> {
  const groups = new Map<string, R[]>();
  for (const row of rows) {
    const group = groups.get(key(row));
    if (group) group.push(row);
    else groups.set(key(row), [row]);
  }
  const kept = [...groups].map(([name, group]): [string, readonly R[]] => {
    const old = before.get(name);
    return [name, old && JSON.stringify(old) === JSON.stringify(group) ? old : group];
  });
  return new Map(kept);
}
