// The page's data: its head, the rows of the query table, and the details of queries, loaded on demand.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // The number of unpacked blocks to keep, so that stepping through queries unpacks each block once.
  const CACHE_SIZE = 8;
  const cache = new Map();

  const script = document.getElementById("karat-head");
  const head = script ? JSON.parse(script.textContent) : null;
  let allRows = null;

  function bytesOf(base64) {
    const text = atob(base64.trim());
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  async function unpack(element) {
    if (!("DecompressionStream" in window)) {
      throw new Error("This browser cannot unpack the queries; use one from 2023 or later.");
    }
    const packed = new Blob([bytesOf(element.textContent)]).stream();
    return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).json();
  }

  async function fetchJson(url) {
    const response = await fetch(url, { headers: { Accept: "application/json" } });
    const body = await response.json().catch(() => null);
    if (!response.ok) throw new Error((body && body.error) || `The server returned status ${response.status}.`);
    return body;
  }

  // Shares one promise per key; a failed one is dropped, so that the next call retries.
  function cached(key, load) {
    const promise = cache.get(key) || load();
    cache.delete(key);
    cache.set(key, promise);
    promise.catch(() => cache.delete(key));
    if (cache.size > CACHE_SIZE) cache.delete(cache.keys().next().value);
    return promise;
  }

  function rows() {
    if (!allRows) {
      const url = document.body.dataset.rows;
      allRows = url ? fetchJson(url) : unpack(document.getElementById("karat-rows"));
      allRows.catch(() => (allRows = null));
    }
    return allRows;
  }

  async function query(index) {
    const url = document.body.dataset.query;
    if (url) return cached(index, () => fetchJson(url.replace("{index}", index)));
    const blockNumber = Math.floor(index / head.block);
    const block = await cached(blockNumber, () =>
      unpack(document.querySelector(`.karat-block[data-block="${blockNumber}"]`)),
    );
    return { ...block.queries[index - blockNumber * head.block], texts: block.texts };
  }

  karat.data = { head, rows, query };
})();
