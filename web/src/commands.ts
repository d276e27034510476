/** The command lines that do what the page does. */

/** A word as a POSIX shell takes it. */
export function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

export const line = (...words: readonly (string | false | null | undefined)[]): string =>
  ["vgpumgr", ...words.filter((word): word is string => Boolean(word))].map(quote).join(" ");

/** The line with a text on its standard input. */
export const withInput = (command: string, text: string): string => `${command} <<'EOF'\n${text}EOF`;
