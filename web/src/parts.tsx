/** Small parts that every view uses. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { aim, isCommand } from "./commands";
import { announce, useStore } from "./store";
import { T } from "./texts";
import type { Refusal } from "./transport";

/** Why nothing can be changed now; null: it can. */
export function useBarrier(): string | null {
  const role = useStore((state) => state.server?.role);
  const connection = useStore((state) => state.connection);
  if (role === "viewer") return T.viewerNote;
  return connection === "live" ? null : T.notConnectedNote;
}

interface ButtonProps {
  onClick: () => void;
  children: ComponentChildren;
  label?: string;
  kind?: "main" | "danger" | "plain";
}

/** A button that changes the host: disabled, with the reason, where that is not possible. */
export function ActButton({ onClick, children, label, kind = "plain" }: ButtonProps) {
  const barrier = useBarrier();
  const name = label && barrier ? `${label}. ${barrier}` : (label ?? undefined);
  return (
    <button type="button" class={`button ${kind}`} disabled={barrier !== null} title={barrier ?? undefined} aria-label={name} onClick={onClick}>
      {children}
    </button>
  );
}

export function Button({ onClick, children, label, kind = "plain" }: ButtonProps) {
  return (
    <button type="button" class={`button ${kind}`} aria-label={label} onClick={onClick}>
      {children}
    </button>
  );
}

/** A command line that can be copied. */
export function Command({ text }: { text: string }) {
  const code = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // without permission it is at least selected
      if (code.current) getSelection()?.selectAllChildren(code.current);
      return;
    }
    announce(T.copied);
  };
  return (
    <div class="command">
      <code ref={code} tabIndex={0} aria-label={T.command}>{text}</code>
      <Button onClick={copy}>{T.copy}</Button>
    </div>
  );
}

/** An error as the command line prints it. */
export function ErrorParts({ refusal, title }: { refusal: Refusal; title: string }) {
  const { error, cause, why, held_by, try: hint, id } = refusal.parts;
  return (
    <div class="refusal" role="alert">
      <strong>{title}</strong>
      <p>{error}</p>
      <dl class="facts">
        {cause && <Fact name={T.cause}>{cause}</Fact>}
        {why && <Fact name={T.whyLabel}>{why}</Fact>}
        {held_by.length > 0 && <Fact name={T.heldBy}>{held_by.map((holder) => <div key={holder}>{holder}</div>)}</Fact>}
      </dl>
      {hint && <><div class="muted">{T.tryLabel}</div>{isCommand(hint) ? <Command text={aim(hint)} /> : <p>{hint}</p>}</>}
      {id && <div class="muted">{id}</div>}
    </div>
  );
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** A table that scrolls by itself where the window is narrow. */
export function Table({ heads, label, children }: { heads: readonly string[]; label: string; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>{heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export function Section({ title, children, aside }: { title: string; children: ComponentChildren; aside?: ComponentChildren }) {
  return (
    <section class="panel" aria-label={title}>
      <div class="panel-head">
        <h2>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog: the browser keeps the focus inside; it goes back to where it came from. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      dialog.current?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      else document.querySelector<HTMLElement>("main")?.focus();
    };
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onCancel={cancel}>
      <header class="dialog-head">
        <h2 id="dialog-title">{title}</h2>
        <Button onClick={onClose} label={T.close}>{"✕"}</Button>
      </header>
      {children}
    </dialog>
  );
}

/** What changes while nothing else does: the age of what is shown. */
export function useSeconds(): number {
  const [now, tick] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => tick(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
