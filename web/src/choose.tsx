/** Choosing what to attach, and why a profile does not fit. */

import { useEffect, useState } from "preact/hooks";
import { type Action, attach } from "./actions";
import type { ObstacleDocument, WhyDocument } from "./api";
import { Flow } from "./flow";
import { place } from "./format";
import { line } from "./commands";
import { get } from "./live";
import { Button, Command, Dialog, ErrorParts } from "./parts";
import { closeDialog, getState, openDialog, useStore } from "./store";
import { T } from "./texts";
import { Refusal } from "./transport";

interface AttachProps {
  vm?: string | undefined;
  profile?: string | undefined;
  gpu?: string | undefined;
}

export function AttachDialog(props: AttachProps) {
  const vms = useStore((state) => state.vms);
  const gpus = useStore((state) => state.gpus);
  const others = useStore((state) => state.others);
  const [uuid, setUuid] = useState(props.vm ?? "");
  const [profile, setProfile] = useState(props.profile ?? "");
  const [gpu, setGpu] = useState(props.gpu ?? "");
  const [add, setAdd] = useState(false);
  const vm = vms.find((other) => other.uuid === uuid);
  const make = (): Action | null =>
    vm && profile.trim()
      ? attach({ vm, profile: profile.trim(), gpu: gpus.find((other) => other.uuid === gpu) ?? null, address: gpu || null, add: add && vm.attachments.length > 0 })
      : null;
  // what was dragged onto a VM is planned at once
  const [action, setAction] = useState<Action | null>(() => (props.vm && props.profile && vm?.attachments.length === 0 ? make() : null));
  const ready = make();
  if (action) {
    return (
      <Dialog title={action.title} onClose={closeDialog}>
        <Flow action={action} onBack={() => setAction(null)} />
      </Dialog>
    );
  }
  const submit = (event: Event) => {
    event.preventDefault();
    if (ready) setAction(ready);
  };
  return (
    <Dialog title={T.attachTitle} onClose={closeDialog}>
      <form onSubmit={submit} class="form">
        <label>
          {T.vm}
          <select value={uuid} required onChange={(event) => setUuid(event.currentTarget.value)} name="vm">
            <option value="">{T.chooseVm}</option>
            {vms.map((other) => <option key={other.uuid} value={other.uuid}>{other.name}</option>)}
          </select>
        </label>
        <label>
          {T.profile}
          <input
            name="profile" list="profiles" required autocomplete="off" value={profile} aria-describedby="profile-hint"
            onInput={(event) => setProfile(event.currentTarget.value)}
          />
          <span class="muted small" id="profile-hint">{T.profileHint}</span>
          <datalist id="profiles">{listProfiles(gpu).map((name) => <option key={name} value={name} />)}</datalist>
        </label>
        <label>
          {T.gpuField}
          <select value={gpu} onChange={(event) => setGpu(event.currentTarget.value)} name="gpu">
            <option value="">{T.anyGpu}</option>
            {gpus.map((other) => <option key={other.uuid} value={other.uuid}>{`${T.gpu(other.index)} (${other.pci})`}</option>)}
            {others.map((other) => <option key={other.pci} value={other.pci}>{other.pci}</option>)}
          </select>
        </label>
        {vm && vm.attachments.length > 0 && (
          <label class="check">
            <input type="checkbox" name="add" checked={add} onChange={(event) => setAdd(event.currentTarget.checked)} />
            {`${T.add} (${vm.attachments.map((other) => other.profile).join(", ")})`}
          </label>
        )}
        <div class="buttons">
          <Button onClick={closeDialog}>{T.cancel}</Button>
          <button type="submit" class="button main">{T.showPlan}</button>
        </div>
      </form>
      {ready && <><h3>{T.command}</h3><Command text={ready.command} /></>}
    </Dialog>
  );
}

/** Names that the profile's field offers, of one GPU or of all. */
function listProfiles(gpu: string): string[] {
  const { profiles, types } = getState();
  const mig = gpu ? (profiles.get(gpu) ?? []) : [...profiles.values()].flat();
  const vgpu = gpu ? (types.get(gpu) ?? []) : [...types.values()].flat();
  return [...new Set([...mig.map((row) => row.name), ...vgpu.map((type) => type.name), "share:8GiB,30%", "share:1/4", "passthrough", "vf"])];
}

interface WhyProps {
  profile: string;
  gpu: string;
  name: string;
}

export function WhyDialog({ profile, gpu, name }: WhyProps) {
  const [answer, setAnswer] = useState<WhyDocument | Refusal | null>(null);
  useEffect(() => {
    const query = new URLSearchParams({ profile, selector: gpu });
    get<WhyDocument>(`/1.0/mig/why?${query}`).then(setAnswer, (error: unknown) => error instanceof Refusal && setAnswer(error));
  }, []);
  const row = answer instanceof Refusal ? undefined : answer?.gpus[0];
  return (
    <Dialog title={T.whyTitle(profile)} onClose={closeDialog}>
      <div class="flow" aria-live="polite">
        {answer === null && <p>{T.loading}</p>}
        {answer instanceof Refusal && <ErrorParts refusal={answer} title={T.refusedTitle} />}
        {row && (
          <>
            {row.fits && <p class="note good">{T.whyFits(profile)}</p>}
            {row.rules.length > 0 && <><h3>{T.rules}</h3><ul class="reasons">{row.rules.map((rule) => <li key={rule}>{rule}</li>)}</ul></>}
            {!row.fits && <Obstacles title={T.toRemove} rows={row.remove} none={row.moving ?? T.removeNone} />}
            {row.kept.length > 0 && <Obstacles title={T.kept} rows={row.kept} none="" />}
            {row.remove.length > 0 && row.moving && <p>{row.moving}</p>}
          </>
        )}
        <h3>{T.command}</h3>
        <Command text={line("why", profile, "--gpu", name)} />
        <div class="buttons">
          <Button onClick={() => openDialog({ kind: "attach", profile })}>{T.attach}</Button>
          <Button kind="main" onClick={closeDialog}>{T.close}</Button>
        </div>
      </div>
    </Dialog>
  );
}

function Obstacles({ title, rows, none }: { title: string; rows: readonly ObstacleDocument[]; none: string }) {
  return (
    <>
      <h3>{title}</h3>
      {rows.length === 0 && <p>{none}</p>}
      <ul class="reasons">
        {rows.map((row) => (
          <li key={place(row.placement)}>{T.obstacle(row.profile, place(row.placement), row.holders.join(", ") || T.noHolder)}</li>
        ))}
      </ul>
    </>
  );
}
