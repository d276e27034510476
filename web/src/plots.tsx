/** Plots of the last hour. */

export function Plots(_: { subject: "gpu" | "vm"; name: string }) {
  return null;
}
