/** The command lines that do what the page does. */

import { getState } from "./store";

/** A word as a POSIX shell takes it. */
export function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

const PROGRAM = "vgpumgr";

/** The program, with the host or machine that this page shows: the command acts there, wherever it is pasted. */
const program = (): string => getState().server?.command ?? PROGRAM;

export const line = (...words: readonly (string | false | null | undefined)[]): string =>
  [program(), ...words.filter((word): word is string => Boolean(word)).map(quote)].join(" ");

/** A command about one host alone, as those of its pool: of another host it is said by ssh. */
export const lineThere = (...words: readonly string[]): string => line(...words).replace(/^(.*?) --host (\S+)/, "ssh $2 $1");

export const isCommand = (hint: string): boolean => hint.startsWith(`${PROGRAM} `);

/** A daemon's hint, which knows nothing of the way to it. */
export const aim = (hint: string): string => (isCommand(hint) ? program() + hint.slice(PROGRAM.length) : hint);

/** The line with a text on its standard input. */
export const withInput = (command: string, text: string): string => `${command} <<'EOF'\n${text}EOF`;
