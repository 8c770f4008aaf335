// The query drawer: all that is known of one query, over the table that it was opened from.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make } = karat;
  const dialog = document.getElementById("drawer");
  // More systems than this are not set side by side; two of them are chosen.
  const BESIDE = 3;
  const LEGEND = "Lines join the same item: level at the same rank, rising or falling where it moved, "
    + "thick for gold, dashed where gold is outside the list.";
  let current = null;
  let pushed = false;
  let pair = null;
  let paired = null;
  let joined = null;
  let parts = null;

  async function open(row, { told = false } = {}) {
    const fresh = !dialog.open;
    current = row;
    const news = karat.table.visit(row, told ? null : { push: fresh });
    if (fresh) pushed = news;
    frame(row);
    if (fresh) dialog.showModal();
    focus(fresh);
    try {
      const detail = await karat.data.query(row);
      if (current === row) show(detail);
    } catch (error) {
      const notice = make("p", { class: "notice bad" }, `This query could not be read. ${error.message}`);
      if (current === row) parts.rest.replaceChildren(notice);
    }
  }

  // On the drawer itself arrows scroll; a button that goes on keeps the focus as long as it can.
  function focus(fresh) {
    const here = document.activeElement;
    if (fresh || here.disabled || !dialog.contains(here)) dialog.focus();
  }

  function close({ told = false } = {}) {
    dialog.close();
    left(told);
  }

  // However it was closed: by a button, Esc, or a browser's own way back.
  function left(told) {
    if (current === null || dialog.open) return;
    current = null;
    karat.table.leave({ told, pushed });
    pushed = false;
  }

  // Title and place are known from the table, so they stand there at once.
  function frame(row) {
    const { model, shown } = karat.table;
    const at = shown.indexOf(row);
    const count = (number) => number.toLocaleString("en");
    const text = model.rows.text[row];
    const long = text?.length > 200;
    parts ||= made();
    parts.place.textContent = at < 0 ? "not among the queries shown" : `${count(at + 1)} of ${count(shown.length)}`;
    for (const [by, button] of parts.steps) button.disabled = neighbour(by) === undefined;
    parts.title.textContent = text ?? "(this query has no text)";
    parts.title.classList.toggle("is-long", long);
    if (long) parts.title.tabIndex = 0;
    else parts.title.removeAttribute("tabindex");
    parts.rest.replaceChildren(make("p", { class: "muted" }, "Reading …"));
    dialog.scrollTop = 0;
  }

  function made() {
    const steps = [[-1, step(-1, "Previous", "k")], [1, step(1, "Next", "j")]];
    const place = make("span", { class: "muted num dr-place", role: "status" });
    const title = make("h2", { id: "drawer-title", class: "dr-title text", dir: "auto" });
    const rest = make("div", { class: "dr-rest" });
    dialog.replaceChildren(
      make("header", { class: "dr-head toolbar" }, steps.map(([, button]) => button), place,
        make("button", { type: "button", class: "button dr-close", onclick: () => close() }, "Close")),
      make("div", { class: "dr-body" }, title, rest));
    return { steps, place, title, rest };
  }

  function step(by, name, key) {
    return make("button", {
      type: "button", class: "button", "aria-keyshortcuts": key, title: `${name} (${key})`, onclick: () => go(by),
    }, name);
  }

  function show(detail) {
    const { facts, outcomes, measures, commands } = karat.outcomes;
    joined?.stop();
    parts.rest.replaceChildren(
      facts(detail),
      section("What happened", outcomes(detail, current)),
      section("Lists", lists(detail)),
      section("All measures", measures(current)),
      section("Reproduce", commands(detail)));
    joined.draw();
  }

  function section(title, ...children) {
    return make("div", { class: "dr-section" }, make("h3", {}, title), children);
  }

  function lists(detail) {
    const { head } = karat.data;
    const all = [...head.systems.keys()];
    const many = all.length > BESIDE;
    joined = new karat.JoinedLists(karat.lists.columnsOf(detail, many ? choice() : all));
    const notes = [detail.bm25 === null && bm25Lacks(head), head.texts].filter(Boolean);
    return [many && pickers(detail), make("p", { class: "muted small dr-legend" }, LEGEND, legendOfMoves()),
      notes.map((note) => make("p", { class: "muted small dr-lacks" }, note)), joined.element];
  }

  function legendOfMoves() {
    return joined.against !== null && [" ▲, ▼ and “new” compare with ", make("bdi", {}, joined.against), "."];
  }

  // Where some queries have BM25's list, what is said names them.
  function bm25Lacks({ bm25, bm25_depth: depth }) {
    return bm25 && (depth ? bm25 : `No BM25 list: ${bm25}`);
  }

  // With many systems: the baseline, or another, and the one that is looked at.
  function choice() {
    const { head } = karat.data;
    const looked = karat.table.state.system;
    if (!pair || paired !== looked) {
      pair = [head.baseline, looked === head.baseline ? (looked + 1) % head.systems.length : looked];
      paired = looked;
    }
    return pair;
  }

  function pickers(detail) {
    const pick = (side, label) => {
      const options = karat.data.head.systems.map((name, number) =>
        make("option", { value: number, selected: choice()[side] === number }, name));
      const control = make("select", { "data-side": side }, options);
      control.addEventListener("change", () => {
        pair[side] = Number(control.value);
        show(detail);
        dialog.querySelector(`[data-side="${side}"]`).focus();
      });
      return make("label", { class: "qt-field" }, make("span", {}, label), control);
    };
    return make("div", { class: "toolbar" }, pick(0, "Left"), pick(1, "Right"));
  }

  function neighbour(by) {
    const { shown } = karat.table;
    const at = shown.indexOf(current);
    return at < 0 ? undefined : shown[at + by];
  }

  function go(by) {
    const next = neighbour(by);
    if (next !== undefined) open(next);
  }

  function typed(event) {
    if (event.target.closest("select, input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") go(1);
    if (event.key === "k") go(-1);
  }

  // A click by keyboard has no place, so the target counts too.
  function beside(event) {
    return event.target === dialog && event.clientX < dialog.getBoundingClientRect().left;
  }

  karat.drawer = { open, close };
  if (dialog) {
    dialog.addEventListener("close", () => left(false));
    dialog.addEventListener("click", (event) => beside(event) && close());
    dialog.addEventListener("keydown", typed);
  }
})();
