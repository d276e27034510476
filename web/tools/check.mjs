// What the compiler does not see: no HTML from data, texts in one file, no long files, types in step with the API.
import { readdirSync, readFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const source = fileURLToPath(new URL("../src/", import.meta.url));
const problems = [];
const FORBIDDEN = /innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\(|new Function|srcdoc|createContextualFragment/;
// words between tags, and words in what a screen reader says
const TEXT = />\s*[A-Za-z][a-z]+[^<>{}=()]*<\/|(?:aria-label|title|placeholder|alt)="[A-Za-z]/;
// texts, the layout file, and units; the API's types
const MAY_HAVE_WORDS = new Set(["texts.ts", "actions.ts", "format.ts", "api.ts"]);

/** Whether a template has words of its own, beside names of classes. */
function hasWords(line) {
  if (/^\s*(\/\/|\/\*|\*)/.test(line)) return false;
  const templates = [...line.matchAll(/(class=\{)?`((?:[^`$]|\$\{[^{}]*\})*)`/g)];
  return templates.some(([, isClass, text]) => !isClass && /(^| )[A-Za-z]{2,}( |$|[,.])/.test(text.replace(/\$\{[^{}]*\}/g, "\0")));
}

for (const name of readdirSync(source)) {
  if (!/\.tsx?$/.test(name)) continue;
  const lines = readFileSync(source + name, "utf8").split("\n");
  if (lines.length > 400 && name !== "api.ts") problems.push(`${name}: ${lines.length} lines, at most 400`);
  lines.forEach((line, index) => {
    if (FORBIDDEN.test(line)) problems.push(`${name}:${index + 1}: writes HTML or runs text`);
    if ((name.endsWith(".tsx") && TEXT.test(line)) || (!MAY_HAVE_WORDS.has(name) && hasWords(line))) problems.push(`${name}:${index + 1}: a text outside texts.ts`);
    if (/https?:\/\/(?!www\.w3\.org)/.test(line)) problems.push(`${name}:${index + 1}: an address of another host`);
  });
}
if (problems.length) {
  console.error(problems.join("\n"));
  process.exit(1);
}
execFileSync(process.execPath, [fileURLToPath(new URL("types.mjs", import.meta.url)), "--check"], { stdio: "inherit" });
