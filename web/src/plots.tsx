/** Plots of the last hour, from what the daemon keeps. */

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { HistoryDocument, HistorySeriesDocument } from "./api";
import { bytes, clock, count, gpus, percent } from "./format";
import { get } from "./live";
import { Section } from "./parts";
import { useStore } from "./store";
import { T } from "./texts";

interface PlotsProps {
  subject: "gpu" | "vm" | "pool";
  name: string;
}

const HEIGHT = 130;
/** A point comes every 10 s. */
const READ_MS = 10_000;

const FORMAT: Record<string, (value: number) => string> = {
  memory_used_bytes: bytes,
  bytes_per_second: bytes,
  utilisation_ratio: percent,
  throttled_ratio: percent,
  gpu_unusable_ratio: percent,
  gpu_allocated_milli: gpus,
  gpu_free_milli: gpus,
  power_watts: T.watts,
  temperature_celsius: T.degrees,
};
/** The top of the axis where all is 0. */
const EMPTY: Record<string, number> = { utilisation_ratio: 1, throttled_ratio: 1, gpu_unusable_ratio: 1, gpu_allocated_milli: 1000, gpu_free_milli: 1000, memory_used_bytes: 2 ** 20, bytes_per_second: 2 ** 10 };
const format = (figure: string, value: number): string => (FORMAT[figure] ?? ((other: number) => count(Math.round(other))))(value);

/** Nothing where the daemon keeps no history. */
export function Plots({ subject, name }: PlotsProps) {
  const offered = useStore((state) => state.server?.api_extensions.includes("history") ?? false);
  const isLive = useStore((state) => state.connection === "live");
  const [history, setHistory] = useState<HistoryDocument | null>(null);
  useEffect(() => {
    if (!offered || !isLive) return;
    let open = true;
    const read = () => {
      if (document.visibilityState !== "visible") return;
      // what could not be read now is read with the next point
      get<HistoryDocument>(`/1.0/history?${new URLSearchParams({ [subject]: name })}`).then((document) => open && setHistory(document), () => undefined);
    };
    read();
    const timer = setInterval(read, READ_MS);
    return () => {
      open = false;
      clearInterval(timer);
    };
  }, [subject, name, offered, isLive]);
  if (!offered) return null;
  const groups = Object.entries(Object.groupBy(history?.series ?? [], (series) => series.figure));
  return (
    <Section title={T.history}>
      {groups.length === 0 && <p class="muted">{T.noHistory}</p>}
      <div class="plots">
        {groups.map(([figure, series = []]) => <Plot key={figure} figure={figure} times={history?.times_s ?? []} series={series} />)}
      </div>
    </Section>
  );
}

interface PlotProps {
  figure: string;
  times: readonly number[];
  series: readonly HistorySeriesDocument[];
}

function Plot({ figure, times, series }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const scheme = useScheme();
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = draw(element, figure, series);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [figure, series.length, scheme]);
  useEffect(() => {
    plot.current?.setData([[...times], ...series.map((row) => [...row.values])]);
  }, [times, series, scheme]);
  const latest = series[0]?.values.findLast((value) => value !== null) ?? null;
  const title = T.plots[figure] ?? figure;
  const said = latest === null ? "-" : format(figure, latest);
  return (
    <div class="plot" data-figure={figure}>
      <h3>{`${title}: ${said}`}</h3>
      <div ref={box} role="img" aria-label={T.historyOf(title, said)} />
    </div>
  );
}

/** Whether the page is dark: a plot's colours are drawn, not styled. */
function useScheme(): boolean {
  const [query] = useState(() => matchMedia("(prefers-color-scheme: dark)"));
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const change = () => setDark(query.matches);
    query.addEventListener("change", change);
    return () => query.removeEventListener("change", change);
  }, []);
  return dark;
}

/** Lines differ by their dashes, too. */
const DASHES: readonly (number[] | undefined)[] = [undefined, [6, 3], [2, 2], [8, 3, 2, 3]];

function draw(element: HTMLElement, figure: string, series: readonly HistorySeriesDocument[]): uPlot {
  const style = getComputedStyle(document.documentElement);
  const [ink, line, accent] = ["--soft", "--line", "--vm-line"].map((name) => style.getPropertyValue(name).trim());
  const axis = { stroke: ink ?? "", grid: { stroke: line ?? "", width: 1 }, ticks: { stroke: line ?? "", width: 1 } };
  const times = (_: uPlot, splits: number[]) => splits.map((time) => clock(time).slice(0, 5));
  const values = (_: uPlot, splits: number[]) => splits.map((value) => format(figure, value));
  return new uPlot(
    {
      width: Math.max(element.clientWidth, 100),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, _low, high) => [0, (high ?? 0) > 0 ? (high ?? 0) * 1.1 : (EMPTY[figure] ?? 10)] } },
      axes: [{ ...axis, values: times }, { ...axis, values, size: 74 }],
      series: [
        {},
        ...series.map((row, index) => ({
          label: T.attachmentNumber(row.attachment ?? 0), stroke: accent ?? "", width: 1.5, dash: DASHES[index % DASHES.length], points: { show: false },
        })),
      ],
    },
    [[], ...series.map(() => [])],
    element,
  );
}
