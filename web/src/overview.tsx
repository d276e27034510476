/** The overview: every GPU as a board, and the VMs beside them. */

import { Component } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { GpuDocument, PciGpuDocument, VmDocument } from "./api";
import { Board, OtherBoard } from "./board";
import { DRAGGED, FreeOf, FreeOfOther } from "./free";
import { gib, percent, shortModel } from "./format";
import { ActButton } from "./parts";
import { openDialog, useStore } from "./store";
import { T } from "./texts";

export function Overview() {
  const gpus = useStore((state) => state.gpus);
  const others = useStore((state) => state.others);
  const lost = useStore((state) => state.lost);
  return (
    <div class="overview">
      <section aria-label={T.gpus}>
        <div class="panel-head"><h1>{T.gpus}</h1><span class="muted">{T.shown(gpus.length + others.length, gpus.length + others.length)}</span></div>
        {lost.map((gpu) => <p key={gpu.index} class="note warn">{T.lostGpu(gpu.index, gpu.nvml_text)}</p>)}
        {gpus.length + others.length === 0 && <p class="note">{T.noGpus}</p>}
        <div class="cards">
          {gpus.map((gpu) => <Card key={gpu.uuid} gpu={gpu} />)}
          {others.map((gpu) => <OtherCard key={gpu.pci} gpu={gpu} />)}
        </div>
      </section>
      <VmStrip />
    </div>
  );
}

/** Drawn again only when its GPU is another value. */
class Card extends Component<{ gpu: GpuDocument }> {
  override shouldComponentUpdate(next: { gpu: GpuDocument }): boolean {
    return next.gpu !== this.props.gpu;
  }

  render({ gpu }: { gpu: GpuDocument }) {
    return (
      <article class="card" aria-label={T.gpu(gpu.index)} data-gpu={gpu.index}>
        <div class="card-head">
          <h2><a href={`#/gpu/${gpu.uuid}`}>{T.gpu(gpu.index)}</a></h2>
          <span>{shortModel(gpu.model)}</span>
          <span class="muted mono">{gpu.pci}</span>
          <Badges gpu={gpu} />
        </div>
        <FreeOf gpu={gpu} />
        <Board gpu={gpu} />
        <Figures gpu={gpu} />
      </article>
    );
  }
}

export function Badges({ gpu }: { gpu: GpuDocument }) {
  return (
    <span class="badges">
      {gpu.mig?.current && <span class="badge">{T.migOn}</span>}
      {gpu.mig && gpu.mig.current !== gpu.mig.pending && <span class="badge warn">{T.migPending}</span>}
      {gpu.drained && <span class="badge warn" title={gpu.drained.text}>{T.drained}</span>}
      {gpu.health && !gpu.health.healthy && <span class="badge bad">{T.unhealthy}</span>}
    </span>
  );
}

export function Figures({ gpu }: { gpu: GpuDocument }) {
  const { health, utilisation } = gpu;
  return (
    <dl class="figures">
      <div>
        <dt>{T.memory}</dt>
        <dd>
          <meter min={0} max={gpu.memory_total_bytes || 1} value={gpu.memory_used_bytes} aria-label={T.memory} />
          {T.memoryOf(gib(gpu.memory_used_bytes), gib(gpu.memory_total_bytes))}
        </dd>
      </div>
      {utilisation && <div><dt>{T.load}</dt><dd>{percent(utilisation.gpu_ratio)}</dd></div>}
      {health?.temperature_c != null && <div><dt>{T.temperature}</dt><dd>{T.degrees(health.temperature_c)}</dd></div>}
      {health?.power_w != null && <div><dt>{T.power}</dt><dd>{T.watts(health.power_w)}</dd></div>}
    </dl>
  );
}

function OtherCard({ gpu }: { gpu: PciGpuDocument }) {
  return (
    <article class="card" aria-label={gpu.pci}>
      <div class="card-head">
        <h2><a href={`#/gpu/${encodeURIComponent(gpu.pci)}`}>{gpu.pci}</a></h2>
        <span>{gpu.model}</span>
        {gpu.drained && <span class="badge warn" title={gpu.drained.text}>{T.drained}</span>}
      </div>
      <FreeOfOther gpu={gpu} />
      <OtherBoard gpu={gpu} />
    </article>
  );
}

/** More VMs than this are filtered by name. */
const MANY_VMS = 8;

function VmStrip() {
  const vms = useStore((state) => state.vms);
  const [filter, setFilter] = useState("");
  const shown = useMemo(() => vms.filter((vm) => vm.name.toLowerCase().includes(filter.toLowerCase())), [vms, filter]);
  return (
    <section class="vms" aria-label={T.vms}>
      <div class="panel-head"><h2>{T.vms}</h2><span class="muted">{T.shown(shown.length, vms.length)}</span></div>
      {vms.length > MANY_VMS && (
        <input type="search" placeholder={T.filter} aria-label={T.filterVms} value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      )}
      <p class="muted small">{vms.length ? T.dropHint : T.noVms}</p>
      <ul class="vm-list">{shown.map((vm) => <VmTile key={vm.uuid} vm={vm} />)}</ul>
      {vms.length > 0 && shown.length === 0 && <p>{T.noneMatch}</p>}
    </section>
  );
}

/** What a VM has, in a line. */
export const describeHas = (vm: VmDocument): string => vm.attachments.map((attachment) => attachment.profile).join(", ") || T.nothing;

function VmTile({ vm }: { vm: VmDocument }) {
  const [over, setOver] = useState(false);
  const canTake = (event: DragEvent) => event.dataTransfer?.types.includes(DRAGGED) ?? false;
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const dragged = JSON.parse(event.dataTransfer?.getData(DRAGGED) || "null") as { profile: string; gpu: string } | null;
    if (dragged) openDialog({ kind: "attach", vm: vm.uuid, ...dragged });
  };
  return (
    <li
      class={over ? "vm over" : "vm"}
      data-vm={vm.name}
      onDragOver={(event) => {
        if (!canTake(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <div class="vm-line">
        <a href={`#/vm/${vm.uuid}`}>{vm.name}</a>
        <span class={`state ${vm.state.replace(" ", "-")}`}>{vm.state}</span>
      </div>
      <div class="vm-line">
        <span class="muted">{describeHas(vm)}</span>
        <ActButton label={T.attachTo(vm.name)} onClick={() => openDialog({ kind: "attach", vm: vm.uuid })}>{T.attach}</ActButton>
      </div>
      {vm.problems.map((problem) => <p key={problem} class="note warn">{problem}</p>)}
    </li>
  );
}

export function Vms() {
  const vms = useStore((state) => state.vms);
  return (
    <>
      <div class="panel-head"><h1>{T.vms}</h1></div>
      {vms.length === 0 ? <p>{T.noVms}</p> : <ul class="vm-list wide">{vms.map((vm) => <VmTile key={vm.uuid} vm={vm} />)}</ul>}
    </>
  );
}
