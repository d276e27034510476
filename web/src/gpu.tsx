/** One GPU: its board, what is on it, what still fits, and what can be done. */

import { destroy, detach, drain, setMode } from "./actions";
import type { GpuDocument, InstanceDocument, MigProfileRow, PciGpuDocument, SliceDeviceDocument } from "./api";
import { Board, OtherBoard, holderOf } from "./board";
import { FreeOf, FreeOfOther } from "./free";
import { bytes, place, shortModel } from "./format";
import { Badges, Figures } from "./overview";
import { ActButton, Button, Fact, Section, Table } from "./parts";
import { Plots } from "./plots";
import { openDialog, useStore } from "./store";
import { T } from "./texts";
import { Functions, Types, Vgpus } from "./vgpu";

export function GpuView({ uuid }: { uuid: string }) {
  const gpu = useStore((state) => state.gpus.find((other) => other.uuid === uuid));
  const other = useStore((state) => state.others.find((one) => one.pci === uuid));
  if (other) return <OtherView gpu={other} />;
  if (!gpu) return <p>{T.notFound} <a href="#/">{T.toOverview}</a></p>;
  const named = { selector: gpu.uuid, name: String(gpu.index), pci: gpu.pci };
  return (
    <>
      <div class="panel-head">
        <h1>{T.gpu(gpu.index)}</h1>
        <span>{shortModel(gpu.model)}</span>
        <Badges gpu={gpu} />
        <GpuActions gpu={gpu} />
      </div>
      {gpu.drained && <p class="note warn">{gpu.drained.text}</p>}
      <div class="panel"><FreeOf gpu={gpu} /><Board gpu={gpu} /><Figures gpu={gpu} /></div>
      {gpu.instances.length > 0 && <Instances gpu={gpu} />}
      {gpu.shares && gpu.shares.holders.length > 0 && <Shares gpu={gpu} />}
      {gpu.devices.length > 0 && <Devices devices={gpu.devices} />}
      <Vgpus gpu={named} />
      {gpu.mig?.current && <Profiles gpu={gpu} />}
      <Types gpu={named} />
      {(gpu.vfs_total ?? 0) > 0 && <Functions gpu={named} />}
      <Plots subject="gpu" name={gpu.uuid} />
      {gpu.processes.length > 0 && <Processes gpu={gpu} />}
      <Facts gpu={gpu} />
    </>
  );
}

/** A GPU that NVML does not know. */
function OtherView({ gpu }: { gpu: PciGpuDocument }) {
  const named = { selector: gpu.pci, name: gpu.pci, pci: gpu.pci };
  return (
    <>
      <div class="panel-head"><h1>{gpu.pci}</h1><span>{gpu.model}</span></div>
      {gpu.drained && <p class="note warn">{gpu.drained.text}</p>}
      <div class="panel"><FreeOfOther gpu={gpu} /><OtherBoard gpu={gpu} /></div>
      {gpu.devices.length > 0 && <Devices devices={gpu.devices} />}
      <Vgpus gpu={named} />
      <Types gpu={named} />
      {(gpu.vfs_total ?? 0) > 0 && <Functions gpu={named} />}
      <Section title={T.facts}>
        <dl class="facts">
          <Fact name={T.model}>{gpu.model}</Fact>
          <Fact name={T.kernelDriver}>{gpu.driver ?? "-"}</Fact>
          {gpu.numa_node !== null && <Fact name={T.numa(gpu.numa_node)}>{gpu.iommu_group ? T.iommu(gpu.iommu_group.number) : "-"}</Fact>}
          {gpu.vms.length > 0 && <Fact name={T.vm}>{gpu.vms.join(", ")}</Fact>}
        </dl>
      </Section>
    </>
  );
}

function GpuActions({ gpu }: { gpu: GpuDocument }) {
  const act = (make: () => ReturnType<typeof drain>) => () => openDialog({ kind: "act", action: make() });
  return (
    <span class="head-actions">
      {gpu.mig?.current && <ActButton kind="main" onClick={() => openDialog({ kind: "layout", gpu: gpu.uuid })}>{T.editLayout}</ActButton>}
      {gpu.mig?.supported && !gpu.mig.current && <ActButton onClick={act(() => setMode(gpu, true))}>{T.enableMig}</ActButton>}
      {gpu.mig?.current && gpu.instances.length === 0 && <ActButton onClick={act(() => setMode(gpu, false))}>{T.disableMig}</ActButton>}
      <ActButton onClick={act(() => drain(gpu))}>{gpu.drained ? T.resume : T.drain}</ActButton>
    </span>
  );
}

function Instances({ gpu }: { gpu: GpuDocument }) {
  return (
    <Section title={T.instances}>
      <Table label={T.instances} heads={[T.instance, T.profile, T.where, T.memory, T.holder, T.actions]}>
        {gpu.instances.map((instance) => <InstanceRow key={instance.id} gpu={gpu} instance={instance} />)}
      </Table>
    </Section>
  );
}

function InstanceRow({ gpu, instance }: { gpu: GpuDocument; instance: InstanceDocument }) {
  const vm = useStore((state) => state.vms.find((other) => other.name === instance.vm));
  const held = vm?.attachments.find((attachment) => attachment.id === instance.attachment);
  const { name, kind } = holderOf(instance);
  return (
    <tr>
      <td class="mono">{`${gpu.index}/${instance.id}`}</td>
      <td>{instance.profile}</td>
      <td class="mono">{place(instance.placement)}</td>
      <td>{bytes(instance.memory_bytes)}</td>
      <td>{vm ? <a href={`#/vm/${vm.uuid}`}>{name}</a> : name}</td>
      <td>
        {vm && held && (
          <ActButton label={T.detachName(held.profile, vm.name)} onClick={() => openDialog({ kind: "act", action: detach(vm, held.id, held.profile) })}>
            {T.detach}
          </ActButton>
        )}
        {kind === "idle" && (
          <ActButton label={T.destroyName(instance.profile, place(instance.placement))} onClick={() => openDialog({ kind: "act", action: destroy(gpu, instance) })}>
            {T.destroyInstance}
          </ActButton>
        )}
      </td>
    </tr>
  );
}

function VmLink({ name }: { name: string }) {
  const uuid = useStore((state) => state.vms.find((vm) => vm.name === name)?.uuid);
  return uuid ? <a href={`#/vm/${uuid}`}>{name}</a> : <>{name}</>;
}

function Shares({ gpu }: { gpu: GpuDocument }) {
  return (
    <Section title={T.share}>
      <Table label={T.share} heads={[T.holder, T.memory, T.compute, T.priority]}>
        {gpu.shares?.holders.map((holder) => (
          <tr key={holder.attachment}>
            <td>{holder.kind === "vm" ? <VmLink name={holder.name} /> : T.board.run(holder.name)}</td>
            <td>{bytes(holder.memory_bytes)}</td>
            <td>{`${holder.compute} %`}</td>
            <td>{holder.priority}</td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

function Devices({ devices }: { devices: readonly SliceDeviceDocument[] }) {
  return (
    <Section title={T.devicesTitle}>
      <Table label={T.devicesTitle} heads={[T.name, T.profile, T.where, T.memory, T.vm]}>
        {devices.map((device) => (
          <tr key={device.name}>
            <td class="mono">{device.name}</td>
            <td>{device.profile}</td>
            <td class="mono">{device.function}</td>
            <td>{device.memory_bytes === null ? "-" : bytes(device.memory_bytes)}</td>
            <td>{device.vm ? <VmLink name={device.vm} /> : T.board.noVm}</td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

const NO_PROFILES: readonly MigProfileRow[] = [];

function Profiles({ gpu }: { gpu: GpuDocument }) {
  const profiles = useStore((state) => state.profiles.get(gpu.uuid) ?? NO_PROFILES);
  return (
    <Section title={T.profiles}>
      <Table label={T.profiles} heads={[T.profile, T.slices, T.memory, T.fits, T.places, T.actions]}>
        {profiles.map((row) => (
          <tr key={row.name}>
            <td>{row.name}</td>
            <td>{row.slices}</td>
            <td>{bytes(row.memory_bytes)}</td>
            <td>{row.free}</td>
            <td class="mono">{row.free_placements.map(place).join(" ") || "-"}</td>
            <td>
              {row.free > 0 ? (
                <ActButton label={`${T.attach} ${row.name}`} onClick={() => openDialog({ kind: "attach", profile: row.name, gpu: gpu.uuid })}>{T.attach}</ActButton>
              ) : (
                <Button label={T.whyTitle(row.name)} onClick={() => openDialog({ kind: "why", profile: row.name, gpu: gpu.uuid, name: String(gpu.index) })}>{T.why}</Button>
              )}
            </td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

function Processes({ gpu }: { gpu: GpuDocument }) {
  return (
    <Section title={T.processes}>
      <Table label={T.processes} heads={[T.pid, T.name, T.memory]}>
        {gpu.processes.map((process) => (
          <tr key={process.pid}>
            <td class="mono">{process.pid}</td>
            <td>{process.name ?? "-"}</td>
            <td>{process.memory_bytes === null ? "-" : bytes(process.memory_bytes)}</td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

function Facts({ gpu }: { gpu: GpuDocument }) {
  return (
    <Section title={T.facts}>
      <dl class="facts">
        <Fact name={T.model}>{gpu.model}</Fact>
        <Fact name={T.architecture}>{gpu.architecture ?? "-"}</Fact>
        <Fact name={T.pci}><span class="mono">{gpu.pci}</span></Fact>
        <Fact name={T.uuid}><span class="mono">{gpu.uuid}</span></Fact>
        <Fact name={T.kernelDriver}>{gpu.driver ?? "-"}</Fact>
        {gpu.numa_node !== null && <Fact name={T.numa(gpu.numa_node)}>{gpu.iommu_group ? T.iommu(gpu.iommu_group.number) : "-"}</Fact>}
        {gpu.mig && <Fact name={T.reset}>{gpu.mig.needs_reset ? T.yes : T.no}</Fact>}
      </dl>
    </Section>
  );
}
