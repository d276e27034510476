/** Claims of the pool: those that wait, those that have something, and the tenants whose they are. */

import { useState } from "preact/hooks";
import type { ClaimDocument, TenantDocument } from "./api";
import { lineThere } from "./commands";
import { bytes, gpus } from "./format";
import { Command, Section, Table } from "./parts";
import { useStore } from "./store";
import { T } from "./texts";

/** So many rows of a table are drawn. */
export const MANY_ROWS = 200;

export const describeUser = ({ used_by: use }: ClaimDocument): string => (use ? T.pool.user(use.kind, use.name) : T.pool.unused);

export function describeSize({ gpus: number, memory_bytes: memory, compute_percent: time }: Pick<ClaimDocument, "gpus" | "memory_bytes" | "compute_percent">): string {
  return memory === null ? T.pool.whole(number) : T.pool.share(number, bytes(memory), String(time ?? 0));
}

const ClaimLink = ({ name }: { name: string }) => <a href={`#/pool/${encodeURIComponent(name)}`}>{name}</a>;

export function Find({ text, value, onChange }: { text: string; value: string; onChange: (value: string) => void }) {
  return <input class="pool-find" type="search" placeholder={T.filter} aria-label={text} value={value} onInput={(event) => onChange(event.currentTarget.value)} />;
}

export function Queue({ claims }: { claims: readonly ClaimDocument[] }) {
  const waiting = claims.filter((claim) => claim.place !== null);
  const shown = waiting.slice(0, MANY_ROWS);
  return (
    <Section title={T.pool.queue} aside={<span class="muted">{T.shown(shown.length, waiting.length)}</span>}>
      {waiting.length === 0 ? <p>{T.pool.noQueue}</p> : (
        <Table label={T.pool.queue} heads={[T.pool.place, T.pool.claim, T.pool.tenant, T.pool.class, T.pool.size, T.pool.reason]}>
          {shown.map((claim) => (
            <tr key={claim.name} data-claim={claim.name}>
              <td>{claim.place}</td>
              <td><ClaimLink name={claim.name} /></td>
              <td>{claim.tenant ?? "-"}</td>
              <td>{claim.class}</td>
              <td>{describeSize(claim)}</td>
              <td class="reason">{claim.why}</td>
            </tr>
          ))}
        </Table>
      )}
      <Command text={lineThere("claim", "list", "--filter", "state=waiting")} />
    </Section>
  );
}

const matches = (claim: ClaimDocument, text: string): boolean =>
  [claim.name, claim.tenant ?? "", claim.lease?.host ?? ""].some((word) => word.includes(text.toLowerCase()));

export function Claims({ claims }: { claims: readonly ClaimDocument[] }) {
  const [filter, setFilter] = useState("");
  const leased = claims.filter((claim) => claim.place === null);
  const found = leased.filter((claim) => matches(claim, filter));
  const shown = found.slice(0, MANY_ROWS);
  return (
    <Section title={T.pool.claims} aside={<span class="muted">{T.shown(shown.length, leased.length)}</span>}>
      {leased.length > 8 && <Find text={T.pool.filterClaims} value={filter} onChange={setFilter} />}
      {leased.length === 0 ? <p>{T.pool.noClaims}</p> : (
        <Table label={T.pool.claims} heads={[T.pool.claim, T.state, T.pool.tenant, T.pool.class, T.pool.size, T.pool.on, T.pool.usedBy, T.pool.reason]}>
          {shown.map((claim) => <ClaimRow key={claim.name} claim={claim} />)}
        </Table>
      )}
      <Command text={lineThere("claim", "list")} />
    </Section>
  );
}

function ClaimRow({ claim }: { claim: ClaimDocument }) {
  const { lease, used_by: use } = claim;
  // a VM of this host has a view of its own
  const vm = useStore((state) => (use?.kind === "vm" ? state.vms.find((other) => other.uuid === use.uuid) : undefined));
  return (
    <tr data-claim={claim.name}>
      <td><ClaimLink name={claim.name} /></td>
      <td>{claim.state}</td>
      <td>{claim.tenant ?? "-"}</td>
      <td>{claim.class}</td>
      <td>{describeSize(claim)}</td>
      <td>{lease ? `${lease.host}:${lease.gpu_indices.join(",")}` : "-"}</td>
      <td>{vm ? <a href={`#/vm/${vm.uuid}`}>{vm.name}</a> : use ? `${use.kind} ${use.name}` : "-"}</td>
      <td class={claim.why ? "reason" : undefined}>{claim.why ?? "-"}</td>
    </tr>
  );
}

export function Tenants({ tenants }: { tenants: readonly TenantDocument[] }) {
  return (
    <Section title={T.pool.tenants}>
      {tenants.length === 0 ? <p>{T.pool.noTenants}</p> : (
        <Table label={T.pool.tenants} heads={[T.pool.tenant, T.pool.quota, T.priority, T.pool.weight, T.pool.claimsOf]}>
          {tenants.slice(0, MANY_ROWS).map((tenant) => (
            <tr key={tenant.name} data-tenant={tenant.name}>
              <td>{tenant.name}</td>
              <td><Quota tenant={tenant} /></td>
              <td>{tenant.priority}</td>
              <td>{tenant.weight}</td>
              <td>{T.pool.counts(tenant.claims.granted, tenant.claims.waiting, tenant.claims.ending, tenant.claims.idle)}</td>
            </tr>
          ))}
        </Table>
      )}
      <Command text={lineThere("tenant", "list")} />
    </Section>
  );
}

function Quota({ tenant: { name, used_milli: used, quota_milli: quota } }: { tenant: TenantDocument }) {
  if (quota === null) return <>{gpus(used)} ({T.pool.noQuota})</>;
  return (
    <div class="quota">
      <meter min={0} max={quota || 1} value={used} aria-label={T.pool.quotaBar(name, gpus(used), gpus(quota))} />
      {T.pool.quotaOf(gpus(used), gpus(quota))}
    </div>
  );
}
