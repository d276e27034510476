/** A change: the plan first, then consent, then its progress and its end. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Action } from "./actions";
import type { ErrorPartsDocument, OperationDocument, OperationShowDocument } from "./api";
import { isOver, refresh, way } from "./live";
import { Button, Command, Dialog, ErrorParts, useBarrier } from "./parts";
import { type Plan, readPlan } from "./plan";
import { announce, closeDialog, useStore } from "./store";
import { T } from "./texts";
import { Refusal, SessionEnded, Unreachable, ask } from "./transport";

type Phase =
  | { name: "planning" }
  | { name: "planned"; plan: Plan; etag: string | null }
  | { name: "refused"; refusal: Refusal; title: string }
  | { name: "running"; id: string }
  | { name: "ended"; status: OperationDocument["status"]; refusal: Refusal | null };

/** Seconds for which the daemon holds the answer back while the operation runs. */
const WAIT_S = 20;
const RETRY_MS = 1000;

async function plan(action: Action): Promise<Phase> {
  // read before the plan: what changes between the two is noticed, too
  const etag = action.subject ? (await ask(way, "GET", action.subject)).etag : null;
  const { document } = await ask(way, "POST", action.path, { ...action.body, dry_run: true }, { Prefer: `wait=${WAIT_S}` });
  const { operation } = document as Partial<OperationShowDocument>;
  const isOperation = typeof operation === "object";
  if (isOperation && operation.error) return { name: "refused", refusal: asRefusal(operation.error), title: T.refusedTitle };
  return { name: "planned", plan: readPlan(isOperation ? operation.result : document), etag };
}

async function begin(action: Action, { plan, etag }: { plan: Plan; etag: string | null }): Promise<Phase> {
  // consent is to what was shown: what is in use only since then is refused
  const held = { ...(plan.expected && { expected: plan.expected }), ...(plan.concerns.length > 0 && { confirmed: true }) };
  const headers: Record<string, string> = etag ? { "If-Match": etag } : {};
  try {
    const { document } = await ask<OperationShowDocument>(way, "POST", action.path, { ...action.body, ...held }, headers);
    return document.operation ? { name: "running", id: document.operation.id } : { name: "ended", status: "succeeded", refusal: null };
  } catch (error) {
    if (didNotBegin(error)) throw error;
    // the request may have arrived, and only its answer be lost
    refresh();
    return { name: "refused", refusal: asRefusal({ error: T.noAnswer }), title: T.unreachable };
  }
}

const didNotBegin = (error: unknown): boolean =>
  error instanceof Refusal || error instanceof SessionEnded || (error instanceof Unreachable && !error.mayHaveBegun);

async function awaitEnd(id: string, isOpen: () => boolean): Promise<Phase> {
  while (isOpen()) {
    try {
      const { document } = await ask<OperationShowDocument>(way, "GET", `/1.0/operations/${id}/wait?timeout_s=${WAIT_S}`);
      if (!isOver(document.operation)) continue;
      const { status, error } = document.operation;
      return { name: "ended", status, refusal: error ? asRefusal(error) : null };
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      // the daemon restarts: it still knows its operations, or that one was interrupted
      announce(T.unreachable);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
  return { name: "running", id };
}

function asRefusal(error: Readonly<Record<string, unknown>>): Refusal {
  const parts = { id: "", error: "", cause: null, why: null, held_by: [], try: null, exit_code: 1, ...error } as ErrorPartsDocument;
  return new Refusal(parts, 0);
}

function asProblem(error: unknown): Refusal {
  return error instanceof Refusal ? error : asRefusal({ error: error instanceof Error ? error.message : String(error) });
}

export function ActionDialog({ action }: { action: Action }) {
  return (
    <Dialog title={action.title} onClose={closeDialog}>
      <Flow action={action} />
    </Dialog>
  );
}

/** The change inside a dialog. `onBack` returns to what was chosen. */
export function Flow({ action, onBack }: { action: Action; onBack?: () => void }) {
  const [phase, setPhase] = useState<Phase>({ name: "planning" });
  const box = useRef<HTMLDivElement>(null);
  const open = useRef(true);
  const run = async (work: () => Promise<Phase>, title: string) => {
    const next = await work().catch((error: unknown): Phase => ({ name: "refused", refusal: asProblem(error), title }));
    if (!open.current) return;
    setPhase(next);
    // buttons that had the focus are gone
    box.current?.focus();
    if (next.name === "running") await run(() => awaitEnd(next.id, () => open.current), T.failed);
    if (next.name === "ended") refresh();
  };
  const start = () => {
    setPhase({ name: "planning" });
    void run(() => plan(action), T.refusedTitle);
  };
  useEffect(() => {
    open.current = true;
    start();
    return () => void (open.current = false);
  }, []);
  return (
    <div class="flow" ref={box} tabIndex={-1} data-phase={phase.name}>
      {phase.name === "planning" && <p role="status">{T.planning}</p>}
      {phase.name === "planned" && (
        <Planned plan={phase.plan} warning={action.warning} onBack={onBack} onDo={() => void run(() => begin(action, phase), T.refusedTitle)} />
      )}
      {phase.name === "refused" && (
        <>
          <ErrorParts refusal={phase.refusal} title={phase.title} />
          <div class="buttons">
            {onBack && <Button onClick={onBack}>{T.back}</Button>}
            <Button onClick={start}>{T.again}</Button>
            <Button onClick={closeDialog}>{T.close}</Button>
          </div>
        </>
      )}
      {phase.name === "running" && <Progress id={phase.id} />}
      {phase.name === "ended" && <Ended status={phase.status} refusal={phase.refusal} />}
      <h3>{T.command}</h3>
      <Command text={action.command} />
    </div>
  );
}

interface PlannedProps {
  plan: Plan;
  warning: string | undefined;
  onBack?: (() => void) | undefined;
  onDo: () => void;
}

function Planned({ plan, warning, onBack, onDo }: PlannedProps) {
  const [begun, setBegun] = useState(false);
  const barrier = useBarrier();
  const isHard = plan.destructive || plan.disruptive || plan.concerns.length > 0 || warning !== undefined;
  return (
    <>
      {warning && <p class="note warn">{warning}</p>}
      <PlanView plan={plan} />
      {barrier && <p class="note">{barrier}</p>}
      <div class="buttons">
        {onBack && <Button onClick={onBack}>{T.back}</Button>}
        <Button onClick={closeDialog}>{T.cancel}</Button>
        {plan.lines.length > 0 && (
          <button
            type="button"
            class={`button ${isHard ? "danger" : "main"}`}
            disabled={barrier !== null || begun}
            onClick={() => {
              setBegun(true);
              onDo();
            }}
          >
            {T.doIt}
          </button>
        )}
      </div>
    </>
  );
}

export function PlanView({ plan }: { plan: Plan }) {
  return (
    <>
      <h3>{T.plan}</h3>
      {plan.lines.length === 0 && <p>{T.planEmpty}</p>}
      <ol class="steps">
        {plan.lines.map((line, index) => (
          <li key={index} class={line.record ? "record" : undefined}>
            <span class="sign">{line.sign}</span>
            <span>{line.text}</span>
          </li>
        ))}
      </ol>
      {plan.destructive && <p class="note warn">{plan.lines.some((line) => line.sign === "-") ? T.destructive : T.turnsMigOff}</p>}
      {plan.disruptive && <p class="note warn">{T.disruptive}</p>}
      {plan.concerns.map((concern) => <p key={concern} class="note warn">{concern}</p>)}
      {plan.notes.length > 0 && (
        <>
          <h3>{T.reasons}</h3>
          <ul class="reasons">{plan.notes.map((note) => <li key={note}>{note}</li>)}</ul>
        </>
      )}
    </>
  );
}

export function cancelOperation(id: string): void {
  ask(way, "DELETE", `/1.0/operations/${id}`).catch((error: unknown) => announce(asProblem(error).message));
}

function Progress({ id }: { id: string }) {
  const operation = useStore((state) => state.operations.find((other) => other.id === id));
  return (
    <>
      <h3><span role="status">{T.running}</span></h3>
      <ol class="steps" aria-live="polite">
        {(operation?.progress ?? []).map((step) => (
          <li key={step.time_s}>
            <span class="sign">{step.word === "do" ? "✓" : "↶"}</span>
            <span>{step.description}</span>
          </li>
        ))}
      </ol>
      <div class="buttons">
        <Button onClick={() => cancelOperation(id)}>{T.cancelOperation}</Button>
        <Button onClick={closeDialog}>{T.close}</Button>
      </div>
    </>
  );
}

function Ended({ status, refusal }: { status: OperationDocument["status"]; refusal: Refusal | null }) {
  const good = status === "succeeded" ? T.done : status === "cancelled" ? T.cancelled : null;
  return (
    <>
      {good && <p class="note good" role="status">{good}</p>}
      {!good && refusal && <ErrorParts refusal={refusal} title={T.failed} />}
      {!good && !refusal && <p class="note warn" role="alert">{`${T.failed}: ${status}`}</p>}
      <div class="buttons">
        <Button kind="main" onClick={closeDialog}>{T.close}</Button>
      </div>
    </>
  );
}
