/** vGPUs and virtual functions of a GPU: what there is, and making and removing them. */

import { useState } from "preact/hooks";
import { type VgpuVerb, changeVgpu, createVgpu, disableVfs, enableVfs, makeUuid } from "./actions";
import type { PhysicalDocument, VfListDocument, VgpuDocument, VgpuListDocument, VgpuTypeDocument } from "./api";
import { Flow } from "./flow";
import { bytes } from "./format";
import { get } from "./live";
import { ActButton, Button, Command, Dialog, ErrorParts, Fact, Section, Table } from "./parts";
import { usePool as useRead } from "./poolread";
import { closeDialog, openDialog, useStore } from "./store";
import { T } from "./texts";

/** A GPU as requests and commands name it: by UUID and index, or both by its address where NVML does not know it. */
export interface Named {
  selector: string;
  name: string;
  pci: string;
}

const NO_TYPES: readonly VgpuTypeDocument[] = [];

export function Types({ gpu }: { gpu: Named }) {
  const types = useStore((state) => state.types.get(gpu.selector) ?? state.types.get(gpu.pci) ?? NO_TYPES);
  if (!types.length) return null;
  return (
    <Section title={T.types}>
      <Table label={T.types} heads={[T.name, T.memory, T.fits, T.whyLabel, T.actions]}>
        {types.map((type) => (
          <tr key={type.id}>
            <td>{type.name}</td>
            <td>{type.framebuffer_bytes === null ? "-" : bytes(type.framebuffer_bytes)}</td>
            <td>{type.free}</td>
            <td>{type.reason ?? ""}</td>
            <td>
              {type.free > 0 && (
                <ActButton label={T.createVgpuName(type.name)} onClick={() => openDialog({ kind: "vgpu", gpu, type: type.name })}>{T.create}</ActButton>
              )}
            </td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

const readVgpus = async (): Promise<readonly VgpuDocument[]> => (await get<VgpuListDocument>("/1.0/vgpus")).vgpus;

/** Also those that are only defined, and those that other programs made. */
export function Vgpus({ gpu }: { gpu: Named }) {
  const { document: all, refusal } = useRead(readVgpus);
  const vgpus = all?.filter((vgpu) => vgpu.gpu === gpu.pci || vgpu.parent === gpu.pci) ?? [];
  if (refusal) return <ErrorParts refusal={refusal} title={T.partRefused.vgpus ?? ""} />;
  if (!vgpus.length) return null;
  return (
    <Section title={T.vgpus}>
      <Table label={T.vgpus} heads={[T.name, T.type, T.where, T.state, T.starts, T.vm, T.heldBy, T.actions]}>
        {vgpus.map((vgpu) => <VgpuRow key={nameOf(vgpu)} vgpu={vgpu} />)}
      </Table>
    </Section>
  );
}

const nameOf = (vgpu: VgpuDocument): string => vgpu.uuid ?? vgpu.parent;

/** What can be tried; the daemon refuses what cannot be done, and says why. */
function verbsOf({ ours, state, defined }: VgpuDocument): readonly VgpuVerb[] {
  if (!ours) return ["adopt"];
  const isHere = state === "active";
  return [...(isHere && defined ? ["stop" as const] : []), ...(state === "defined" || state === "missing" ? ["start" as const] : []), "delete"];
}

function VgpuRow({ vgpu }: { vgpu: VgpuDocument }) {
  const vm = useStore((state) => state.vms.find((other) => other.name === vgpu.vm)?.uuid);
  return (
    <tr>
      <td class="mono">{nameOf(vgpu)}</td>
      <td>{vgpu.type}</td>
      <td class="mono">{vgpu.parent}</td>
      <td>{vgpu.ours ? vgpu.state : T.notOurs(vgpu.state)}</td>
      <td>{vgpu.defined ? T.startWords[vgpu.auto ? "auto" : "manual"] : "-"}</td>
      <td>{vm && vgpu.vm ? <a href={`#/vm/${vm}`}>{vgpu.vm}</a> : (vgpu.vm ?? T.board.noVm)}</td>
      <td>{vgpu.held_by.join(", ")}</td>
      <td>
        {verbsOf(vgpu).map((verb) => (
          <ActButton
            key={verb} label={T.vgpuName(T.vgpuVerbs[verb], vgpu.type, nameOf(vgpu))}
            onClick={() => openDialog({ kind: "act", action: changeVgpu(verb, vgpu) })}
          >
            {T.vgpuVerbs[verb]}
          </ActButton>
        ))}
      </td>
    </tr>
  );
}

/** The virtual functions of a GPU that can have some. */
export function Functions({ gpu }: { gpu: Named }) {
  const [read] = useState(() => async () => (await get<VfListDocument>(`/1.0/vfs?${new URLSearchParams({ selector: gpu.pci })}`)).physicals);
  const { document: physicals, refusal } = useRead(read);
  if (refusal) return <ErrorParts refusal={refusal} title={T.partRefused.vfs ?? ""} />;
  return <>{physicals?.map((physical) => <Physical key={physical.address} physical={physical} />)}</>;
}

function Physical({ physical }: { physical: PhysicalDocument }) {
  const { address, count, total, why_not } = physical;
  const buttons = (
    <span class="head-actions">
      <ActButton label={T.enableVfsName(address)} onClick={() => openDialog({ kind: "vfs", physical })}>{T.enableVfs}</ActButton>
      {count > 0 && (
        <ActButton label={T.disableVfsName(address)} onClick={() => openDialog({ kind: "act", action: disableVfs(physical) })}>{T.disableVfs}</ActButton>
      )}
    </span>
  );
  return (
    <Section title={T.vfs} aside={why_not === null || count > 0 ? buttons : undefined}>
      <dl class="facts">
        <Fact name={T.enabled}>{T.shownOf(count, total)}</Fact>
        {physical.persist && <Fact name={T.starts}>{T.startWords.auto}</Fact>}
        {why_not && <Fact name={T.whyLabel}>{why_not}</Fact>}
      </dl>
      {count > 0 && (
        <Table label={T.vfs} heads={[T.pci, T.kernelDriver, T.iommuGroup, T.holder]}>
          {physical.vfs.map((vf) => (
            <tr key={vf.address}>
              <td class="mono">{vf.address}</td>
              <td>{vf.driver ?? "-"}</td>
              <td>{vf.iommu_group ?? "-"}</td>
              <td>{[...vf.users, ...vf.configured].join(", ") || T.noHolder}</td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}

interface FormProps {
  title: string;
  make: () => ReturnType<typeof createVgpu>;
  children: preact.ComponentChildren;
}

/** What is chosen, then its plan. */
function FormDialog({ title, make, children }: FormProps) {
  const [action, setAction] = useState<ReturnType<typeof createVgpu> | null>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    setAction(make());
  };
  return (
    <Dialog title={title} onClose={closeDialog}>
      {action ? (
        <Flow action={action} onBack={() => setAction(null)} />
      ) : (
        <>
          <form onSubmit={submit} class="form">
            {children}
            <div class="buttons">
              <Button onClick={closeDialog}>{T.cancel}</Button>
              <button type="submit" class="button main">{T.showPlan}</button>
            </div>
          </form>
          <h3>{T.command}</h3>
          <Command text={make().command} />
        </>
      )}
    </Dialog>
  );
}

interface CheckProps {
  name: string;
  text: string;
  value: boolean;
  onChange: (value: boolean) => void;
}

function Check({ name, text, value, onChange }: CheckProps) {
  return (
    <label class="check">
      <input type="checkbox" name={name} checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
      {text}
    </label>
  );
}

export function VgpuDialog({ gpu, type }: { gpu: Named; type: string }) {
  // the plan, the command and the change name the same one
  const [uuid] = useState(makeUuid);
  const [define, setDefine] = useState(false);
  const [auto, setAuto] = useState(false);
  const make = () => createVgpu({ gpu, type, uuid, define: define && !auto, auto });
  return (
    <FormDialog title={T.createVgpuTitle(type, gpu.name)} make={make}>
      <dl class="facts"><Fact name={T.uuid}><span class="mono">{uuid}</span></Fact></dl>
      <Check name="define" text={T.defineHint} value={define || auto} onChange={setDefine} />
      <Check name="auto" text={T.autoHint} value={auto} onChange={setAuto} />
    </FormDialog>
  );
}

/** NVIDIA's own tool makes all of them. */
const ALL_ONLY = "sriov-manage";

export function VfsDialog({ physical }: { physical: PhysicalDocument }) {
  const { address, total, method } = physical;
  const [count, setCount] = useState(physical.count || total);
  const [persist, setPersist] = useState(physical.persist);
  const make = () => enableVfs(physical, method === ALL_ONLY || count === total ? null : count, persist);
  return (
    <FormDialog title={T.enableVfsTitle(address)} make={make}>
      {method === ALL_ONLY ? (
        <p>{T.allVfs(total)}</p>
      ) : (
        <label>
          {T.vfCount(total)}
          <input
            type="number" name="count" required min={1} max={total} value={count}
            onInput={(event) => setCount(event.currentTarget.valueAsNumber || 0)}
          />
        </label>
      )}
      <Check name="persist" text={T.persistHint} value={persist} onChange={setPersist} />
    </FormDialog>
  );
}
