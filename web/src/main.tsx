/** The frame of the page: navigation, connection, views, and what is open above them. */

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Textures } from "./board";
import { AttachDialog, WhyDialog } from "./choose";
import { ActionDialog } from "./flow";
import { duration } from "./format";
import { ExplainView } from "./explain";
import { GpuView } from "./gpu";
import { LayoutDialog } from "./layout";
import { Audit, Checks, Drift, Events, Operations } from "./lists";
import { follow } from "./live";
import { Overview, Vms } from "./overview";
import { Command, ErrorParts, useSeconds } from "./parts";
import { PoolView } from "./pool";
import { useStore } from "./store";
import "./style.css";
import { T } from "./texts";
import { isInCockpit } from "./transport";
import { VfsDialog, VgpuDialog } from "./vgpu";
import { VmView } from "./vm";

/** The views of the navigation; one that needs a part of the API or a role names it, and is left out otherwise, as the pool is where there is none. */
const VIEWS = [
  { path: "", text: T.overview, view: Overview, extension: null, role: "viewer" },
  { path: "vms", text: T.vms, view: Vms, extension: null, role: "viewer" },
  { path: "pool", text: T.pool.title, view: PoolView, extension: "pool", role: "viewer" },
  { path: "drift", text: T.drift, view: Drift, extension: null, role: "viewer" },
  { path: "operations", text: T.operations, view: Operations, extension: null, role: "viewer" },
  { path: "events", text: T.events, view: Events, extension: null, role: "viewer" },
  { path: "checks", text: T.checks, view: Checks, extension: null, role: "viewer" },
  { path: "audit", text: T.audit, view: Audit, extension: "audit-entries", role: "admin" },
] as const;

/** The parts of the address; one that is no text is that of the overview. */
function readPath(): string[] {
  try {
    return location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  } catch {
    return [""];
  }
}

function usePath(): string[] {
  const [path, setPath] = useState(readPath);
  useEffect(() => {
    const change = () => {
      setPath(readPath());
      document.querySelector<HTMLElement>("main")?.focus();
      scrollTo(0, 0);
    };
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return path;
}

function Page() {
  const [first = "", name = ""] = usePath();
  const connection = useStore((state) => state.connection);
  const ready = useStore((state) => state.asOf > 0);
  const role = useStore((state) => state.server?.role);
  const skip = (event: Event) => {
    event.preventDefault();
    document.querySelector<HTMLElement>("main")?.focus();
  };
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>{T.skip}</a>
      <Head />
      <Navigation first={first} />
      <main id="main" tabIndex={-1}>
        {connection === "lost" && <Lost />}
        {connection === "ended" && <Ended />}
        <Refused />
        {role === "viewer" && <p class="note">{T.viewerNote}</p>}
        {connection === "refused" && <MayNot />}
        {ready ? <View first={first} name={name} /> : connection !== "refused" && <p role="status">{T.loading}</p>}
      </main>
      <Dialogs />
      <Textures />
      <Said />
    </>
  );
}

function View({ first, name }: { first: string; name: string }) {
  if (first === "gpu") return <GpuView key={name} uuid={name} />;
  if (first === "pool" && name) return <ExplainView key={name} name={name} />;
  if (first === "vm") return <VmView key={name} uuid={name} />;
  const Found = VIEWS.find((row) => row.path === first)?.view ?? Overview;
  return <Found />;
}

function Head() {
  const machine = useStore((state) => state.machine);
  const server = useStore((state) => state.server);
  const connection = useStore((state) => state.connection);
  const words = { connecting: T.connecting, live: T.live, lost: T.lost, refused: T.refusedWord, ended: T.ended };
  return (
    <header class="top">
      <strong class="product">{T.product}</strong>
      {server && <span>{server.machine ?? location.hostname}</span>}
      {machine?.simulated && <span class="badge">{T.simulated}</span>}
      {machine?.driver_version && <span class="muted wide-only">{T.driver(machine.driver_version)}</span>}
      <span class="spacer" />
      {server && <span class="badge" title={server.role === "viewer" ? T.viewerNote : undefined}>{T.role(server.role)}</span>}
      <span class={`connection ${connection}`}>{words[connection]}</span>
    </header>
  );
}

function Navigation({ first }: { first: string }) {
  const drift = useStore((state) => state.status?.drift?.length ?? 0);
  const server = useStore((state) => state.server);
  const views = VIEWS.filter(
    ({ path, extension, role }) =>
      (path !== "pool" || server?.pool) &&
      (extension === null || server?.api_extensions.includes(extension)) && (role === "viewer" || server?.role === role),
  );
  return (
    <nav aria-label={T.navigation}>
      {views.map(({ path, text }) => (
        <a key={path} href={`#/${path}`} aria-current={path === first ? "page" : undefined}>
          {text}
          {path === "drift" && drift > 0 && <span class="badge warn" aria-label={T.driftCount(drift)}>{drift}</span>}
        </a>
      ))}
    </nav>
  );
}

function Ended() {
  const again = useStore((state) => state.again);
  return <div class="note warn" role="alert">{T.endedLong}<Command text={again} /></div>;
}

/** What is shown stays, with its age. */
function Lost() {
  const asOf = useStore((state) => state.asOf);
  const now = useSeconds();
  return <p class="note warn" role="alert">{asOf ? T.lostAge(duration(Math.max(0, Math.round((now - asOf) / 1000)))) : T.lost}</p>;
}

function Refused() {
  const problems = useStore((state) => state.problems);
  return <>{Object.entries(problems).map(([part, refusal]) => <ErrorParts key={part} refusal={refusal} title={T.partRefused[part] ?? part} />)}</>;
}

/** What makes the refused user one who may; the daemon's own hint is for its command line. */
function MayNot() {
  return (
    <div class="note">
      <p>{T.mayNot(isInCockpit())}</p>
      <Command text={T.joinReaders} />
      <Command text={T.joinAdministrators} />
    </div>
  );
}

function Dialogs() {
  const dialog = useStore((state) => state.dialog);
  if (dialog?.kind === "act") return <ActionDialog key={dialog.action.command} action={dialog.action} />;
  if (dialog?.kind === "attach") return <AttachDialog vm={dialog.vm} profile={dialog.profile} gpu={dialog.gpu} />;
  if (dialog?.kind === "why") return <WhyDialog profile={dialog.profile} gpu={dialog.gpu} name={dialog.name} />;
  if (dialog?.kind === "vgpu") return <VgpuDialog key={dialog.type} gpu={dialog.gpu} type={dialog.type} />;
  if (dialog?.kind === "vfs") return <VfsDialog key={dialog.physical.address} physical={dialog.physical} />;
  if (dialog?.kind === "layout") return <LayoutDialog gpu={dialog.gpu} />;
  return null;
}

function Said() {
  const said = useStore((state) => state.said);
  return <div class="said" aria-live="polite">{said}</div>;
}

const root = document.getElementById("page");
if (root) render(<Page />, root);
void follow();
