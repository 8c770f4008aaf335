"use strict";

// The query explorer: searches the selected systems as you type and shows the results side by side.
// Each system has at most one request in flight; a response to an outdated query is discarded.
(function () {
  const form = document.getElementById("question");
  if (!form) return;
  const PAUSE = 200;
  const text = document.getElementById("text");
  const k = document.getElementById("k");
  const columns = document.getElementById("columns");
  const status = document.getElementById("explore-status");
  const suggestions = document.getElementById("suggestions");
  const boxes = [...form.querySelectorAll("input[name=system]")];
  const rel = Number(form.dataset.rel);
  const introduction = status.textContent;
  const columnsByName = new Map();
  let question = { text: "", k: 10 };

  function createColumn(name) {
    const panel = document.getElementById("column").content.cloneNode(true).firstElementChild;
    panel.querySelector("h2").textContent = name;
    panel.setAttribute("aria-label", name);
    return { name, element: panel, busy: false, answered: null, result: null, error: null };
  }

  // Shows a column for each selected system, in karat.yaml order. Columns that remain keep their
  // results.
  function updateColumns() {
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    for (const name of [...columnsByName.keys()]) {
      if (!chosen.includes(name)) columnsByName.delete(name);
    }
    for (const name of chosen) {
      if (!columnsByName.has(name)) columnsByName.set(name, createColumn(name));
    }
    const ordered = chosen.map((name) => [name, columnsByName.get(name)]);
    columnsByName.clear();
    for (const [name, column] of ordered) columnsByName.set(name, column);
    columns.replaceChildren(...ordered.map(([, column]) => column.element));
  }

  function readQuestion() {
    const requested = k.value.trim() ? Math.round(Number(k.value)) : NaN;
    const depth = Number.isFinite(requested) ? Math.min(Math.max(requested, 1), Number(k.max)) : 10;
    return { text: text.value.trim(), k: depth };
  }

  function sameQuestion(first, second) {
    return first && second && first.text === second.text && first.k === second.k;
  }

  function refresh() {
    question = readQuestion();
    updateColumns();
    writeAddress();
    for (const column of columnsByName.values()) {
      if (question.text) search(column);
      else clear(column);
    }
    for (const column of columnsByName.values()) updateRankChanges(column);
    updateStatus();
  }

  async function search(column) {
    if (column.busy || (sameQuestion(column.answered, question) && !column.error)) return;
    const sent = question;
    column.answered = null;
    column.busy = true;
    column.element.setAttribute("aria-busy", "true");
    let result = null;
    let error = null;
    try {
      result = await karat.api.post("/api/search", { system: column.name, ...sent });
    } catch (failure) {
      error = failure.message;
    }
    column.busy = false;
    if (columnsByName.get(column.name) !== column) return;
    if (!sameQuestion(sent, question)) {
      if (question.text) search(column);
      else clear(column);
      return;
    }
    Object.assign(column, { answered: sent, result, error });
    column.element.removeAttribute("aria-busy");
    render(column);
    for (const visible of columnsByName.values()) updateRankChanges(visible);
    updateStatus();
  }

  function clear(column) {
    Object.assign(column, { answered: null, result: null, error: null });
    column.element.removeAttribute("aria-busy");
    render(column);
  }

  function render(column) {
    const problem = column.element.querySelector(".problem");
    problem.hidden = !column.error;
    problem.textContent = column.error || "";
    const took = column.element.querySelector(".took");
    took.textContent = column.result ? `${formatMilliseconds(column.result.latency_ms)} ms` : "";
    const hits = column.result ? column.result.hits : [];
    const queryTerms = terms(question.text);
    const rows = hits.map((hit) => row(hit, queryTerms));
    if (column.result && !rows.length) rows.push(element("li", "nothing muted", "No results."));
    column.element.querySelector("ol").replaceChildren(...rows);
    const note = column.element.querySelector(".instead");
    const notes = column.result ? [column.result.rewritten, column.result.source] : [null, null];
    note.textContent = [
      notes[0] === null || notes[0] === question.text ? "" : `searched for: ${notes[0]}`,
      notes[1] === null ? "" : `from ${notes[1]}`,
    ]
      .filter(Boolean)
      .join("; ");
    note.hidden = !note.textContent;
    updateGoldLine(column);
    collapseLongTexts(column.element);
  }

  function formatMilliseconds(value) {
    return value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
  }

  // Returns the ranks in the first column, which the other columns are compared with.
  function baselineRanks(column) {
    const [first] = columnsByName.values();
    if (first === column || !first.result || !sameQuestion(first.answered, column.answered)) return null;
    return { name: first.name, byItem: new Map(first.result.hits.map((hit) => [hit.item_id, hit.rank])) };
  }

  // Rank changes depend on the first column, whose results may arrive last; only they are redrawn.
  function updateRankChanges(column) {
    const ranks = column.result && baselineRanks(column);
    for (const [index, listItem] of [...column.element.querySelectorAll("li[data-item]")].entries()) {
      listItem.querySelector(".move")?.remove();
      if (ranks) listItem.querySelector(".marks").append(rankChange(column.result.hits[index], ranks));
    }
  }

  function row(hit, queryTerms) {
    const listItem = document.getElementById("hit").content.cloneNode(true).firstElementChild;
    listItem.dataset.item = hit.item_id;
    listItem.querySelector(".rank").textContent = hit.rank;
    listItem.querySelector(".item").textContent = hit.item_id;
    listItem.querySelector(".score").textContent = hit.score === null ? "" : formatScore(hit.score);
    const marks = listItem.querySelector(".marks");
    const gold = hit.grade !== null && hit.grade >= rel;
    listItem.classList.toggle("is-gold", gold);
    if (gold) marks.append(element("span", "badge good", `gold ${hit.grade}`));
    else if (hit.grade !== null) marks.append(element("span", "badge", `grade ${hit.grade}`));
    const body = listItem.querySelector(".text");
    if (hit.text === null) {
      body.classList.add("muted");
      body.textContent = "No text: the item is not in the corpus.";
    } else {
      highlight(body, hit.text + (hit.cut ? " …" : ""), queryTerms);
    }
    return listItem;
  }

  function formatScore(value) {
    const size = Math.abs(value);
    return size >= 1000 || (size > 0 && size < 0.001) ? value.toExponential(2) : value.toFixed(3);
  }

  // Compares with the rank in the first column: a symbol to see, a sentence for screen readers.
  function rankChange(hit, ranks) {
    const baselineRank = ranks.byItem.get(hit.item_id);
    const moved = baselineRank === undefined ? null : baselineRank - hit.rank;
    const sign = moved === null ? "new" : moved > 0 ? `▲ ${moved}` : moved < 0 ? `▼ ${-moved}` : "=";
    const sentence =
      moved === null ? `not in the results of ${ranks.name}` : `rank ${baselineRank} in ${ranks.name}`;
    const badge = element("span", `move muted ${moved === null ? "new" : ""}`, "");
    badge.title = sentence;
    const icon = element("span", "", sign);
    icon.setAttribute("aria-hidden", "true");
    badge.append(icon, element("span", "visually-hidden", sentence));
    return badge;
  }

  function updateGoldLine(column) {
    const line = column.element.querySelector(".gold");
    const gold = column.result ? column.result.gold : [];
    line.hidden = !column.result || column.result.query_id === null;
    if (line.hidden) return;
    const ranks = gold.filter((item) => item.rank !== null).map((item) => item.rank);
    const missed = gold.filter((item) => item.rank === null).map((item) => item.item_id);
    const parts = [];
    if (ranks.length) parts.push(`gold at rank ${ranks.sort((a, b) => a - b).join(", ")}`);
    if (missed.length) parts.push(`not in the top ${column.answered.k}: ${firstThree(missed)}`);
    if (!gold.length) parts.push("no gold for this query");
    line.textContent = `${column.result.query_id}: ${parts.join("; ")}`;
  }

  function firstThree(names) {
    const remaining = names.length - 3;
    return names.slice(0, 3).join(", ") + (remaining > 0 ? ` and ${remaining} more` : "");
  }

  function terms(query) {
    const words = query.toLocaleLowerCase().match(/[\p{L}\p{M}\p{N}]+/gu) || [];
    // Skip short words such as "to" and "is", unless the query has no others.
    const significant = words.filter((word) => word.length > 2);
    return significant.length ? significant : words;
  }

  // Only text nodes and <mark> elements, so that markup in the text is never interpreted.
  function highlight(container, content, queryTerms) {
    const termSet = new Set(queryTerms);
    let plainText = "";
    for (const piece of content.split(/([\p{L}\p{M}\p{N}]+)/u)) {
      if (termSet.has(piece.toLocaleLowerCase())) {
        container.append(plainText, element("mark", "", piece));
        plainText = "";
      } else {
        plainText += piece;
      }
    }
    container.append(plainText);
  }

  // Collapses long texts to their first lines, with a button to expand them.
  function collapseLongTexts(container) {
    for (const body of container.querySelectorAll("li > .text")) {
      if (body.scrollHeight <= body.clientHeight + 2) continue;
      const button = element("button", "more", "Show all");
      button.type = "button";
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => {
        const open = body.classList.toggle("open");
        button.setAttribute("aria-expanded", String(open));
        button.textContent = open ? "Show less" : "Show all";
      });
      body.after(button);
    }
  }

  function updateStatus() {
    if (!question.text) {
      status.textContent = introduction;
      return;
    }
    if (!columnsByName.size) {
      status.textContent = "Select a system to search.";
      return;
    }
    const pending = [...columnsByName.values()].filter((column) => !sameQuestion(column.answered, question));
    if (pending.length) {
      const names = pending.flatMap((column, index) => [index ? ", " : "", columnName(column)]);
      status.replaceChildren("Searching ", ...names, " …");
      return;
    }
    const outcome = (column) => (column.error ? " failed" : `: ${count(column.result.hits)}`);
    const parts = [...columnsByName.values()].flatMap((column) => ["; ", columnName(column), outcome(column)]);
    status.replaceChildren(...parts.slice(1));
  }

  // <bdi> keeps a right-to-left name from reordering the text around it.
  function columnName(column) {
    return element("bdi", "", column.name);
  }

  function count(hits) {
    return hits.length === 1 ? "1 hit" : `${hits.length} hits`;
  }

  async function updateSuggestions() {
    const typedText = text.value.trim();
    let result;
    try {
      result = await karat.api.get(`/api/queries?limit=20&search=${encodeURIComponent(typedText)}`);
    } catch {
      return; // Suggestions are optional.
    }
    if (text.value.trim() !== typedText) return;
    suggestions.replaceChildren(
      ...result.queries.map((query) => {
        const option = element("option", "", query.query_id);
        option.value = query.text;
        return option;
      }),
    );
  }

  function element(name, classes, content) {
    const node = document.createElement(name);
    if (classes) node.className = classes.trim();
    node.textContent = content;
    return node;
  }

  // The address holds the query, so that it can be bookmarked and shared.
  function writeAddress() {
    const params = new URLSearchParams();
    if (question.text) params.set("q", question.text);
    if (question.k !== 10) params.set("k", question.k);
    for (const name of columnsByName.keys()) params.append("system", name);
    history.replaceState(null, "", `?${params}`);
  }

  function readAddress() {
    const params = new URLSearchParams(location.search);
    text.value = params.get("q") || "";
    if (params.has("k")) k.value = params.get("k");
    const chosen = params.getAll("system");
    if (chosen.length) for (const box of boxes) box.checked = chosen.includes(box.value);
  }

  function highlightItem(event, on) {
    const row = event.target.closest("li[data-item]");
    for (const item of columns.querySelectorAll("li.same")) item.classList.remove("same");
    if (!on || !row) return;
    for (const item of columns.querySelectorAll("li[data-item]")) {
      item.classList.toggle("same", item.dataset.item === row.dataset.item);
    }
  }

  let timer = 0;
  function scheduleChange() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      refresh();
      updateSuggestions();
    }, PAUSE);
  }

  text.addEventListener("input", scheduleChange);
  k.addEventListener("input", scheduleChange);
  k.addEventListener("change", () => (k.value = readQuestion().k));
  for (const box of boxes) box.addEventListener("change", refresh);
  columns.addEventListener("mouseover", (event) => highlightItem(event, true));
  columns.addEventListener("mouseleave", (event) => highlightItem(event, false));
  // Browsers do not submit a form with two fields and no button on Enter.
  form.addEventListener("keydown", (event) => event.key === "Enter" && form.requestSubmit());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    refresh();
  });

  readAddress();
  refresh();
  updateSuggestions();
  if (!text.value) text.focus();
})();
