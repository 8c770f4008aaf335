// Downloads of a report, generated in the page from its data; the same report gives the same bytes.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // The number of queries to load in parallel when collecting misses.
  const BATCH = 8;

  function save(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = karat.make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  // Like csv_cells.py: a quote before text that a spreadsheet would run as a formula, escaped control
  // characters, and numbers in full precision.
  const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;
  const NUMBER = /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/;
  const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;

  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const escaped = value.replace(CONTROL, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, "0")}`);
    const text = FORMULA.test(escaped) && !NUMBER.test(escaped) ? `'${escaped}` : escaped;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function csv(lines) {
    return lines.map((line) => `${line.map(cell).join(",")}\n`).join("");
  }

  // One row per system and query, one column per measure.
  function queriesCsv({ head, rows }) {
    const names = head.measures.map((measure) => measure.name);
    const lines = head.systems.flatMap((system, index) => rows.query_id.map((id, row) =>
      [system, id, head.statuses[rows.status[index][row]], ...names.map((name) => rows.values[name][index][row])]));
    return csv([["system", "query_id", "status", ...names], ...lines]);
  }

  // The queries and columns of the table as shown, in its order.
  function shownCsv({ model, state, shown }) {
    const { head, rows } = model;
    const compared = head.systems.length > 1;
    const selected = state.system;
    const names = [
      "query_id", "text", ...head.systems.map((system) => `${state.measure} ${system}`),
      ...(compared ? ["difference"] : []), "system", "status", "gold_rank", "class",
    ];
    const line = (row) => [
      rows.query_id[row], rows.text[row], ...head.systems.map((_, index) => model.value(row, index, state.measure)),
      ...(compared ? [model.delta(row, state)] : []), head.systems[selected],
      head.statuses[rows.status[selected][row]], rows.rank[selected][row], head.classes[rows.class[selected][row]],
    ];
    return csv([names, ...shown.map(line)]);
  }

  // Every miss of the selected system, with the gold items that it should have found.
  async function missesJson({ model, state }, report) {
    const { head, rows } = model;
    const missed = [...rows.query_id.keys()].filter((row) => rows.class[state.system][row] >= 0);
    const misses = [];
    for (let from = 0; from < missed.length; from += BATCH) {
      report(`Reading ${from} of ${missed.length} …`);
      const details = await Promise.all(missed.slice(from, from + BATCH).map(karat.data.query));
      misses.push(...details.map((detail) => ({
        query_id: detail.query_id,
        text: detail.text,
        class: head.classes[rows.class[state.system][detail.index]],
        gold: detail.gold.map((gold) => gold.item_id),
      })));
    }
    return `${JSON.stringify(misses, null, 2)}\n`;
  }

  const MAKERS = {
    "report.json": () => ["application/json", document.getElementById("karat-report").textContent],
    "queries.csv": () => ["text/csv", queriesCsv(karat.table.model)],
    "shown.csv": () => ["text/csv", shownCsv(karat.table)],
    "misses.json": async (report) => ["application/json", await missesJson(karat.table, report)],
  };

  async function download(button, status) {
    const name = button.dataset.download;
    status.textContent = "";
    try {
      const [type, text] = await MAKERS[name]((message) => (status.textContent = message));
      save(name, `${type};charset=utf-8`, text);
      status.textContent = `${name} was downloaded.`;
    } catch (error) {
      status.textContent = `${name} could not be created. ${error.message}`;
    }
  }

  function start() {
    const status = document.getElementById("download-says");
    for (const button of document.querySelectorAll("[data-download]")) {
      button.addEventListener("click", () => download(button, status));
    }
  }

  document.addEventListener("DOMContentLoaded", start);
})();
