// What lies behind the page: its head, the rows of the query table, and single queries when asked for.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // Unpacked blocks that are kept, so that going from query to query reads each block once.
  const KEPT = 8;
  const kept = new Map();

  const script = document.getElementById("karat-head");
  const head = script ? JSON.parse(script.textContent) : null;
  let allRows = null;

  function bytesOf(base64) {
    const text = atob(base64.trim());
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  async function unpacked(element) {
    if (!("DecompressionStream" in window)) {
      throw new Error("This browser cannot unpack the queries; one from 2023 or later can.");
    }
    const packed = new Blob([bytesOf(element.textContent)]).stream();
    return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).json();
  }

  async function fetched(url) {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    const body = await answer.json().catch(() => null);
    if (!answer.ok) throw new Error((body && body.error) || `The server answered ${answer.status}.`);
    return body;
  }

  // The same promise for everyone who asks; one that failed is forgotten, so that it can be tried again.
  function remembered(key, load) {
    const found = kept.get(key) || load();
    kept.delete(key);
    kept.set(key, found);
    found.catch(() => kept.delete(key));
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    return found;
  }

  function rows() {
    if (!allRows) {
      const url = document.body.dataset.rows;
      allRows = url ? fetched(url) : unpacked(document.getElementById("karat-rows"));
      allRows.catch(() => (allRows = null));
    }
    return allRows;
  }

  async function query(index) {
    const url = document.body.dataset.query;
    if (url) return remembered(index, () => fetched(url.replace("{index}", index)));
    const number = Math.floor(index / head.block);
    const block = await remembered(number, () =>
      unpacked(document.querySelector(`.karat-block[data-block="${number}"]`)),
    );
    return { ...block.queries[index - number * head.block], texts: block.texts };
  }

  karat.data = { head, rows, query };
})();
