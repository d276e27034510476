"use strict";
// Search without a server: search.js has all sections of all pages.
(() => {
  const top = document.currentScript.dataset.top;
  const field = document.getElementById("search");
  const found = document.getElementById("found");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = [];
    for (const [title, url, text] of words.length ? window.SECTIONS : []) {
      const head = title.toLowerCase(), body = text.toLowerCase();
      if (words.every((word) => head.includes(word) || body.includes(word)))
        hits.push([words.filter((word) => head.includes(word)).length, title, url]);
    }
    hits.sort((a, b) => b[0] - a[0]);
    found.replaceChildren(...hits.slice(0, 25).map(([, title, url]) => {
      const link = document.createElement("a");
      link.href = top + url;
      link.textContent = title;
      const item = document.createElement("li");
      item.append(link);
      return item;
    }));
    found.hidden = !words.length;
    if (words.length && !hits.length) found.textContent = "nothing found";
  });
})();
