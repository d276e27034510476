/** What the page can do: each is a request with a dry run, and the command line that does the same. */

import type { GpuDocument, InstanceDocument, PhysicalDocument, VgpuDocument, VmDocument } from "./api";
import { line, withInput } from "./commands";
import { place } from "./format";
import { getState } from "./store";
import { T } from "./texts";
import type { Named } from "./vgpu";

export interface Action {
  title: string;
  path: string;
  body: Readonly<Record<string, unknown>>;
  command: string;
  /** Whose ETag the change is held to: what was planned on must still be so. */
  subject?: string;
  /** What the plan does not say. */
  warning?: string | undefined;
}

/** What the command line calls a VM: a name that begins as an option does would be one. */
const nameOf = (vm: VmDocument): string => (vm.name.startsWith("-") ? vm.uuid : vm.name);

const vmPath = (vm: VmDocument) => `/1.0/vms/${encodeURIComponent(vm.uuid)}`;

/** Processes of the guest that lose the GPU; those of one attachment, or of all. */
function warnOfPrograms(vm: VmDocument, attachment?: string): string | undefined {
  const channels = getState().channels.get(vm.name) ?? vm.channels;
  const lanes = channels.filter((channel) => attachment === undefined || channel.id === attachment).flatMap((channel) => channel.lanes);
  return lanes.length ? T.guestPrograms(lanes.map((lane) => (lane.pid === null ? lane.name : `${lane.name} (${lane.pid})`)).join(", ")) : undefined;
}

export interface AttachChoice {
  vm: VmDocument;
  profile: string;
  gpu: GpuDocument | null;
  /** A GPU that NVML does not speak about. */
  address?: string | null;
  add: boolean;
}

export function attach({ vm, profile, gpu, address, add }: AttachChoice): Action {
  const selector = gpu ? gpu.uuid : (address ?? null);
  const named = gpu ? String(gpu.index) : address;
  return {
    title: T.attachTo(vm.name),
    path: "/1.0/attachments",
    body: { vm: vm.uuid, profile, gpu: selector, add },
    command: line("attach", nameOf(vm), "--profile", profile, named && "--gpu", named, add && "--add"),
    subject: vmPath(vm),
  };
}

export function detach(vm: VmDocument, attachment: string, profile: string): Action {
  const only = vm.attachments.length === 1;
  return {
    title: T.detachTitle(profile, vm.name),
    path: `/1.0/attachments/${encodeURIComponent(vm.uuid)}/detach`,
    body: { attachment },
    command: only ? line("detach", nameOf(vm)) : line("detach", nameOf(vm), "--attachment", attachment),
    subject: vmPath(vm),
    warning: warnOfPrograms(vm, attachment),
  };
}

export const restartChannel = (vm: VmDocument): Action => ({
  title: T.restartTitle(vm.name),
  path: `/1.0/channels/${encodeURIComponent(vm.uuid)}/restart`,
  body: {},
  command: line("virtio", "restart", nameOf(vm)),
  warning: warnOfPrograms(vm),
});

export function drain(gpu: GpuDocument): Action {
  const verb = gpu.drained ? "resume" : "drain";
  return {
    title: (gpu.drained ? T.resumeTitle : T.drainTitle)(T.gpu(gpu.index)),
    path: `/1.0/gpus/${gpu.uuid}/${verb}`,
    body: {},
    command: line("gpu", verb, String(gpu.index)),
  };
}

export const setMode = (gpu: GpuDocument, enabled: boolean): Action => ({
  title: (enabled ? T.enableMigTitle : T.disableMigTitle)(T.gpu(gpu.index)),
  path: "/1.0/mig/mode",
  body: { gpu: gpu.uuid, enabled },
  command: line("mig", enabled ? "enable" : "disable", String(gpu.index)),
});

export function destroy(gpu: GpuDocument, instance: InstanceDocument): Action {
  const name = `${gpu.index}/${instance.id}`;
  return {
    title: T.destroyTitle(instance.profile, place(instance.placement), T.gpu(gpu.index)),
    path: "/1.0/mig/destroy",
    body: { instances: [name] },
    command: line("mig", "destroy", name),
  };
}

/** A UUID of version 4. `crypto.randomUUID` is not there over plain HTTP, which Cockpit may use. */
export function makeUuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const text = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return text.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

export interface VgpuChoice {
  gpu: Named;
  type: string;
  uuid: string;
  define: boolean;
  auto: boolean;
}

export const createVgpu = ({ gpu, type, uuid, define, auto }: VgpuChoice): Action => ({
  title: T.createVgpuTitle(type, gpu.name),
  path: "/1.0/vgpus",
  body: { type, gpu: gpu.selector, uuid, define, auto },
  command: line("mdev", "create", type, "--gpu", gpu.name, "--uuid", uuid, define && "--define", auto && "--auto"),
});

export type VgpuVerb = "delete" | "start" | "stop" | "adopt";

export function changeVgpu(verb: VgpuVerb, vgpu: VgpuDocument): Action {
  const name = vgpu.uuid ?? vgpu.parent;
  return {
    title: T.vgpuName(T.vgpuVerbs[verb], vgpu.type, name),
    path: `/1.0/vgpus/${encodeURIComponent(name)}/${verb}`,
    body: {},
    command: line("mdev", verb, name),
  };
}

/** `count`: null is all of them. */
export const enableVfs = ({ address }: PhysicalDocument, count: number | null, persist: boolean): Action => ({
  title: T.enableVfsTitle(address),
  path: "/1.0/vfs/enable",
  body: { selector: address, count, persist },
  command: line("vf", "enable", address, count !== null && "--count", count !== null && String(count), persist && "--persist"),
});

export const disableVfs = ({ address }: PhysicalDocument): Action => ({
  title: T.disableVfsName(address),
  path: "/1.0/vfs/disable",
  body: { selector: address },
  command: line("vf", "disable", address),
});

export function recover(release: boolean, readd: boolean): Action {
  return {
    title: T.repairTitle,
    path: "/1.0/recover",
    body: { release, readd },
    command: line("recover", release && "--release", readd && "--readd"),
  };
}

export const restore = (): Action => ({ title: T.restoreTitle, path: "/1.0/restore", body: {}, command: line("restore") });

/** An instance of a layout that is being edited. */
export interface Piece {
  profile: string;
  placement: { start: number; size: number };
  /** The instance that is there now. */
  instance: InstanceDocument | null;
}

/** The layout file of one GPU; what stays keeps its compute instances. */
export function layoutText(gpu: GpuDocument, pieces: readonly Piece[]): string {
  const rows = pieces.map(({ profile, placement, instance }) => {
    const inside = instance?.compute_instances ?? null;
    const whole = inside === null || (inside.length === 1 && inside[0]?.slices === instance?.slices);
    const compute = whole ? "" : `, compute: [${inside.map((part) => `${part.slices}c`).join(", ")}]`;
    return `        - {profile: ${profile}, placement: "${place(placement)}"${compute}}\n`;
  });
  const list = rows.length ? `\n${rows.join("")}` : " []\n";
  return `schema: vgpumgr/mig-layout/v1\nlayouts:\n  page:\n    - gpus: ["${gpu.uuid}"]\n      instances:${list}`;
}

export function applyLayout(gpu: GpuDocument, pieces: readonly Piece[]): Action {
  const text = layoutText(gpu, pieces);
  return {
    title: T.layoutTitle(T.gpu(gpu.index)),
    path: "/1.0/mig/layout/apply",
    body: { source: "page", text },
    command: withInput(line("mig", "layout", "apply", "-"), text),
  };
}
