// Stores the table's state after # in the address, so that a link reproduces it, on a server or in a file.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // An anchor such as #systems holds no state.
  const stateful = () => location.hash.includes("=");

  function params() {
    return new URLSearchParams(stateful() ? location.hash.slice(1) : "");
  }

  // Writes the table's state and the open query to the address; returns true if that changed it.
  function write(tableParams, query, { push = false } = {}) {
    const hashParams = new URLSearchParams(tableParams);
    if (query !== null) hashParams.set("q", query);
    const hash = String(hashParams) ? `#${hashParams}` : "";
    if (hash === location.hash || (!hash && !stateful())) return false;
    const url = hash || location.href.split("#")[0];
    if (push) history.pushState(null, "", url);
    else history.replaceState(history.state, "", url);
    return true;
  }

  karat.place = { params, stateful, write };
})();
