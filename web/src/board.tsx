/** A GPU as a drawn board: what is where, for whom, and what is free. Positions are shares of the width, so that texts keep their size. */

import { Component, type ComponentChildren } from "preact";
import type { GpuDocument, InstanceDocument, PciGpuDocument, ShareHolderDocument, SliceDeviceDocument } from "./api";
import { gib, place, shortModel } from "./format";
import { T } from "./texts";

const HEIGHT = 60;
const GAP = 2;

type Kind = "vm" | "run" | "vgpu" | "idle" | "free" | "going" | "new";

interface AreaProps {
  /** Shares of the board's width. */
  from: number;
  width: number;
  kind: Kind;
  title: string;
  detail?: string;
  children?: ComponentChildren;
}

const part = (share: number): string => `${(share * 100).toFixed(3)}%`;

/** One area; its texts are cut off at its edges. */
function Area({ from, width, kind, title, detail, children }: AreaProps) {
  return (
    <svg x={part(from)} y="0" width={part(width)} height={HEIGHT} class={`area ${kind}`}>
      {title && <title>{detail ? `${title}: ${detail}` : title}</title>}
      <rect x={GAP / 2} y={GAP / 2} height={HEIGHT - GAP} rx="3" class="base" />
      {(kind === "idle" || kind === "run" || kind === "going") && (
        <rect x={GAP / 2} y={GAP / 2} height={HEIGHT - GAP} rx="3" class="texture" fill={`url(#texture-${kind})`} />
      )}
      {children}
      <text x="7" y="24" class="title">{title}</text>
      {detail && <text x="7" y="42" class="detail">{detail}</text>}
    </svg>
  );
}

/** Textures, once for the page: areas differ without colour, too. */
export function Textures() {
  return (
    <svg class="textures" aria-hidden="true" width="0" height="0">
      <defs>
        <pattern id="texture-idle" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="2" height="8" class="ink" />
        </pattern>
        <pattern id="texture-run" width="6" height="6" patternUnits="userSpaceOnUse">
          <circle cx="3" cy="3" r="1" class="ink" />
        </pattern>
        <pattern id="texture-going" width="8" height="8" patternUnits="userSpaceOnUse">
          <path d="M0 0L8 8M8 0L0 8" class="ink-line" />
        </pattern>
      </defs>
    </svg>
  );
}

/** Who has an instance: its own holder, or those of its compute instances and shares. */
export function holderOf(instance: InstanceDocument): { kind: Kind; name: string } {
  const holders = [instance.holder, ...instance.compute_instances.map((part) => part.holder)].filter((holder) => holder !== null);
  const first = holders[0];
  const names = new Set(holders.map((holder) => (holder.kind === "run" ? T.board.run(holder.name) : holder.name)));
  for (const share of instance.shares?.holders ?? []) names.add(share.name);
  if (names.size) return { kind: first?.kind === "run" ? "run" : first?.kind === "vgpu" ? "vgpu" : "vm", name: [...names].join(", ") };
  return { kind: "idle", name: instance.processes.length ? instance.processes.map((process) => String(process.pid)).join(", ") : T.idle };
}

interface Drawn {
  label: string;
  areas: ComponentChildren;
  axis?: number;
}

function freeRuns(taken: readonly { start: number; size: number }[], positions: number) {
  const runs: { start: number; size: number }[] = [];
  let at = 0;
  for (const { start, size } of [...taken].sort((one, other) => one.start - other.start)) {
    if (start > at) runs.push({ start: at, size: start - at });
    at = Math.max(at, start + size);
  }
  if (at < positions) runs.push({ start: at, size: positions - at });
  return runs;
}

function drawMig(gpu: GpuDocument): Drawn {
  const positions = Math.max(gpu.mig?.memory_positions ?? 8, 1);
  const runs = freeRuns(gpu.instances.map((instance) => instance.placement), positions);
  const said = gpu.instances.map((instance) => T.board.instance(instance.profile, place(instance.placement), holderOf(instance).name));
  const free = runs.map((run) => T.board.freeAt(place(run)));
  const areas = (
    <>
      {runs.map((run) => (
        <Area key={`free${run.start}`} from={run.start / positions} width={run.size / positions} kind="free" title={T.free} />
      ))}
      {gpu.instances.map((instance) => {
        const { kind, name } = holderOf(instance);
        const { start, size } = instance.placement;
        return <Area key={instance.id} from={start / positions} width={size / positions} kind={kind} title={instance.profile} detail={name} />;
      })}
    </>
  );
  const all = gpu.instances.length ? free : [T.board.allFree];
  return { label: [T.board.mig(T.gpu(gpu.index), positions), ...said, ...all].join(" "), areas, axis: positions };
}

function drawShares(name: string, total: number, holders: readonly ShareHolderDocument[]): Drawn {
  let from = 0;
  const areas = holders.map((holder) => {
    const width = holder.memory_bytes / total;
    const detail = T.board.shareDetail(gib(holder.memory_bytes), holder.compute);
    const area = (
      <Area key={holder.attachment} from={from} width={width} kind={holder.kind === "run" ? "run" : "vm"} title={holder.name} detail={detail}>
        <rect x="1" y={HEIGHT - 9} width={part(Math.min(holder.compute, 100) / 100)} height="6" class="bar" />
      </Area>
    );
    from += width;
    return area;
  });
  const time = Math.max(0, 100 - holders.reduce((sum, holder) => sum + holder.compute, 0));
  const said = holders.map((holder) => T.board.share(holder.name, gib(holder.memory_bytes), holder.compute));
  const rest = from < 0.999 && <Area from={from} width={1 - from} kind="free" title={T.free} detail={T.board.freeMemory(gib((1 - from) * total))} />;
  return { label: [T.board.shares(name), ...said, T.board.timeFree(time)].join(" "), areas: <>{areas}{rest}</> };
}

function drawDevices(name: string, devices: readonly SliceDeviceDocument[], total: number, vfs: number): Drawn {
  const isVf = devices.some((device) => device.kind === "vf") && !devices.some((device) => device.kind === "vgpu");
  const sized = !isVf && total > 0 && devices.every((device) => device.memory_bytes !== null);
  const slots = Math.max(isVf ? vfs : devices.length, devices.length, 1);
  let from = 0;
  const areas = devices.map((device) => {
    const width = sized ? (device.memory_bytes ?? 0) / total : 1 / slots;
    const holder = device.vm ?? T.board.noVm;
    const area = <Area key={device.name} from={from} width={width} kind={device.vm ? "vgpu" : "idle"} title={shortModel(device.profile)} detail={holder} />;
    from += width;
    return area;
  });
  const said = devices.map((device) => T.board.instance(device.profile, device.function, device.vm ?? T.board.noVm));
  const rest = from < 0.999 && <Area from={from} width={1 - from} kind="free" title={T.free} />;
  return { label: [T.board.devices(name, isVf ? T.board.vf : T.board.vgpu), ...said].join(" "), areas: <>{areas}{rest}</> };
}

function drawWhole(name: string, vms: readonly string[]): Drawn {
  if (!vms.length) return { label: `${T.board.whole(name)} ${T.board.allFree}`, areas: <Area from={0} width={1} kind="free" title={T.free} /> };
  const area = <Area from={0} width={1} kind="vm" title={T.wholeGpu} detail={vms.join(", ")} />;
  return { label: `${T.board.whole(name)} ${vms.join(", ")}.`, areas: area };
}

export function drawGpu(gpu: GpuDocument): Drawn {
  const name = T.gpu(gpu.index);
  if (gpu.mig?.current) return drawMig(gpu);
  if (gpu.devices.length) return drawDevices(name, gpu.devices, gpu.memory_total_bytes, gpu.vfs_enabled ?? 0);
  if (gpu.shares?.holders.length) return drawShares(name, gpu.shares.memory_total_bytes, gpu.shares.holders);
  return drawWhole(name, gpu.vms);
}

function drawOther(gpu: PciGpuDocument): Drawn {
  if (gpu.devices.length) return drawDevices(gpu.pci, gpu.devices, 0, gpu.vfs_enabled ?? 0);
  return drawWhole(gpu.pci, gpu.vms);
}

function Axis({ positions }: { positions: number }) {
  return (
    <>
      {Array.from({ length: positions }, (_, index) => (
        <text key={index} x={part(index / positions)} y={HEIGHT + 12} dx="2" class="tick">{index}</text>
      ))}
    </>
  );
}

export function Frame({ label, axis, children }: { label: string; axis?: number | undefined; children: ComponentChildren }) {
  return (
    <svg class="board" role="img" aria-label={label} width="100%" height={HEIGHT + (axis ? 16 : 0)}>
      {children}
      {axis && <Axis positions={axis} />}
    </svg>
  );
}

/** Drawn again only when the GPU is another value. */
export class Board extends Component<{ gpu: GpuDocument }> {
  override shouldComponentUpdate(next: { gpu: GpuDocument }): boolean {
    return next.gpu !== this.props.gpu;
  }

  render({ gpu }: { gpu: GpuDocument }) {
    const { label, axis, areas } = drawGpu(gpu);
    return <Frame label={label} axis={axis}>{areas}</Frame>;
  }
}

export function OtherBoard({ gpu }: { gpu: PciGpuDocument }) {
  const { label, areas } = drawOther(gpu);
  return <Frame label={label}>{areas}</Frame>;
}

export { Area };
