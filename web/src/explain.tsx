/** Why a claim is where it is, or is not: each host with its score as a bar, or with the reason that excludes it. */

import { useCallback } from "preact/hooks";
import type { ClaimCandidateDocument, ClaimExplainDocument } from "./api";
import { MANY_ROWS, describeSize } from "./claims";
import { lineThere } from "./commands";
import { gpus } from "./format";
import { get } from "./live";
import { Command, Fact, Section, Table } from "./parts";
import { Outage } from "./pool";
import { usePool } from "./poolread";
import { T } from "./texts";

/** So many bars are drawn. */
const MANY_BARS = 40;
const BAR_HEIGHT = 16;
/** The least bar, in percent: the best score has one, too. */
const LEAST = 6;

export function ExplainView({ name }: { name: string }) {
  const read = useCallback(() => get<ClaimExplainDocument>(`/1.0/pool/claims/${encodeURIComponent(name)}/explain`), [name]);
  const answer = usePool(read);
  return (
    <>
      <div class="panel-head">
        <h1>{T.pool.claimTitle(name)}</h1>
        <span class="head-actions"><a href="#/pool">{T.pool.back}</a></span>
      </div>
      <Outage answer={answer} />
      {answer.document && <Explained document={answer.document} />}
      <Command text={lineThere("claim", "explain", name)} />
    </>
  );
}

function Explained({ document: { claim, hosts } }: { document: ClaimExplainDocument }) {
  const drawn = hosts.slice(0, MANY_BARS);
  const rows = hosts.slice(0, MANY_ROWS);
  const chosen = hosts.find((host) => host.chosen)?.name ?? null;
  const lengths = measure(drawn);
  return (
    <>
      <dl class="facts pool-facts">
        <Fact name={T.state}>{claim.state}</Fact>
        <Fact name={T.pool.size}>{describeSize(claim)}</Fact>
        {claim.lease && <Fact name={T.pool.usedBy}>{claim.used_by ? `${claim.used_by.kind} ${claim.used_by.name}` : T.nothing}</Fact>}
        {claim.place !== null && <Fact name={T.pool.place}>{claim.place}</Fact>}
        {claim.why && <Fact name={T.pool.reason}>{claim.why}</Fact>}
      </dl>
      <Section title={T.pool.candidates}>
        <p class="muted small">{T.pool.scoreHelp}</p>
        <div role="img" aria-label={T.pool.picture(chosen, hosts.filter((host) => host.score !== null).length, hosts.length)}>
          <ul class="candidates" aria-hidden="true">
            {drawn.map((host, index) => <Bar key={`${host.name}/${host.model}`} host={host} length={lengths[index] ?? null} />)}
          </ul>
        </div>
        <Table label={T.pool.candidates} heads={[T.name, T.pool.model, T.pool.freeGpus, T.pool.chosen, T.pool.score, T.pool.reason]}>
          {rows.map((host) => (
            <tr key={`${host.name}/${host.model}`} data-candidate={host.name}>
              <td>{host.name}</td>
              <td>{host.model}</td>
              <td>{Object.values(host.free_milli).map(gpus).join(", ")}</td>
              <td>{host.chosen ? T.yes : T.no}</td>
              <td class="mono">{host.score === null ? "-" : formatScore(host.score)}</td>
              <td class="reason">{host.why}</td>
            </tr>
          ))}
        </Table>
        {rows.length < hosts.length && <p class="muted">{T.pool.more(rows.length, hosts.length)}</p>}
      </Section>
    </>
  );
}

const formatScore = (score: readonly number[]): string => score.map((figure) => String(Number(figure.toPrecision(6)))).join(", ");

/** The length of each bar in percent, by the first figure in which the scores differ: that decides. Null: no score. */
function measure(hosts: readonly ClaimCandidateDocument[]): readonly (number | null)[] {
  const scores = hosts.flatMap((host) => (host.score === null ? [] : [host.score]));
  const size = scores[0]?.length ?? 0;
  let at = 0;
  while (at < size - 1 && scores.every((score) => score[at] === scores[0]?.[at])) at += 1;
  const figures = scores.map((score) => score[at] ?? 0);
  const least = Math.min(...figures);
  const span = Math.max(...figures) - least;
  return hosts.map(({ score }) => (score === null ? null : LEAST + (span > 0 ? ((score[at] ?? 0) - least) / span : 0) * (100 - LEAST)));
}

function Bar({ host, length }: { host: ClaimCandidateDocument; length: number | null }) {
  const kind = length === null ? "none" : host.chosen ? "chosen" : "";
  return (
    <li data-bar={host.name}>
      <div>
        <strong>{host.name}</strong> {host.model} {host.chosen && <span class="badge">{T.pool.chosen}</span>}
      </div>
      <svg width="100%" height={BAR_HEIGHT}>
        <rect x="1" y="1" width={`${(length ?? 100) * 0.99}%`} height={BAR_HEIGHT - 2} rx="3" class={`score-bar ${kind}`} />
        {host.chosen && length !== null && <rect x="1" y="1" width={`${length * 0.99}%`} height={BAR_HEIGHT - 2} rx="3" fill="url(#texture-idle)" opacity=".25" />}
      </svg>
      <div class="muted small">{host.score !== null && `${formatScore(host.score)}: `}{host.why}</div>
    </li>
  );
}
