"use strict";

// The query explorer: asks each chosen system as one types, and shows the lists side by side.
// A system has one question under way at most; an answer to an older one is dropped.
(function () {
  const form = document.getElementById("question");
  if (!form) return;
  const PAUSE = 200;
  const text = document.getElementById("text");
  const k = document.getElementById("k");
  const columns = document.getElementById("columns");
  const told = document.getElementById("told");
  const suggestions = document.getElementById("suggestions");
  const boxes = [...form.querySelectorAll("input[name=system]")];
  const rel = Number(form.dataset.rel);
  const hello = told.textContent;
  const shown = new Map();
  let question = { text: "", k: 10 };

  function column(name) {
    const made = document.getElementById("column").content.cloneNode(true).firstElementChild;
    made.querySelector("h2").textContent = name;
    made.setAttribute("aria-label", name);
    return { name, place: made, busy: false, asked: null, answer: null, error: null };
  }

  // The columns of the chosen systems, in the order of the karat.yaml; those that stay keep
  // their lists.
  function arrange() {
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    for (const name of [...shown.keys()]) {
      if (!chosen.includes(name)) shown.delete(name);
    }
    for (const name of chosen) {
      if (!shown.has(name)) shown.set(name, column(name));
    }
    const ordered = chosen.map((name) => [name, shown.get(name)]);
    shown.clear();
    for (const [name, one] of ordered) shown.set(name, one);
    columns.replaceChildren(...ordered.map(([, one]) => one.place));
  }

  function wish() {
    const number = k.value.trim() ? Math.round(Number(k.value)) : NaN;
    const wanted = Number.isFinite(number) ? Math.min(Math.max(number, 1), Number(k.max)) : 10;
    return { text: text.value.trim(), k: wanted };
  }

  function same(one, other) {
    return one && other && one.text === other.text && one.k === other.k;
  }

  function change() {
    question = wish();
    arrange();
    remember();
    for (const one of shown.values()) {
      if (question.text) ask(one);
      else clear(one);
    }
    for (const one of shown.values()) mark(one);
    summarise();
  }

  async function ask(one) {
    if (one.busy || (same(one.asked, question) && !one.error)) return;
    const asked = question;
    one.asked = null;
    one.busy = true;
    one.place.setAttribute("aria-busy", "true");
    let answer = null;
    let error = null;
    try {
      answer = await karat.api.post("/api/search", { system: one.name, ...asked });
    } catch (problem) {
      error = problem.message;
    }
    one.busy = false;
    if (shown.get(one.name) !== one) return;
    if (!same(asked, question)) {
      if (question.text) ask(one);
      else clear(one);
      return;
    }
    Object.assign(one, { asked, answer, error });
    one.place.removeAttribute("aria-busy");
    draw(one);
    for (const each of shown.values()) mark(each);
    summarise();
  }

  function clear(one) {
    Object.assign(one, { asked: null, answer: null, error: null });
    one.place.removeAttribute("aria-busy");
    draw(one);
  }

  function draw(one) {
    const problem = one.place.querySelector(".problem");
    problem.hidden = !one.error;
    problem.textContent = one.error || "";
    const took = one.place.querySelector(".took");
    took.textContent = one.answer ? `${milliseconds(one.answer.latency_ms)} ms` : "";
    const hits = one.answer ? one.answer.hits : [];
    const words = terms(question.text);
    const rows = hits.map((hit) => row(hit, words));
    if (one.answer && !rows.length) rows.push(element("li", "nothing muted", "Nothing was found."));
    one.place.querySelector("ol").replaceChildren(...rows);
    const instead = one.place.querySelector(".instead");
    const notes = one.answer ? [one.answer.rewritten, one.answer.source] : [null, null];
    instead.textContent = [
      notes[0] === null || notes[0] === question.text ? "" : `searched for: ${notes[0]}`,
      notes[1] === null ? "" : `from ${notes[1]}`,
    ]
      .filter(Boolean)
      .join("; ");
    instead.hidden = !instead.textContent;
    goldLine(one);
    fold(one.place);
  }

  function milliseconds(value) {
    return value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
  }

  // The ranks in the first column, for the others to be compared with.
  function before(one) {
    const [first] = shown.values();
    if (first === one || !first.answer || !same(first.asked, one.asked)) return null;
    return { name: first.name, at: new Map(first.answer.hits.map((hit) => [hit.item_id, hit.rank])) };
  }

  // The signs hang on the first list, which may come later; the rest of a row stays as it is.
  function mark(one) {
    const ranks = one.answer && before(one);
    for (const [at, made] of [...one.place.querySelectorAll("li[data-item]")].entries()) {
      made.querySelector(".move")?.remove();
      if (ranks) made.querySelector(".marks").append(move(one.answer.hits[at], ranks));
    }
  }

  function row(hit, words) {
    const made = document.getElementById("hit").content.cloneNode(true).firstElementChild;
    made.dataset.item = hit.item_id;
    made.querySelector(".rank").textContent = hit.rank;
    made.querySelector(".item").textContent = hit.item_id;
    made.querySelector(".score").textContent = hit.score === null ? "" : score(hit.score);
    const marks = made.querySelector(".marks");
    const gold = hit.grade !== null && hit.grade >= rel;
    made.classList.toggle("is-gold", gold);
    if (gold) marks.append(element("span", "badge good", `gold ${hit.grade}`));
    else if (hit.grade !== null) marks.append(element("span", "badge", `grade ${hit.grade}`));
    const body = made.querySelector(".text");
    if (hit.text === null) {
      body.classList.add("muted");
      body.textContent = "No text: the item is not in the corpus.";
    } else {
      highlight(body, hit.text + (hit.cut ? " …" : ""), words);
    }
    return made;
  }

  function score(value) {
    const size = Math.abs(value);
    return size >= 1000 || (size > 0 && size < 0.001) ? value.toExponential(2) : value.toFixed(3);
  }

  // Where the item stands in the first list: a sign for the eye, a sentence for the ear.
  function move(hit, ranks) {
    const was = ranks.at.get(hit.item_id);
    const moved = was === undefined ? null : was - hit.rank;
    const sign = moved === null ? "new" : moved > 0 ? `▲ ${moved}` : moved < 0 ? `▼ ${-moved}` : "=";
    const sentence =
      moved === null ? `not in the list of ${ranks.name}` : `rank ${was} in ${ranks.name}`;
    const made = element("span", `move muted ${moved === null ? "new" : ""}`, "");
    made.title = sentence;
    const eye = element("span", "", sign);
    eye.setAttribute("aria-hidden", "true");
    made.append(eye, element("span", "visually-hidden", sentence));
    return made;
  }

  function goldLine(one) {
    const line = one.place.querySelector(".gold");
    const gold = one.answer ? one.answer.gold : [];
    line.hidden = !one.answer || one.answer.query_id === null;
    if (line.hidden) return;
    const found = gold.filter((item) => item.rank !== null).map((item) => item.rank);
    const missed = gold.filter((item) => item.rank === null).map((item) => item.item_id);
    const parts = [];
    if (found.length) parts.push(`gold at rank ${found.sort((a, b) => a - b).join(", ")}`);
    if (missed.length) parts.push(`not among the first ${one.asked.k}: ${few(missed)}`);
    if (!gold.length) parts.push("no gold: nothing is known to be right");
    line.textContent = `${one.answer.query_id}: ${parts.join("; ")}`;
  }

  function few(names) {
    const more = names.length - 3;
    return names.slice(0, 3).join(", ") + (more > 0 ? ` and ${more} more` : "");
  }

  function terms(asked) {
    const words = asked.toLocaleLowerCase().match(/[\p{L}\p{M}\p{N}]+/gu) || [];
    // Words such as "to" and "is" are everywhere and say nothing, unless they are all there is.
    const telling = words.filter((word) => word.length > 2);
    return telling.length ? telling : words;
  }

  // Text nodes and <mark> elements: whatever the text holds, it stays text.
  function highlight(place, content, words) {
    const wanted = new Set(words);
    let plain = "";
    for (const piece of content.split(/([\p{L}\p{M}\p{N}]+)/u)) {
      if (wanted.has(piece.toLocaleLowerCase())) {
        place.append(plain, element("mark", "", piece));
        plain = "";
      } else {
        plain += piece;
      }
    }
    place.append(plain);
  }

  // A long text shows its first lines, and a button for the rest.
  function fold(place) {
    for (const body of place.querySelectorAll("li > .text")) {
      if (body.scrollHeight <= body.clientHeight + 2) continue;
      const button = element("button", "more", "Show all of it");
      button.type = "button";
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => {
        const open = body.classList.toggle("open");
        button.setAttribute("aria-expanded", String(open));
        button.textContent = open ? "Show less" : "Show all of it";
      });
      body.after(button);
    }
  }

  function summarise() {
    if (!question.text) {
      told.textContent = hello;
      return;
    }
    if (!shown.size) {
      told.textContent = "Choose a system to ask.";
      return;
    }
    const waiting = [...shown.values()].filter((one) => !same(one.asked, question));
    if (waiting.length) {
      const names = waiting.flatMap((one, at) => [at ? ", " : "", named(one)]);
      told.replaceChildren("Asking ", ...names, " …");
      return;
    }
    const said = (one) => (one.error ? " failed" : `: ${count(one.answer.hits)}`);
    const parts = [...shown.values()].flatMap((one, at) => [at ? "; " : "", named(one), said(one)]);
    told.replaceChildren(...parts);
  }

  // A name that is written from right to left turns nothing else around.
  function named(one) {
    return element("bdi", "", one.name);
  }

  function count(hits) {
    return hits.length === 1 ? "1 hit" : `${hits.length} hits`;
  }

  async function suggest() {
    const asked = text.value.trim();
    let answer;
    try {
      answer = await karat.api.get(`/api/queries?limit=20&search=${encodeURIComponent(asked)}`);
    } catch {
      return; // A question can be typed without any being offered.
    }
    if (text.value.trim() !== asked) return;
    suggestions.replaceChildren(
      ...answer.queries.map((query) => {
        const option = element("option", "", query.query_id);
        option.value = query.text;
        return option;
      }),
    );
  }

  function element(name, classes, content) {
    const made = document.createElement(name);
    if (classes) made.className = classes.trim();
    made.textContent = content;
    return made;
  }

  // The address holds the question, so that it can be kept, sent and loaded again.
  function remember() {
    const address = new URLSearchParams();
    if (question.text) address.set("q", question.text);
    if (question.k !== 10) address.set("k", question.k);
    for (const name of shown.keys()) address.append("system", name);
    history.replaceState(null, "", `?${address}`);
  }

  function recall() {
    const address = new URLSearchParams(location.search);
    text.value = address.get("q") || "";
    if (address.has("k")) k.value = address.get("k");
    const chosen = address.getAll("system");
    if (chosen.length) for (const box of boxes) box.checked = chosen.includes(box.value);
  }

  function same_item(event, on) {
    const row = event.target.closest("li[data-item]");
    for (const other of columns.querySelectorAll("li.same")) other.classList.remove("same");
    if (!on || !row) return;
    for (const other of columns.querySelectorAll("li[data-item]")) {
      other.classList.toggle("same", other.dataset.item === row.dataset.item);
    }
  }

  let typed = 0;
  function later() {
    clearTimeout(typed);
    typed = setTimeout(() => {
      change();
      suggest();
    }, PAUSE);
  }

  text.addEventListener("input", later);
  k.addEventListener("input", later);
  k.addEventListener("change", () => (k.value = wish().k));
  for (const box of boxes) box.addEventListener("change", change);
  columns.addEventListener("mouseover", (event) => same_item(event, true));
  columns.addEventListener("mouseleave", (event) => same_item(event, false));
  // A form of two fields without a button is not sent by Enter.
  form.addEventListener("keydown", (event) => event.key === "Enter" && form.requestSubmit());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typed);
    change();
  });

  recall();
  change();
  suggest();
  if (!text.value) text.focus();
})();
