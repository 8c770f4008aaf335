"use strict";

// One item at a time: a label counts as saved when the server says so, and until then the item
// stays. The item after it is fetched beforehand, and shown if the server says that it is next.
(function () {
  const { api, labelText, labelAgreement } = window.karat;
  const root = document.getElementById("labelling");
  const at = (id) => document.getElementById(id);
  const base = `/api/label-sets/${root.dataset.set}`;
  const size = Number(root.dataset.size);
  const KEPT = "karat:rater";
  const WORDS = ["0 not relevant", "1 related", "2 relevant", "3 perfect"];
  const PATIENCE = 20_000;
  const OTHERS_EVERY = 5_000;
  const FACTS = { as_of: "must hold on", doc_id: "document" };

  const state = { rater: null, item: null, after: null, busy: false, failed: null, othersAt: 0, later: 0 };

  function remembered() {
    try {
      return window.localStorage.getItem(KEPT);
    } catch {
      return null;
    }
  }

  function remember(name) {
    try {
      window.localStorage.setItem(KEPT, name);
    } catch {
      // Without storage the name is asked for again next time.
    }
  }

  const asked = () => `rater=${encodeURIComponent(state.rater)}`;
  const patient = () => ({ signal: AbortSignal.timeout(PATIENCE) });
  const words = (grade) => (grade === null ? "can't tell" : WORDS[grade]);

  function reason(error) {
    return error.name === "TimeoutError" ? "the workbench does not answer" : error.message;
  }

  function say(text) {
    at("label-status").textContent = text;
  }

  function only(name) {
    for (const one of ["label-name", "label-item", "label-done"]) at(one).hidden = one !== name;
    at("label-progress").hidden = name === "label-name";
    at("label-who").hidden = name === "label-name";
  }

  // What is known beside the texts: of the query, else of the item.
  function showFacts(id, facts, names) {
    const place = at(id);
    const parts = names.filter((name) => name in facts).map((name) => {
      const pair = document.createElement("div");
      const term = document.createElement("dt");
      term.textContent = FACTS[name] || name;
      const told = document.createElement("dd");
      told.dir = "auto";
      told.className = "name";
      told.textContent = labelText.plain(facts[name]);
      pair.append(term, told);
      return pair;
    });
    place.replaceChildren(...parts);
    place.hidden = !parts.length;
  }

  function show(item, rationale = "") {
    state.item = item;
    state.after = null;
    const query = at("label-query");
    query.textContent = labelText.plain(item.query);
    query.scrollTop = 0;
    at("label-id").textContent = labelText.plain(item.item_id);
    const ofItem = Object.keys(item.facts).filter((name) => name !== "as_of");
    showFacts("label-asked", item.facts, ["as_of"]);
    showFacts("label-facts", item.facts, ofItem);
    const text = at("label-text");
    labelText.fill(text, item.text, item.query);
    text.scrollTop = 0;
    window.scrollTo(0, 0);
    at("label-rationale").value = rationale;
    // Keys pressed for the item before are not meant for the text field of this one.
    if (document.activeElement === at("label-rationale")) text.focus({ preventScroll: true });
    settle();
    only("label-item");
    // Who has no mouse scrolls what has the focus.
    if (query.scrollHeight > query.clientHeight + 2) query.tabIndex = 0;
    else query.removeAttribute("tabindex");
    prefetch(item.position);
  }

  function settle() {
    state.failed = null;
    at("label-failed").hidden = true;
    for (const one of root.querySelectorAll("[data-grade]")) one.removeAttribute("aria-pressed");
  }

  function showProgress(judged) {
    at("label-bar").value = judged;
    at("label-count").textContent =
      `${judged.toLocaleString("en")} of ${size.toLocaleString("en")} labelled`;
  }

  function showOthers(raters) {
    const rows = raters.map((one) => {
      const row = document.createElement("li");
      const name = document.createElement("span");
      name.className = "name";
      name.dir = "auto";
      name.textContent = one.rater;
      const bar = document.createElement("progress");
      bar.max = one.of;
      bar.value = one.judged;
      bar.setAttribute("aria-label", one.rater);
      const count = document.createElement("span");
      count.className = "num";
      count.textContent = `${one.judged.toLocaleString("en")} of ${one.of.toLocaleString("en")}`;
      row.append(name, " ", bar, " ", count);
      return row;
    });
    at("label-raters").replaceChildren(...rows);
  }

  // At once, or a little later where it was done a moment ago.
  async function refreshOthers(force = false) {
    const wait = state.othersAt + OTHERS_EVERY - Date.now();
    window.clearTimeout(state.later);
    if (!force && wait > 0) {
      state.later = window.setTimeout(refreshOthers, wait);
      return;
    }
    state.othersAt = Date.now();
    try {
      showOthers((await api.get(base, patient())).raters);
    } catch {
      // Only the others' bars are older than they could be; saving tells its own troubles.
    }
  }

  function done() {
    state.item = null;
    only("label-done");
    at("label-done-words").textContent =
      `All ${size.toLocaleString("en")} items are labelled. Thank you, ${state.rater}.`;
    at("label-own-file").href = `${base}/export?form=jsonl&${asked()}`;
    at("label-done-heading").focus();
    refreshOthers(true);
    showAgreement();
  }

  async function showAgreement() {
    try {
      labelAgreement.show(at("label-agreement"), await api.get(`${base}/agreement`, patient()));
    } catch (error) {
      at("label-agreement").textContent = `Agreement cannot be shown: ${reason(error)}`;
    }
  }

  async function prefetch(position) {
    try {
      const answer = await api.get(`${base}/next?${asked()}&besides=${position}`, patient());
      if (state.item && state.item.position === position) state.after = answer.item;
    } catch {
      // It is asked for again when it is needed.
    }
  }

  async function load(rationale = "") {
    const answer = await api.get(`${base}/next?${asked()}`, patient());
    showProgress(answer.judged);
    if (answer.item) show(answer.item, rationale);
    else done();
  }

  // Runs one change at a time; keys pressed meanwhile do nothing, so that none skips an item.
  async function alone(work) {
    if (state.busy) return;
    state.busy = true;
    root.setAttribute("aria-busy", "true");
    try {
      await work();
    } finally {
      state.busy = false;
      root.removeAttribute("aria-busy");
    }
  }

  function fail(what, again, error) {
    state.failed = again;
    const why = reason(error);
    const end = /[.?!]$/.test(why) ? "" : ".";
    at("label-why").textContent = `${what}: ${why}${end} The item stays until it is saved.`;
    at("label-failed").hidden = false;
    say("");
  }

  const judge = (grade) => alone(() => save(grade));

  async function save(grade) {
    const item = state.item;
    if (!item) return;
    settle();
    const chosen = root.querySelector(`[data-grade="${grade === null ? "none" : grade}"]`);
    chosen.setAttribute("aria-pressed", "true");
    say("Saving …");
    const rationale = at("label-rationale").value;
    const body = { rater: state.rater, position: item.position, grade, rationale };
    let answer;
    try {
      answer = await api.post(`${base}/judgments`, body, patient());
    } catch (error) {
      fail(`Not saved (${words(grade)})`, () => judge(grade), error);
      return;
    }
    await moveOn(answer, `Saved: ${words(grade)}.`);
  }

  // The count moves with the item: whoever sees it may press the next key.
  async function moveOn(answer, told) {
    refreshOthers();
    if (answer.next === null) {
      done();
    } else if (state.after && state.after.position === answer.next) {
      show(state.after);
    } else {
      await reload();
    }
    showProgress(answer.judged);
    say(told);
  }

  async function reload(rationale = "") {
    try {
      await load(rationale);
    } catch (error) {
      state.item = null;
      only("label-item");
      fail("The next item did not come", () => alone(reload), error);
    }
  }

  const undo = () => alone(takeBack);

  async function takeBack() {
    settle();
    say("Taking back …");
    let answer;
    try {
      answer = await api.post(`${base}/undo`, { rater: state.rater }, patient());
    } catch (error) {
      only("label-item");
      fail("Not taken back", undo, error);
      return;
    }
    if (answer.judgment === null) {
      say("There is nothing to take back.");
      return;
    }
    const open = answer.next === answer.judgment.position;
    await reload(open ? answer.judgment.rationale : "");
    const before = open ? "" : " What you had said of that item before counts again.";
    say(`Taken back: ${words(answer.judgment.grade)}.${before}`);
    refreshOthers();
  }

  // Another window of the same rater may have labelled this item meanwhile.
  async function catchUp() {
    if (!state.item || state.failed || document.hidden) return;
    await alone(async () => {
      const before = state.item.position;
      try {
        const answer = await api.get(`${base}/next?${asked()}`, patient());
        showProgress(answer.judged);
        if (!answer.item) done();
        else if (answer.item.position !== before) {
          show(answer.item);
          say("Moved on: that item was labelled in another window.");
        }
      } catch {
        // The item stays; saving it tells whether the server answers.
      }
    });
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return;
    if (event.target === at("label-rationale") && event.key === "Escape") {
      at("label-text").focus({ preventScroll: true });
      return;
    }
    if (event.target.closest("input, textarea, select")) return;
    const act = action(event.key);
    if (!act) return;
    event.preventDefault();
    act();
  }

  function action(pressed) {
    if (!state.rater || !at("label-name").hidden) return null;
    if (pressed === "u" || pressed === "U" || pressed === "Backspace") return undo;
    if (!state.item) return null;
    if (["0", "1", "2", "3"].includes(pressed)) return () => judge(Number(pressed));
    if (["?", "c", "C"].includes(pressed)) return () => judge(null);
    if (pressed === "r" || pressed === "R") return () => at("label-rationale").focus();
    return null;
  }

  function begin(name) {
    state.rater = name.trim().replace(/\s+/g, " ");
    remember(state.rater);
    at("label-rater").textContent = state.rater;
    say("");
    settle();
    refreshOthers(true);
    return alone(async () => {
      await reload();
      if (state.item) at("label-text").focus({ preventScroll: true });
    });
  }

  function askName() {
    only("label-name");
    at("rater").value = state.rater || "";
    at("rater").focus();
  }

  // A name that the server refuses is told at the field, before anything else is shown.
  async function enter(name) {
    const field = at("rater");
    try {
      if (!name.trim()) throw new Error("Enter a name: labels are kept under it.");
      await api.get(`${base}?rater=${encodeURIComponent(name)}`);
    } catch (error) {
      askName();
      field.value = name;
      field.setCustomValidity(error.message);
      field.reportValidity();
      return;
    }
    begin(name);
  }

  document.addEventListener("keydown", key);
  at("label-others").addEventListener("toggle", () => at("label-others").open && refreshOthers(true));
  for (const one of root.querySelectorAll("[data-grade]")) {
    const grade = one.dataset.grade === "none" ? null : Number(one.dataset.grade);
    one.addEventListener("click", () => judge(grade));
  }
  at("label-undo").addEventListener("click", undo);
  at("label-done-undo").addEventListener("click", undo);
  at("label-retry").addEventListener("click", () => state.failed && state.failed());
  at("label-change").addEventListener("click", () => state.busy || askName());
  at("label-name").addEventListener("submit", (event) => {
    event.preventDefault();
    enter(at("rater").value);
  });
  at("rater").addEventListener("input", () => at("rater").setCustomValidity(""));
  window.addEventListener("online", () => state.failed && state.failed());
  window.addEventListener("focus", catchUp);
  document.addEventListener("visibilitychange", catchUp);

  const known = remembered();
  if (known) enter(known);
  else askName();
})();
