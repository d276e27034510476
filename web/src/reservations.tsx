/** GPUs of the pool that are a tenant's at a time of day. */

import type { ReservationDocument } from "./api";
import { MANY_ROWS, describeSize } from "./claims";
import { lineThere } from "./commands";
import { Command, Section, Table } from "./parts";
import { T } from "./texts";

const describeHolder = ({ tenant, claims }: ReservationDocument): string => (tenant === null ? claims.join(", ") : T.pool.ofTenant(tenant));

/** Those that come next first, as the daemon lists them. */
export function Reservations({ reservations }: { reservations: readonly ReservationDocument[] }) {
  const shown = reservations.slice(0, MANY_ROWS);
  return (
    <Section title={T.pool.reservations} aside={<span class="muted">{T.shown(shown.length, reservations.length)}</span>}>
      {reservations.length === 0 ? <p>{T.pool.noReservations}</p> : (
        <Table label={T.pool.reservations} heads={[T.pool.reservation, T.state, T.pool.reservedFor, T.pool.size, T.pool.time, T.pool.reservedGpus, T.pool.grantedTo, T.pool.reason]}>
          {shown.map((one) => (
            <tr key={one.name} data-reservation={one.name}>
              <td>{one.name}</td>
              <td>{one.state}</td>
              <td>{describeHolder(one)}</td>
              <td>{describeSize(one)}</td>
              <td>{T.pool.span(one.from, one.until, one.every !== null, one.zone)}</td>
              <td>{one.places.join(", ") || "-"}</td>
              <td>{one.granted.join(", ") || "-"}</td>
              <td class={one.why ? "reason" : undefined}>{one.why ?? "-"}</td>
            </tr>
          ))}
        </Table>
      )}
      <Command text={lineThere("reservation", "list")} />
    </Section>
  );
}
