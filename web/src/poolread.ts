/** Reads of the pool, beside those of the host: its store may not answer, and the rest of the page waits for none of it. */

import { useEffect, useRef, useState } from "preact/hooks";
import { COUNTERS_MS, concerns, refresh } from "./live";
import { useStore } from "./store";
import { Refusal } from "./transport";

export interface PoolAnswer<D> {
  document: D | null;
  /** When the document was read, in ms of the browser's clock. */
  asOf: number;
  /** Why there is none, or no newer one. */
  refusal: Refusal | null;
}

/** This machine is in no pool any more. */
const NO_POOL = "VG378";

/** What `read` answers, again at each event and at each poll while the page is seen. `read` stays the same as long as the view is drawn. */
export function usePool<D>(read: () => Promise<D>): PoolAnswer<D> {
  const isLive = useStore((state) => state.connection === "live");
  const latest = useStore((state) => state.events.find(concerns)?.id ?? 0);
  const [answer, setAnswer] = useState<PoolAnswer<D>>({ document: null, asOf: 0, refusal: null });
  const again = useRef<() => void>(() => undefined);
  useEffect(() => {
    if (!isLive) return;
    let open = true;
    let reading = false;
    let due = false;
    const take = async () => {
      try {
        const found = await read();
        if (open) setAnswer({ document: found, asOf: Date.now(), refusal: null });
      } catch (error) {
        // a daemon that is away is said by the stream
        if (!open || !(error instanceof Refusal)) return;
        setAnswer((before) => ({ ...before, refusal: error }));
        if (error.parts.id === NO_POOL) refresh(["server"]);
      }
    };
    again.current = () => {
      due = true;
      if (reading || document.visibilityState !== "visible") return;
      reading = true;
      const run = async () => {
        while (due && open) {
          due = false;
          await take();
        }
        reading = false;
      };
      void run();
    };
    again.current();
    const timer = setInterval(() => again.current(), COUNTERS_MS);
    return () => {
      open = false;
      again.current = () => undefined;
      clearInterval(timer);
    };
  }, [isLive]);
  useEffect(() => again.current(), [latest]);
  return answer;
}
