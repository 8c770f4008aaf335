// The query drawer: the details of one query, shown over the table that it was opened from.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make } = karat;
  const dialog = document.getElementById("drawer");
  // With more systems than this, the user selects two to show side by side.
  const MOST_COLUMNS = 3;
  const LEGEND = "Lines connect the same item in neighbouring lists, and rise or fall with its rank. Thick: gold. "
    + "Dashed: gold outside the list.";
  let current = null;
  let pushedHistory = false;
  let pair = null;
  let pairedWith = null;
  let joined = null;
  let parts = null;

  async function open(row, { fromAddress = false } = {}) {
    const wasClosed = !dialog.open;
    current = row;
    const pushedNow = karat.table.visit(row, fromAddress ? null : { push: wasClosed });
    if (wasClosed) pushedHistory = pushedNow;
    showFrame(row);
    if (wasClosed) dialog.showModal();
    keepFocus(wasClosed);
    try {
      const detail = await karat.data.query(row);
      if (current === row) showDetail(detail);
    } catch (error) {
      const notice = make("p", { class: "notice bad" }, `This query could not be read. ${error.message}`);
      if (current === row) parts.rest.replaceChildren(notice);
    }
  }

  // With the focus on the drawer, arrow keys scroll it; Previous and Next keep the focus while enabled.
  function keepFocus(wasClosed) {
    const focused = document.activeElement;
    if (wasClosed || focused.disabled || !dialog.contains(focused)) dialog.focus();
  }

  function close({ fromAddress = false } = {}) {
    dialog.close();
    onClosed(fromAddress);
  }

  // Runs however the drawer was closed: by a button, Esc or the browser's back button.
  function onClosed(fromAddress) {
    if (current === null || dialog.open) return;
    current = null;
    karat.table.leave({ fromAddress, pushed: pushedHistory });
    pushedHistory = false;
  }

  // The table already has the title and position, so they are shown immediately.
  function showFrame(row) {
    const { model, shown } = karat.table;
    const index = shown.indexOf(row);
    const count = (number) => number.toLocaleString("en");
    const text = model.rows.text[row];
    const isLong = text?.length > 200;
    parts ||= createFrame();
    parts.position.textContent = index < 0 ? "not in the table" : `${count(index + 1)} of ${count(shown.length)}`;
    for (const [step, button] of parts.steps) button.disabled = neighbour(step) === undefined;
    parts.title.textContent = text ?? "(this query has no text)";
    parts.title.classList.toggle("is-long", isLong);
    if (isLong) parts.title.tabIndex = 0;
    else parts.title.removeAttribute("tabindex");
    parts.rest.replaceChildren(make("p", { class: "muted" }, "Reading …"));
    dialog.scrollTop = 0;
  }

  function createFrame() {
    const steps = [[-1, stepButton(-1, "Previous", "k")], [1, stepButton(1, "Next", "j")]];
    const position = make("span", { class: "muted num dr-place", role: "status" });
    const title = make("h2", { id: "drawer-title", class: "dr-title text", dir: "auto" });
    const rest = make("div", { class: "dr-rest" });
    dialog.replaceChildren(
      make("header", { class: "dr-head toolbar" }, steps.map(([, button]) => button), position,
        make("button", { type: "button", class: "button dr-close", onclick: () => close() }, "Close")),
      make("div", { class: "dr-body" }, title, rest));
    return { steps, position, title, rest };
  }

  function stepButton(step, name, key) {
    return make("button", {
      type: "button", class: "button", "aria-keyshortcuts": key, title: `${name} (${key})`, onclick: () => goTo(step),
    }, name);
  }

  function showDetail(detail) {
    const { facts, outcomes, measures, commands } = karat.outcomes;
    joined?.stop();
    parts.rest.replaceChildren(
      facts(detail),
      createSection("What happened", outcomes(detail, current)),
      createSection("Lists", listSection(detail)),
      createSection("All measures", measures(current)),
      createSection("Reproduce", commands(detail)));
    joined.draw();
  }

  function createSection(title, ...children) {
    return make("div", { class: "dr-section" }, make("h3", {}, title), children);
  }

  function listSection(detail) {
    const { head } = karat.data;
    const systems = [...head.systems.keys()];
    const tooMany = systems.length > MOST_COLUMNS;
    joined = new karat.JoinedLists(karat.lists.columnsOf(detail, tooMany ? chosenPair() : systems));
    const notes = [detail.bm25 === null && missingBm25(head), head.texts].filter(Boolean);
    return [tooMany && systemPickers(detail), make("p", { class: "muted small dr-legend" }, LEGEND, moveLegend()),
      notes.map((note) => make("p", { class: "muted small dr-lacks" }, note)), joined.element];
  }

  function moveLegend() {
    return joined.baselineName !== null && [" ▲, ▼ and “new” compare with ", make("bdi", {}, joined.baselineName), "."];
  }

  // If BM25 was searched for some queries, the note says which.
  function missingBm25({ bm25, bm25_depth: depth }) {
    return bm25 && (depth ? bm25 : `No BM25 list: ${bm25}`);
  }

  // Returns the two systems to show: by default the baseline and the selected system.
  function chosenPair() {
    const { head } = karat.data;
    const selected = karat.table.state.system;
    if (!pair || pairedWith !== selected) {
      pair = [head.baseline, selected === head.baseline ? (selected + 1) % head.systems.length : selected];
      pairedWith = selected;
    }
    return pair;
  }

  function systemPickers(detail) {
    const picker = (side, label) => {
      const options = karat.data.head.systems.map((name, index) =>
        make("option", { value: index, selected: chosenPair()[side] === index }, name));
      const control = make("select", { "data-side": side }, options);
      control.addEventListener("change", () => {
        pair[side] = Number(control.value);
        showDetail(detail);
        dialog.querySelector(`[data-side="${side}"]`).focus();
      });
      return make("label", { class: "qt-field" }, make("span", {}, label), control);
    };
    return make("div", { class: "toolbar" }, picker(0, "Left"), picker(1, "Right"));
  }

  function neighbour(step) {
    const { shown } = karat.table;
    const position = shown.indexOf(current);
    return position < 0 ? undefined : shown[position + step];
  }

  function goTo(step) {
    const next = neighbour(step);
    if (next !== undefined) open(next);
  }

  function onKeydown(event) {
    if (event.target.closest("select, input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") goTo(1);
    if (event.key === "k") goTo(-1);
  }

  // A click from the keyboard has no coordinates, so the target is checked too.
  function clickedOutside(event) {
    return event.target === dialog && event.clientX < dialog.getBoundingClientRect().left;
  }

  karat.drawer = { open, close };
  if (dialog) {
    dialog.addEventListener("close", () => onClosed(false));
    dialog.addEventListener("click", (event) => clickedOutside(event) && close());
    dialog.addEventListener("keydown", onKeydown);
  }
})();
