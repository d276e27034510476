/** What a dry run answers, as lines: the documents differ, a plan is always steps with reasons. */

import type {
  ActionDocument, LayoutPlanDocument, LayoutStepDocument, PlacementDocument, PlanDocument, StepDocument,
} from "./api";
import { place } from "./format";
import { T } from "./texts";

export interface PlanLine {
  sign: "+" | "-" | "~";
  text: string;
  /** Changes only what vgpumgr remembers. */
  record: boolean;
}

export interface Plan {
  lines: readonly PlanLine[];
  notes: readonly string[];
  destructive: boolean;
  disruptive: boolean;
  /** What the command line asks about before it goes on. */
  concerns: readonly string[];
  /** The digest that the change is held to. */
  expected: string | null;
}

const ADDING = new Set(["create", "start", "attach", "enable", "record", "note", "define", "adopt", "hold"]);
const REMOVING = new Set(["destroy", "stop", "detach", "disable", "forget", "remove", "delete", "undefine", "release"]);
const RECORDS = /^(attachment\.|domain\.note|layout\.remember|vf\.remember)/;

function sign(kind: string): PlanLine["sign"] {
  const verb = kind.slice(kind.lastIndexOf(".") + 1);
  return REMOVING.has(verb) ? "-" : ADDING.has(verb) ? "+" : "~";
}

const readStep = (step: StepDocument): PlanLine => ({ sign: sign(step.kind), text: step.description, record: RECORDS.test(step.kind) });

function readLayoutStep(step: LayoutStepDocument): PlanLine {
  if (step.kind.startsWith("mig.mode.")) return { sign: "~", text: T.ofGpu(step.gpu_index, T.migMode(step.kind.endsWith("enable"))), record: false };
  const what = nameAt(step.profile ?? step.vgpu_type ?? step.kind, step.placement);
  const whole = step.parent_profile ? T.inside(what, nameAt(step.parent_profile, step.parent_placement)) : what;
  const text = step.disrupts.length ? T.takenFrom(whole, step.disrupts.join(", ")) : whole;
  // compute instances come and go with the instance around them
  return { sign: sign(step.kind), text: T.ofGpu(step.gpu_index, text), record: step.kind.startsWith("mig.ci.") };
}

const nameAt = (name: string, at: PlacementDocument | null): string => (at ? T.atPlace(name, place(at)) : name);

interface Answer {
  plan?: PlanDocument;
  steps?: readonly (StepDocument | LayoutStepDocument)[];
  actions?: readonly ActionDocument[];
  notes?: readonly string[];
  used_by?: readonly string[];
  done?: readonly string[];
  problems?: readonly string[];
  concerns?: readonly string[];
}

const isLayout = (answer: unknown): answer is LayoutPlanDocument => typeof (answer as LayoutPlanDocument).digest === "string";

export function readPlan(document: unknown): Plan {
  const none = { destructive: false, disruptive: false, concerns: [], expected: null };
  if (isLayout(document)) {
    const { steps, explanations, notes, destructive, disruptive, digest } = document;
    const reasons = [...explanations.map((row) => row.text), ...notes];
    return { ...none, lines: steps.map(readLayoutStep), notes: reasons, destructive, disruptive, expected: digest };
  }
  const answer = document as Answer;
  const steps = answer.plan?.steps ?? (answer.steps as readonly StepDocument[] | undefined) ?? [];
  const actions = (answer.actions ?? []).map((action): PlanLine => ({ sign: "~", text: `${action.subject}: ${action.text}`, record: false }));
  const done = (answer.done ?? []).map((text): PlanLine => ({ sign: "~", text, record: false }));
  return {
    ...none,
    concerns: answer.concerns ?? [],
    lines: [...steps.map(readStep), ...actions, ...done],
    notes: [...(answer.plan?.notes ?? []), ...(answer.notes ?? []), ...(answer.problems ?? []), ...(answer.used_by ?? [])],
  };
}
