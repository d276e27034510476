/** Drift, operations, events and checks. */

import { useEffect, useState } from "preact/hooks";
import { recover, restore } from "./actions";
import type { AuditListDocument, CheckDocument, InterruptedDocument, OperationDocument } from "./api";
import { aim, line } from "./commands";
import { cancelOperation } from "./flow";
import { clock, duration, moment } from "./format";
import { get, isOver, readChecks } from "./live";
import { ActButton, Button, Command, ErrorParts, Section, Table } from "./parts";
import { type HostEvent, openDialog, useStore } from "./store";
import { T } from "./texts";
import { Refusal } from "./transport";

const NO_INTERRUPTED: readonly InterruptedDocument[] = [];

export function Drift() {
  const status = useStore((state) => state.status);
  const [release, setRelease] = useState(false);
  const [readd, setReadd] = useState(false);
  const drift = status?.drift ?? [];
  const interrupted = status?.interrupted ?? NO_INTERRUPTED;
  const kinds = new Set(drift.map((row) => row.kind));
  return (
    <>
      <div class="panel-head">
        <h1>{T.drift}</h1>
        <span class="head-actions">
          <ActButton kind="main" onClick={() => openDialog({ kind: "act", action: recover(release, readd) })}>{T.repair}</ActButton>
          <ActButton onClick={() => openDialog({ kind: "act", action: restore() })}>{T.restoreButton}</ActButton>
        </span>
      </div>
      {kinds.has("vm-gone") && <Option text={T.release} value={release} onChange={setRelease} />}
      {kinds.has("device-gone") && <Option text={T.readd} value={readd} onChange={setReadd} />}
      <p class={drift.length ? "note warn" : "note good"} role="status">{drift.length ? T.driftSome(drift.length) : T.driftNone}</p>
      {drift.length > 0 && (
        <Table label={T.drift} heads={[T.subject, T.differs, T.kind, T.tryLabel]}>
          {drift.map((row, index) => (
            <tr key={index}>
              <td>{row.subject}</td>
              <td>{row.text}</td>
              <td class="mono">{row.kind}</td>
              <td>{row.hint && <Command text={aim(row.hint)} />}</td>
            </tr>
          ))}
        </Table>
      )}
      {interrupted.length > 0 && (
        <Section title={T.interrupted}>
          <ul>{interrupted.map((row) => <li key={row.op}>{`${row.operation} ${row.subject}`}</li>)}</ul>
        </Section>
      )}
      <Messages title={T.problems} rows={status?.problems ?? []} />
      <Messages title={T.warnings} rows={status?.warnings ?? []} />
    </>
  );
}

function Option({ text, value, onChange }: { text: string; value: boolean; onChange: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
      {text}
    </label>
  );
}

function Messages({ title, rows }: { title: string; rows: readonly string[] }) {
  if (!rows.length) return null;
  return <Section title={title}><ul>{rows.map((row) => <li key={row}>{row}</li>)}</ul></Section>;
}

export function Operations() {
  const operations = useStore((state) => state.operations);
  return (
    <>
      <div class="panel-head"><h1>{T.operations}</h1></div>
      {operations.length === 0 ? <p>{T.noOperations}</p> : (
        <Table label={T.operations} heads={[T.operation, T.subject, T.statusWord, T.started, T.took, T.step, T.actions]}>
          {[...operations].reverse().map((operation) => <OperationRow key={operation.id} operation={operation} />)}
        </Table>
      )}
    </>
  );
}

function OperationRow({ operation }: { operation: OperationDocument }) {
  const last = operation.progress[operation.progress.length - 1];
  // a VM is named by its UUID where its name could not stand in an address
  const subject = useStore((state) => state.vms.find((vm) => vm.uuid === operation.subject)?.name ?? operation.subject);
  const error = operation.error as { error?: string; id?: string } | null;
  return (
    <tr>
      <td>{operation.operation}</td>
      <td>{subject ?? "-"}</td>
      <td><span class={`badge ${operation.status === "failed" || operation.status === "interrupted" ? "bad" : ""}`}>{operation.status}</span></td>
      <td class="mono">{moment(operation.created_s)}</td>
      <td>{duration(Math.max(0, operation.updated_s - operation.created_s))}</td>
      <td>{error?.error ?? last?.description ?? "-"}</td>
      <td>
        {!isOver(operation) && operation.cancellable && (
          <ActButton label={`${T.cancelOperation} ${operation.id}`} onClick={() => cancelOperation(operation.id)}>{T.cancelOperation}</ActButton>
        )}
      </td>
    </tr>
  );
}

/** Names of VMs by their UUIDs, which requests carry. */
function useNames(): ReadonlyMap<unknown, string> {
  const vms = useStore((state) => state.vms);
  return new Map(vms.map((vm) => [vm.uuid, vm.name]));
}

const KNOWN = new Set(["id", "type", "time_s"]);

/** An event's own keys in a line; a VM has its name. */
function describe(event: HostEvent, names: ReadonlyMap<unknown, string>): string {
  const parts: string[] = [];
  for (const [key, value] of Object.entries(event)) {
    if (KNOWN.has(key) || value === null || (Array.isArray(value) && value.length === 0)) continue;
    const step = key === "step" ? (value as { description?: string }).description : undefined;
    parts.push(step ?? `${key} ${typeof value === "object" ? JSON.stringify(value) : (names.get(value) ?? String(value))}`);
  }
  return parts.join(", ");
}

export function Events() {
  const events = useStore((state) => state.events);
  const names = useNames();
  return (
    <>
      <div class="panel-head"><h1>{T.events}</h1></div>
      <Command text={line("events")} />
      {events.length === 0 ? <p>{T.noEvents}</p> : (
        <Table label={T.events} heads={[T.time, T.type, T.what]}>
          {events.map((event) => (
            <tr key={event.id}>
              <td class="mono">{clock(event.time_s)}</td>
              <td>{event.type}</td>
              <td>{describe(event, names)}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}

interface AuditEntry {
  n?: number;
  time_s?: number;
  event?: string;
  operation?: string;
  outcome?: string;
  uid?: number | null;
  /** Of a caller over the network. */
  token?: string | null;
  id?: string;
  params?: Readonly<Record<string, unknown>>;
  [key: string]: unknown;
}

/** The end of the audit log, the newest first. */
export function Audit() {
  const [answer, setAnswer] = useState<readonly AuditEntry[] | Refusal | null>(null);
  const ended = useStore((state) => state.operations.filter(isOver).length);
  const names = useNames();
  useEffect(() => {
    get<AuditListDocument>("/1.0/audit").then(
      (document) => setAnswer([...(document.entries as readonly AuditEntry[])].reverse()),
      (error: unknown) => error instanceof Refusal && setAnswer(error),
    );
  }, [ended]);
  return (
    <>
      <div class="panel-head"><h1>{T.audit}</h1></div>
      <Command text={line("audit")} />
      {answer instanceof Refusal && <ErrorParts refusal={answer} title={T.refusedTitle} />}
      {Array.isArray(answer) && (
        <Table label={T.audit} heads={[T.auditLine, T.time, T.type, T.user, T.what]}>
          {answer.map((entry: AuditEntry) => (
            <tr key={entry.n}>
              <td class="mono">{entry.n}</td>
              <td class="mono">{entry.time_s === undefined ? "-" : moment(entry.time_s)}</td>
              <td>{entry.event}</td>
              <td>{entry.uid ?? entry.token ?? "-"}</td>
              <td>{[entry.operation, entry.outcome, entry.id, entry.params && JSON.stringify(entry.params, (_, value: unknown) => names.get(value) ?? value)].filter(Boolean).join(" ")}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}

const ORDER = ["problem", "warning", "ok", "skipped"];

export function Checks() {
  const checks = useStore((state) => state.checks);
  const [only, setOnly] = useState(true);
  const [running, setRunning] = useState(false);
  const read = () => {
    setRunning(true);
    void readChecks().catch(() => undefined).then(() => setRunning(false));
  };
  useEffect(read, []);
  const sorted = [...(checks ?? [])].sort((one, other) => ORDER.indexOf(one.result) - ORDER.indexOf(other.result));
  const shown = only ? sorted.filter((check) => check.result === "problem" || check.result === "warning") : sorted;
  return (
    <>
      <div class="panel-head">
        <h1>{T.checks}</h1>
        <span class="head-actions"><Button onClick={read}>{T.runChecks}</Button></span>
      </div>
      <Option text={T.onlyFindings} value={only} onChange={setOnly} />
      <p role="status" class="muted">{running ? T.checking : T.shown(shown.length, sorted.length)}</p>
      <Command text={line("doctor")} />
      <ul class="checks">{shown.map((check) => <Check key={check.id} check={check} />)}</ul>
    </>
  );
}

function Check({ check }: { check: CheckDocument }) {
  return (
    <li class={`finding ${check.result}`}>
      <span class={`badge ${check.result === "problem" ? "bad" : check.result === "warning" ? "warn" : ""}`}>{T.resultWords[check.result]}</span>
      <div>
        <div>{check.title}</div>
        <div class="muted">{check.text}</div>
        {check.evidence.length > 0 && <ul class="mono small">{check.evidence.map((row) => <li key={row}>{row}</li>)}</ul>}
        {check.hint && <Command text={aim(check.hint)} />}
        {check.fixable && <p>{T.fixCommand(line("doctor", "--fix"))}</p>}
      </div>
    </li>
  );
}
