/** One VM: what it has, over which transport, its counters, its quota, and the processes inside. */

import { detach, restartChannel } from "./actions";
import type { AttachmentDocument, ChannelDocument, ChannelShareDocument, LimitDocument, VmDocument } from "./api";
import { bytes, count, duration, place } from "./format";
import { ActButton, Fact, Section, Table } from "./parts";
import { Plots } from "./plots";
import { openDialog, useStore } from "./store";
import { T } from "./texts";

const NO_CHANNELS: readonly ChannelDocument[] = [];

export function VmView({ uuid }: { uuid: string }) {
  const vm = useStore((state) => state.vms.find((other) => other.uuid === uuid));
  const channels = useStore((state) => (vm && state.channels.get(vm.name)) ?? vm?.channels ?? NO_CHANNELS);
  if (!vm) return <p>{T.notFound} <a href="#/">{T.toOverview}</a></p>;
  return (
    <>
      <div class="panel-head">
        <h1>{vm.name}</h1>
        <span class={`state ${vm.state.replace(" ", "-")}`}>{vm.state}</span>
        <span class="head-actions">
          <ActButton kind="main" label={T.attachTo(vm.name)} onClick={() => openDialog({ kind: "attach", vm: vm.uuid })}>{T.attach}</ActButton>
          {channels.length > 0 && <ActButton onClick={() => openDialog({ kind: "act", action: restartChannel(vm) })}>{T.restartChannel}</ActButton>}
        </span>
      </div>
      {vm.problems.map((problem) => <p key={problem} class="note warn">{problem}</p>)}
      <Attachments vm={vm} />
      {channels.map((channel) => <Channel key={channel.id} channel={channel} />)}
      {channels.length > 0 && <Plots subject="vm" name={vm.name} />}
    </>
  );
}

function Attachments({ vm }: { vm: VmDocument }) {
  return (
    <Section title={T.attachments}>
      {vm.attachments.length === 0 ? <p>{T.nothing}</p> : (
        <Table label={T.attachments} heads={[T.profile, T.where, T.memory, T.transport, T.usable, T.state, T.actions]}>
          {vm.attachments.map((attachment) => <AttachmentRow key={attachment.id} vm={vm} attachment={attachment} />)}
        </Table>
      )}
    </Section>
  );
}

function AttachmentRow({ vm, attachment }: { vm: VmDocument; attachment: AttachmentDocument }) {
  const gpu = useStore((state) => state.gpus.find((other) => other.uuid === attachment.gpu));
  const at = attachment.placement ? ` ${place(attachment.placement)}` : "";
  const devices = attachment.host_devices.map((device) => device.address).join(", ");
  return (
    <tr>
      <td>{attachment.profile}</td>
      <td>{gpu ? <><a href={`#/gpu/${gpu.uuid}`}>{T.gpu(gpu.index)}</a>{at}</> : devices || attachment.gpu || "-"}</td>
      <td>{attachment.memory_bytes ? bytes(attachment.memory_bytes) : "-"}</td>
      <td>{attachment.transport ?? attachment.backend}</td>
      <td>{attachment.usable ? T.usableWords[attachment.usable] : "-"}</td>
      <td>{attachment.state}</td>
      <td>
        <ActButton label={T.detachName(attachment.profile, vm.name)} onClick={() => openDialog({ kind: "act", action: detach(vm, attachment.id, attachment.profile) })}>
          {T.detach}
        </ActButton>
      </td>
    </tr>
  );
}

function describeWorker(channel: ChannelDocument): string {
  if (channel.hidden) return "hidden";
  if (!channel.running) return "no keeper";
  if (!channel.worker_ready) return "not ready";
  return channel.hello ? "ready" : "waiting";
}

function Channel({ channel }: { channel: ChannelDocument }) {
  const lost = channel.sessions?.lost ?? 0;
  return (
    <Section title={T.channel(channel.profile)}>
      {channel.problem && <p class="note warn">{channel.problem}</p>}
      <dl class="facts">
        <Fact name={T.worker}>{T.workerWords[describeWorker(channel)]}</Fact>
        <Fact name={T.transport}>{channel.transport ?? "-"}</Fact>
        <Fact name={T.calls}>{count(channel.calls)}</Fact>
        <Fact name={T.bytesIn}>{bytes(channel.bytes_in)}</Fact>
        <Fact name={T.bytesOut}>{bytes(channel.bytes_out)}</Fact>
        <Fact name={T.memory}>{bytes(channel.memory_bytes)}</Fact>
        {lost > 0 && <Fact name={T.sessions}>{lost}</Fact>}
        {channel.share && <ShareFacts share={channel.share} />}
      </dl>
      <h3>{T.lanes}</h3>
      {channel.lanes.length === 0 ? <p class="muted">{T.noLanes}</p> : <Lanes channel={channel} />}
      <Limits limits={channel.limits} />
    </Section>
  );
}

function ShareFacts({ share }: { share: ChannelShareDocument }) {
  return (
    <>
      <Fact name={T.share}>{T.shareOf(bytes(share.memory_bytes), share.compute)}</Fact>
      <Fact name={T.policy}>{share.policy}</Fact>
      <Fact name={T.priority}>{share.priority}</Fact>
      {share.used_s !== null && <Fact name={T.usedTime}>{duration(share.used_s)}</Fact>}
      {share.throttled_s !== null && <Fact name={T.throttled}>{duration(share.throttled_s)}</Fact>}
    </>
  );
}

function Lanes({ channel }: { channel: ChannelDocument }) {
  return (
    <Table label={T.lanes} heads={[T.name, T.pid, T.transport, T.calls, T.bytesIn, T.bytesOut, T.memory]}>
      {channel.lanes.map((lane) => (
        <tr key={lane.id}>
          <td>{lane.name}</td>
          <td class="mono">{lane.pid ?? "-"}</td>
          <td>{lane.transport}</td>
          <td>{count(lane.calls)}</td>
          <td>{bytes(lane.bytes_in)}</td>
          <td>{bytes(lane.bytes_out)}</td>
          <td>{bytes(lane.memory_bytes)}</td>
        </tr>
      ))}
    </Table>
  );
}

function inUnit(limit: LimitDocument, value: number | null): string {
  if (value === null) return "-";
  return limit.unit === "bytes" ? bytes(value) : limit.unit === "percent" ? `${value} %` : count(value);
}

function Limits({ limits }: { limits: readonly LimitDocument[] }) {
  const shown = limits.filter((limit) => limit.limit !== null || limit.refused > 0);
  if (!shown.length) return null;
  return (
    <>
      <h3>{T.limits}</h3>
      <Table label={T.limits} heads={[T.limit, T.used, T.atMost, T.refused, T.waited]}>
        {shown.map((limit) => (
          <tr key={limit.key}>
            <td>{limit.key}</td>
            <td>
              {limit.limit !== null && limit.used !== null && <meter min={0} max={limit.limit || 1} value={limit.used} aria-label={limit.key} />}
              {inUnit(limit, limit.used)}
            </td>
            <td>{limit.limit === null ? T.unlimited : inUnit(limit, limit.limit)}</td>
            <td>{count(limit.refused)}</td>
            <td>{duration(limit.waited_s)}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}
