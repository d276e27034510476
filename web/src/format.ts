/** Figures and names as the command line writes them. */

import type { PlacementDocument } from "./api";

const GIB = 2 ** 30;

/** `0.7`, `80`: GiB without the unit. */
export function gib(bytes: number): string {
  const value = bytes / GIB;
  return value >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const shown = unit === 0 || value >= 100 || Number.isInteger(value) ? Math.round(value).toString() : value.toFixed(1);
  return `${shown} ${units[unit]}`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Thousandths of GPUs: `2.5`, `0.125`. */
export const gpus = (milli: number): string => String(Math.round(milli) / 1000);
export const percent = (ratio: number): string => `${Math.round(ratio * 100)} %`;
export const place = ({ start, size }: PlacementDocument): string => `${start}:${size}`;
export const clock = (seconds: number): string => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export function moment(seconds: number): string {
  const date = new Date(seconds * 1000);
  const pad = (part: number) => String(part).padStart(2, "0");
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(seconds)}`;
}

/** Seconds as `12 s`, `3 min`, `2 h`. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${seconds < 10 && !Number.isInteger(seconds) ? seconds.toFixed(1) : Math.round(seconds)} s`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** `NVIDIA A100-SXM4-80GB` without what every board has. */
export const shortModel = (model: string): string => model.replace(/^NVIDIA /, "");
