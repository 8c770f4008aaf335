// Downloads of a report: made in the page from what it already holds, the same bytes every time.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // So many queries are asked for at once while misses are gathered.
  const AT_ONCE = 8;

  function save(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = karat.make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  // Texts as csv_cells.py writes them: a quote before what a spreadsheet would take for a formula,
  // control characters spelled out. Numbers are written in full.
  const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;
  const NUMBER = /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/;
  const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;

  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const plain = value.replace(CONTROL, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
    const text = FORMULA.test(plain) && !NUMBER.test(plain) ? `'${plain}` : plain;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function csv(lines) {
    return lines.map((line) => `${line.map(cell).join(",")}\n`).join("");
  }

  // One row a system and query, one column a measure.
  function queriesCsv({ head, rows }) {
    const names = head.measures.map((one) => one.name);
    const lines = head.systems.flatMap((system, number) => rows.query_id.map((id, row) =>
      [system, id, head.statuses[rows.status[number][row]], ...names.map((name) => rows.values[name][number][row])]));
    return csv([["system", "query_id", "status", ...names], ...lines]);
  }

  // The queries that the table shows, in its order, with what it shows of them.
  function shownCsv({ model, state, shown }) {
    const { head, rows } = model;
    const compared = head.systems.length > 1;
    const own = state.system;
    const names = [
      "query_id", "text", ...head.systems.map((system) => `${state.measure} ${system}`),
      ...(compared ? ["difference"] : []), "system", "status", "gold_rank", "class",
    ];
    const line = (row) => [
      rows.query_id[row], rows.text[row], ...head.systems.map((_, number) => model.value(row, number, state.measure)),
      ...(compared ? [model.delta(row, state)] : []), head.systems[own], head.statuses[rows.status[own][row]],
      rows.rank[own][row], head.classes[rows.class[own][row]],
    ];
    return csv([names, ...shown.map(line)]);
  }

  // Every miss of the system that is looked at, with the gold that it should have found.
  async function missesJson({ model, state }, told) {
    const { head, rows } = model;
    const missed = [...rows.query_id.keys()].filter((row) => rows.class[state.system][row] >= 0);
    const found = [];
    for (let at = 0; at < missed.length; at += AT_ONCE) {
      told(`Reading ${at} of ${missed.length} …`);
      const details = await Promise.all(missed.slice(at, at + AT_ONCE).map(karat.data.query));
      found.push(...details.map((detail) => ({
        query_id: detail.query_id,
        text: detail.text,
        class: head.classes[rows.class[state.system][detail.index]],
        gold: detail.gold.map((gold) => gold.item_id),
      })));
    }
    return `${JSON.stringify(found, null, 2)}\n`;
  }

  const MAKERS = {
    "report.json": () => ["application/json", document.getElementById("karat-report").textContent],
    "queries.csv": () => ["text/csv", queriesCsv(karat.table.model)],
    "shown.csv": () => ["text/csv", shownCsv(karat.table)],
    "misses.json": async (told) => ["application/json", await missesJson(karat.table, told)],
  };

  async function clicked(button, says) {
    const name = button.dataset.download;
    says.textContent = "";
    try {
      const [type, text] = await MAKERS[name]((told) => (says.textContent = told));
      save(name, `${type};charset=utf-8`, text);
      says.textContent = `${name} is on its way.`;
    } catch (error) {
      says.textContent = `${name} could not be made. ${error.message}`;
    }
  }

  function start() {
    const says = document.getElementById("download-says");
    for (const button of document.querySelectorAll("[data-download]")) {
      button.addEventListener("click", () => clicked(button, says));
    }
  }

  document.addEventListener("DOMContentLoaded", start);
})();
