/** The pool: its hosts with what has their GPUs, the queue, claims, tenants, and its last hour. */

import { useMemo, useState } from "preact/hooks";
import type {
  ClaimDocument, ClaimListDocument, PoolDocument, PoolGpuDocument, PoolHostDocument, ReservationListDocument, TenantListDocument,
} from "./api";
import { Area, Frame } from "./board";
import { Claims, Find, Queue, Tenants, describeUser } from "./claims";
import { lineThere } from "./commands";
import { duration, gpus, shortModel } from "./format";
import { get } from "./live";
import { Command, ErrorParts, Fact, Section, useSeconds } from "./parts";
import { Plots } from "./plots";
import { type PoolAnswer, usePool } from "./poolread";
import { Reservations } from "./reservations";
import { T } from "./texts";

interface Pool {
  status: PoolDocument;
  claims: ClaimListDocument;
  tenants: TenantListDocument;
  reservations: ReservationListDocument;
}

/** Answers of one read of the store, which the daemon shares. */
async function readPool(): Promise<Pool> {
  const [status, claims, tenants, reservations] = await Promise.all([
    get<PoolDocument>("/1.0/pool"), get<ClaimListDocument>("/1.0/pool/claims"), get<TenantListDocument>("/1.0/pool/tenants"),
    get<ReservationListDocument>("/1.0/pool/reservations"),
  ]);
  return { status, claims, tenants, reservations };
}

export function PoolView() {
  const answer = usePool(readPool);
  return (
    <>
      <div class="panel-head"><h1>{T.pool.title}</h1></div>
      <Outage answer={answer} />
      {answer.document && <Content pool={answer.document} />}
    </>
  );
}

/** What could not be read, and how old what is shown is then. */
export function Outage({ answer }: { answer: PoolAnswer<unknown> }) {
  if (answer.refusal) {
    return (
      <>
        <ErrorParts refusal={answer.refusal} title={T.pool.refused} />
        {answer.document !== null && <Age asOf={answer.asOf} />}
      </>
    );
  }
  return answer.document === null ? <p role="status">{T.pool.reading}</p> : null;
}

function Age({ asOf }: { asOf: number }) {
  const now = useSeconds();
  return <p class="note warn">{T.pool.age(duration(Math.max(0, Math.round((now - asOf) / 1000))))}</p>;
}

function Content({ pool: { status, claims, tenants, reservations } }: { pool: Pool }) {
  const { granted, waiting, ending, idle } = status.claims;
  return (
    <>
      <p class="pool-totals">
        {T.pool.totals(gpus(status.gpu_free_milli), status.gpus, gpus(status.gpu_unusable_milli))} {T.pool.claimCounts(T.pool.counts(granted, waiting, ending, idle))}{" "}
        {T.pool.leader(status.leader)}
      </p>
      <Command text={lineThere("pool", "status")} />
      <Hosts status={status} claims={claims.claims} />
      <Queue claims={claims.claims} />
      <Claims claims={claims.claims} />
      <Reservations reservations={reservations.reservations} />
      <Tenants tenants={tenants.tenants} />
      <Plots subject="pool" name="true" />
      <Section title={T.facts}>
        <dl class="facts">
          <Fact name={T.pool.store}>{status.pool.store}</Fact>
          <Fact name={T.pool.server}>{status.pool.server ?? T.pool.nothingServes}</Fact>
        </dl>
      </Section>
    </>
  );
}

/** More hosts than this are filtered by name, and so many are drawn. */
const MANY_HOSTS = 60;

function Hosts({ status, claims }: { status: PoolDocument; claims: readonly ClaimDocument[] }) {
  const [filter, setFilter] = useState("");
  const found = status.hosts.filter((host) => host.name.includes(filter.toLowerCase()));
  const shown = found.slice(0, MANY_HOSTS);
  const byHost = useMemo(() => Map.groupBy(claims, (claim) => claim.lease?.host), [claims]);
  return (
    <section aria-label={T.pool.hosts}>
      <div class="panel-head"><h2>{T.pool.hosts}</h2><span class="muted">{T.shown(shown.length, status.hosts.length)}</span></div>
      {status.hosts.length === 0 && <p>{T.pool.noHosts}</p>}
      {status.hosts.length > MANY_HOSTS && <Find text={T.pool.filterHosts} value={filter} onChange={setFilter} />}
      <div class="cards pool-hosts">{shown.map((host) => <Host key={host.name} host={host} status={status} claims={byHost.get(host.name) ?? []} />)}</div>
      {shown.length < found.length && <p class="muted">{T.pool.more(shown.length, found.length)}</p>}
    </section>
  );
}

const STATE_CLASS: Record<string, string> = { ready: "", suspect: " warn" };

function Host({ host, status, claims }: { host: PoolHostDocument; status: PoolDocument; claims: readonly ClaimDocument[] }) {
  const free = host.gpus.reduce((sum, gpu) => sum + gpu.free_milli, 0);
  const models = [...new Set(host.gpus.map((gpu) => shortModel(gpu.model)))].join(", ");
  return (
    <article class="card" aria-label={T.pool.host(host.name)} data-host={host.name}>
      <div class="card-head">
        <h3>{host.name}</h3>
        <span>{T.pool.freeOf(gpus(free), host.gpus.length)}</span>
        <span class="muted">{models}</span>
        <span class="badges">
          {host.name === status.pool.host && <span class="badge">{T.pool.thisHost}</span>}
          {host.name === status.leader && <span class="badge">{T.pool.leads}</span>}
          <span class={`badge${STATE_CLASS[host.state] ?? " bad"}`} title={T.pool.states[host.state]}>{host.state}</span>
        </span>
      </div>
      <div class="pool-gpus">
        {host.gpus.map((gpu) => <PoolGpu key={gpu.index} host={host.name} gpu={gpu} claims={claims.filter((claim) => claim.lease?.gpu_indices.includes(gpu.index))} />)}
      </div>
    </article>
  );
}

const WHOLE = 1000;

/** A GPU as areas: who has what of it, and what is free. */
function PoolGpu({ host, gpu, claims }: { host: string; gpu: PoolGpuDocument; claims: readonly ClaimDocument[] }) {
  let from = 0;
  const areas = claims.map((claim) => {
    const milli = claim.lease?.gpu_milli ?? 0;
    const detail = `${T.pool.byTenant(gpus(milli), claim.tenant)}, ${describeUser(claim)}`;
    const area = <Area key={claim.name} from={from / WHOLE} width={milli / WHOLE} kind={kindOf(claim)} title={claim.name} detail={detail} />;
    from += milli;
    return area;
  });
  // it takes nothing new, or a lease's claim is about to go
  const rest = WHOLE - from - gpu.free_milli;
  const said = claims.map((claim) => T.pool.part(claim.name, gpus(claim.lease?.gpu_milli ?? 0), describeUser(claim)));
  const free = T.pool.free(gpus(gpu.free_milli));
  const reserved = gpu.reserved.map(T.pool.reserved);
  return (
    <div>
      <div class="small">{T.gpu(gpu.index)}: {free}</div>
      {reserved.map((text) => <div key={text} class="small muted">{text}</div>)}
      <Frame label={[T.pool.board(T.gpu(gpu.index), host), ...said, ...reserved, `${gpu.closed ? T.pool.closedFor(gpu.closed) : free}.`].join(" ")}>
        {areas}
        {rest > 0 && <Rest from={from / WHOLE} width={rest / WHOLE} closed={gpu.closed} />}
        {gpu.free_milli > 0 && <Area from={(WHOLE - gpu.free_milli) / WHOLE} width={gpu.free_milli / WHOLE} kind="free" title={T.free} detail={gpus(gpu.free_milli)} />}
      </Frame>
    </div>
  );
}

function Rest({ from, width, closed }: { from: number; width: number; closed: string | null }) {
  if (closed === null) return <Area from={from} width={width} kind="idle" title={T.pool.otherLease} />;
  return <Area from={from} width={width} kind="going" title={T.pool.closed} detail={closed} />;
}

function kindOf(claim: ClaimDocument) {
  if (claim.state === "ending") return "going";
  if (!claim.used_by) return "idle";
  return claim.used_by.kind === "run" ? "run" : "vm";
}
