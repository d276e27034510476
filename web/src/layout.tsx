/** The layout of a GPU, edited on its board. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type Action, type Piece, applyLayout } from "./actions";
import type { GpuDocument, MigProfileRow, PlacementDocument } from "./api";
import { Area, Frame, holderOf } from "./board";
import { Flow } from "./flow";
import { place } from "./format";
import { Button, Dialog } from "./parts";
import { announce, closeDialog, useStore } from "./store";
import { T } from "./texts";

const overlaps = (one: PlacementDocument, other: PlacementDocument): boolean =>
  one.start < other.start + other.size && other.start < one.start + one.size;

const NO_PROFILES: readonly MigProfileRow[] = [];

export function LayoutDialog({ gpu: uuid }: { gpu: string }) {
  const gpu = useStore((state) => state.gpus.find((other) => other.uuid === uuid));
  const profiles = useStore((state) => state.profiles.get(uuid) ?? NO_PROFILES);
  // what was there when the editing began: the plan is held to the digest of what is there then
  const [pieces, setPieces] = useState<readonly Piece[]>(() =>
    (gpu?.instances ?? []).map((instance) => ({ profile: instance.profile, placement: instance.placement, instance })),
  );
  const [gone, setGone] = useState<readonly Piece[]>([]);
  const [action, setAction] = useState<Action | null>(null);
  const box = useRef<HTMLDivElement>(null);
  // the button that was pressed may be gone
  useEffect(() => {
    if (document.activeElement === document.body) box.current?.focus();
  }, [pieces]);
  if (!gpu) return <Dialog title={T.editLayout} onClose={closeDialog}><p>{T.notFound}</p></Dialog>;
  const title = T.layoutTitle(T.gpu(gpu.index));
  if (action) return <Dialog title={title} onClose={closeDialog}><Flow action={action} onBack={() => setAction(null)} /></Dialog>;
  const remove = (piece: Piece) => {
    setPieces(pieces.filter((other) => other !== piece));
    if (piece.instance) setGone([...gone, piece]);
  };
  const keep = (piece: Piece) => {
    setGone(gone.filter((other) => other !== piece));
    setPieces([...pieces.filter((other) => !overlaps(other.placement, piece.placement)), piece]);
  };
  const move = (piece: Piece, to: PlacementDocument) => {
    // back where it was: nothing is made anew
    const back = gone.find((other) => other.profile === piece.profile && other.placement.start === to.start);
    const others = gone.filter((other) => other !== back);
    setPieces([...pieces.filter((other) => other !== piece), back ?? { profile: piece.profile, placement: to, instance: null }]);
    setGone(piece.instance ? [...others, piece] : others);
    announce(T.moved(piece.profile, place(piece.placement), place(to)));
  };
  const add = (profile: string, placement: PlacementDocument) => setPieces([...pieces, { profile, placement, instance: null }]);
  return (
    <Dialog title={title} onClose={closeDialog}>
      <div class="flow" ref={box} tabIndex={-1}>
        <p>{T.layoutHelp}</p>
        <h3>{T.layoutNow}</h3>
        <Draft gpu={gpu} profiles={profiles} pieces={pieces} gone={gone} onMove={move} />
        <ul class="pieces">
          {[...pieces].sort((one, other) => one.placement.start - other.placement.start).map((piece) => (
            <PieceRow key={`${piece.profile}${place(piece.placement)}`} piece={piece} word={piece.instance ? T.stays : T.isNew} label={T.removeAt}
              verb={T.remove} onClick={() => remove(piece)} />
          ))}
          {gone.map((piece) => (
            <PieceRow key={`gone${place(piece.placement)}`} piece={piece} word={T.goes} label={T.keepAt} verb={T.keep} onClick={() => keep(piece)} />
          ))}
        </ul>
        <Adding profiles={profiles} pieces={pieces} onAdd={add} />
        <div class="buttons">
          <Button onClick={closeDialog}>{T.cancel}</Button>
          <Button kind="main" onClick={() => setAction(applyLayout(gpu, pieces))}>{T.showPlan}</Button>
        </div>
      </div>
    </Dialog>
  );
}

interface DraftProps {
  gpu: GpuDocument;
  profiles: readonly MigProfileRow[];
  pieces: readonly Piece[];
  gone: readonly Piece[];
  onMove: (piece: Piece, to: PlacementDocument) => void;
}

/** A piece that is dragged: where that began, the width of a position, and where it would come to lie. */
interface Drag {
  piece: Piece;
  x: number;
  step: number;
  to: PlacementDocument | null;
}

function Draft({ gpu, profiles, pieces, gone, onMove }: DraftProps) {
  const positions = Math.max(gpu.mig?.memory_positions ?? 8, 1);
  const [drag, setDrag] = useState<Drag | null>(null);
  const area = (piece: Piece, kind: "vm" | "new" | "going", word: string) => (
    <Area key={`${kind}${place(piece.placement)}`} from={piece.placement.start / positions} width={piece.placement.size / positions} kind={kind}
      title={piece.profile} detail={word} />
  );
  const begin = (event: PointerEvent, piece: Piece) => {
    const group = event.currentTarget as SVGGElement;
    if (event.button !== 0 || !group.ownerSVGElement) return;
    group.setPointerCapture(event.pointerId);
    setDrag({ piece, x: event.clientX, step: group.ownerSVGElement.getBoundingClientRect().width / positions, to: null });
  };
  const follow = (event: PointerEvent) => {
    if (!drag) return;
    const { piece, x, step } = drag;
    const others = pieces.filter((other) => other !== piece);
    const to = nearest(profiles, others, piece, piece.placement.start + (event.clientX - x) / step);
    setDrag({ ...drag, to });
  };
  const end = () => {
    if (drag?.to) onMove(drag.piece, drag.to);
    setDrag(null);
  };
  const said = pieces.map((piece) => T.board.instance(piece.profile, place(piece.placement), piece.instance ? T.stays : T.isNew));
  return (
    <Frame label={[T.board.mig(T.gpu(gpu.index), positions), ...said].join(" ")} axis={positions}>
      <Area from={0} width={1} kind="free" title="" />
      {gone.map((piece) => area(piece, "going", T.goes))}
      {pieces.map((piece) => (
        <g key={place(piece.placement)} class={drag?.piece === piece ? "movable moved" : "movable"} onPointerDown={(event) => begin(event, piece)}
          onPointerMove={follow} onPointerUp={end} onPointerCancel={() => setDrag(null)}>
          {area(piece, piece.instance ? "vm" : "new", piece.instance ? T.stays : T.isNew)}
        </g>
      ))}
      {drag?.to && <g class="ghost">{area({ ...drag.piece, placement: drag.to }, "new", place(drag.to))}</g>}
    </Frame>
  );
}

/** The free place of a piece's profile that is nearest to a position; null where that is its own. */
function nearest(profiles: readonly MigProfileRow[], others: readonly Piece[], piece: Piece, at: number): PlacementDocument | null {
  const all = profiles.find((row) => row.name === piece.profile)?.placements ?? [];
  const free = all.filter((to) => !others.some((other) => overlaps(other.placement, to)));
  const distance = (to: PlacementDocument) => Math.abs(to.start - at);
  const best = free.reduce((one, other) => (distance(other) < distance(one) ? other : one), piece.placement);
  return best.start === piece.placement.start ? null : best;
}

interface PieceRowProps {
  piece: Piece;
  word: string;
  label: (profile: string, at: string) => string;
  verb: string;
  onClick: () => void;
}

function PieceRow({ piece, word, label, verb, onClick }: PieceRowProps) {
  const at = place(piece.placement);
  const holder = piece.instance ? holderOf(piece.instance) : null;
  return (
    <li>
      <span class="mono">{T.atPlace(piece.profile, at)}</span>
      <span class="muted">{word}</span>
      {holder && holder.kind !== "idle" && <span>{T.inUse(holder.name)}</span>}
      <Button label={label(piece.profile, at)} onClick={onClick}>{verb}</Button>
    </li>
  );
}

interface AddingProps {
  profiles: readonly MigProfileRow[];
  pieces: readonly Piece[];
  onAdd: (profile: string, placement: PlacementDocument) => void;
}

function Adding({ profiles, pieces, onAdd }: AddingProps) {
  return (
    <table class="adding">
      <tbody>
        {profiles.map((row) => {
          const places = row.placements.filter((at) => !pieces.some((piece) => overlaps(piece.placement, at)));
          return (
            <tr key={row.name}>
              <th scope="row">{row.name}</th>
              <td class="chips">
                {places.map((at) => (
                  <button key={place(at)} type="button" class="chip" aria-label={T.addAt(row.name, place(at))} onClick={() => onAdd(row.name, at)}>
                    {`+ ${place(at)}`}
                  </button>
                ))}
                {places.length === 0 && <span class="muted">{T.noPlace}</span>}
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
