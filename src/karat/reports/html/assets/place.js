// The part of the address after #: a link reproduces what is shown, on a server and as a file.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // An anchor such as #systems is nobody's state.
  const stateful = () => location.hash.includes("=");

  function params() {
    return new URLSearchParams(stateful() ? location.hash.slice(1) : "");
  }

  // Writes what the table shows and which query is open; a step back undoes what was pushed. True if it was news.
  function write(shown, query, { push = false } = {}) {
    const next = new URLSearchParams(shown);
    if (query !== null) next.set("q", query);
    const hash = String(next) ? `#${next}` : "";
    if (hash === location.hash || (!hash && !stateful())) return false;
    const url = hash || location.href.split("#")[0];
    if (push) history.pushState(null, "", url);
    else history.replaceState(history.state, "", url);
    return true;
  }

  karat.place = { params, stateful, write };
})();
