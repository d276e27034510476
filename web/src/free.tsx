/** What still fits on a GPU: the first thing that an operator asks. Each is a button, and can be dragged onto a VM. */

import type { GpuDocument, MigProfileRow, PciGpuDocument, VgpuTypeDocument } from "./api";
import { gib, shortModel } from "./format";
import { openDialog, useStore } from "./store";
import { T } from "./texts";

/** What is dragged: a profile and its GPU. */
export const DRAGGED = "application/x-vgpumgr-slice";

export interface Offer {
  profile: string;
  text: string;
  fits: boolean;
}

function offerProfiles(rows: readonly MigProfileRow[]): Offer[] {
  return rows.map(({ name, free }) => ({ profile: name, text: free ? T.more(name, free) : T.none(name), fits: free > 0 }));
}

function offerTypes(types: readonly VgpuTypeDocument[]): Offer[] {
  const rows = types.map(({ name, free }) => {
    const short = shortModel(name);
    return { profile: name, text: free ? T.more(short, free) : T.none(short), fits: free > 0 };
  });
  // those that fit first, and the list stays short
  return rows.sort((one, other) => Number(other.fits) - Number(one.fits)).slice(0, 12);
}

const MIB = 2 ** 20;

function offerShare(gpu: GpuDocument): Offer[] {
  const { shares } = gpu;
  if (!shares || shares.why_not || shares.compute_free < 1) return [];
  const memory = shares.memory_free_bytes;
  const compute = Math.floor(shares.compute_free);
  if (memory < MIB) return [];
  const size = `${Math.floor(memory / MIB)}MiB`;
  const one = { profile: `share:${size},${compute}%`, text: T.shareFree(gib(memory), compute), fits: true };
  const half = { profile: "share:1/4", text: "share:1/4", fits: compute >= 25 && memory >= shares.memory_total_bytes / 4 };
  return half.fits ? [one, half] : [one];
}

export function listOffers(gpu: GpuDocument, profiles: readonly MigProfileRow[], types: readonly VgpuTypeDocument[]): Offer[] {
  if (gpu.mig?.current) return [...offerProfiles(profiles), ...offerTypes(types)];
  const isEmpty = !gpu.vms.length && !gpu.devices.length && !gpu.vfs_enabled && !gpu.shares?.holders.length;
  const whole = isEmpty ? [{ profile: "passthrough", text: T.wholeGpu, fits: true }] : [];
  return [...offerShare(gpu), ...offerTypes(types), ...offerVfs(gpu.vfs_enabled, gpu.devices), ...whole];
}

function offerVfs(enabled: number | null, devices: GpuDocument["devices"]): Offer[] {
  const free = (enabled ?? 0) - devices.filter((device) => device.kind === "vf" && device.vm).length;
  // NVIDIA's virtual functions carry vGPUs, which are offered as types
  return free > 0 && !devices.some((device) => device.kind === "vgpu") ? [{ profile: "vf", text: T.vfsFree(free), fits: true }] : [];
}

function Chip({ offer, gpu, name }: { offer: Offer; gpu: string; name: string }) {
  const act = () =>
    openDialog(offer.fits ? { kind: "attach", profile: offer.profile, gpu } : { kind: "why", profile: offer.profile, gpu, name });
  const drag = (event: DragEvent) => {
    event.dataTransfer?.setData(DRAGGED, JSON.stringify({ profile: offer.profile, gpu }));
    if (event.dataTransfer) event.dataTransfer.effectAllowed = "copy";
  };
  const label = offer.fits ? undefined : T.doesNotFit(offer.text);
  return (
    <button type="button" class={offer.fits ? "chip" : "chip none"} aria-label={label} draggable={offer.fits} onDragStart={drag} onClick={act}>
      {offer.text}
    </button>
  );
}

const NO_PROFILES: readonly MigProfileRow[] = [];
const NO_TYPES: readonly VgpuTypeDocument[] = [];

export function FreeOf({ gpu }: { gpu: GpuDocument }) {
  const profiles = useStore((state) => state.profiles.get(gpu.uuid) ?? NO_PROFILES);
  const types = useStore((state) => state.types.get(gpu.uuid) ?? state.types.get(gpu.pci) ?? NO_TYPES);
  return <Chips offers={listOffers(gpu, profiles, types)} gpu={gpu.uuid} name={String(gpu.index)} />;
}

export function FreeOfOther({ gpu }: { gpu: PciGpuDocument }) {
  const types = useStore((state) => state.types.get(gpu.pci) ?? NO_TYPES);
  // the host's own display, and a function whose virtual functions are there, cannot go to a VM
  const isWhole = !gpu.boot_display && !gpu.vms.length && !gpu.devices.length && !gpu.vfs_enabled;
  const whole = isWhole ? [{ profile: "passthrough", text: T.wholeGpu, fits: true }] : [];
  return <Chips offers={[...offerTypes(types), ...offerVfs(gpu.vfs_enabled, gpu.devices), ...whole]} gpu={gpu.pci} name={gpu.pci} />;
}

function Chips({ offers, gpu, name }: { offers: readonly Offer[]; gpu: string; name: string }) {
  if (!offers.length) return null;
  return (
    <div class="chips" role="group" aria-label={T.freeCapacity}>
      {offers.map((offer) => <Chip key={offer.profile} offer={offer} gpu={gpu} name={name} />)}
    </div>
  );
}
