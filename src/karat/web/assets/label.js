"use strict";

// The labelling page: one item at a time. An item stays until the server confirms its label. The
// next item is prefetched, and shown if the server confirms that it is the next one.
(function () {
  const { api, labelText, labelAgreement } = window.karat;
  const root = document.getElementById("labelling");
  const byId = (id) => document.getElementById(id);
  const base = `/api/label-sets/${root.dataset.set}`;
  const size = Number(root.dataset.size);
  const STORAGE_KEY = "karat:rater";
  const GRADE_LABELS = ["0 not relevant", "1 related", "2 relevant", "3 perfect"];
  const REQUEST_TIMEOUT = 20_000;
  const REFRESH_INTERVAL = 5_000;
  const FACT_LABELS = { as_of: "must hold on", doc_id: "document" };

  const state = { rater: null, item: null, next: null, busy: false, retry: null, refreshedAt: 0, refreshTimer: 0 };

  function storedRater() {
    try {
      return window.localStorage.getItem(STORAGE_KEY);
    } catch {
      return null;
    }
  }

  function storeRater(name) {
    try {
      window.localStorage.setItem(STORAGE_KEY, name);
    } catch {
      // Without storage, the page asks for the name again next time.
    }
  }

  const raterParam = () => `rater=${encodeURIComponent(state.rater)}`;
  const withTimeout = () => ({ signal: AbortSignal.timeout(REQUEST_TIMEOUT) });
  const gradeLabel = (grade) => (grade === null ? "can't tell" : GRADE_LABELS[grade]);

  function errorMessage(error) {
    return error.name === "TimeoutError" ? "the workbench does not respond" : error.message;
  }

  function showStatus(text) {
    byId("label-status").textContent = text;
  }

  function showOnly(name) {
    for (const section of ["label-name", "label-item", "label-done"]) byId(section).hidden = section !== name;
    byId("label-progress").hidden = name === "label-name";
    byId("label-who").hidden = name === "label-name";
  }

  // Shows the given facts as a list of names and values.
  function showFacts(id, facts, names) {
    const list = byId(id);
    const parts = names.filter((name) => name in facts).map((name) => {
      const pair = document.createElement("div");
      const term = document.createElement("dt");
      term.textContent = FACT_LABELS[name] || name;
      const description = document.createElement("dd");
      description.dir = "auto";
      description.className = "name";
      description.textContent = labelText.plain(facts[name]);
      pair.append(term, description);
      return pair;
    });
    list.replaceChildren(...parts);
    list.hidden = !parts.length;
  }

  function showItem(item, rationale = "") {
    state.item = item;
    state.next = null;
    const query = byId("label-query");
    query.textContent = labelText.plain(item.query);
    query.scrollTop = 0;
    byId("label-id").textContent = labelText.plain(item.item_id);
    const itemFacts = Object.keys(item.facts).filter((name) => name !== "as_of");
    showFacts("label-asked", item.facts, ["as_of"]);
    showFacts("label-facts", item.facts, itemFacts);
    const text = byId("label-text");
    labelText.fill(text, item.text, item.query);
    text.scrollTop = 0;
    window.scrollTo(0, 0);
    byId("label-rationale").value = rationale;
    // Keys pressed for the previous item must not end up in this item's text field.
    if (document.activeElement === byId("label-rationale")) text.focus({ preventScroll: true });
    clearFeedback();
    showOnly("label-item");
    // Keyboard users can only scroll a focused element.
    if (query.scrollHeight > query.clientHeight + 2) query.tabIndex = 0;
    else query.removeAttribute("tabindex");
    prefetch(item.position);
  }

  function clearFeedback() {
    state.retry = null;
    byId("label-failed").hidden = true;
    for (const button of root.querySelectorAll("[data-grade]")) button.removeAttribute("aria-pressed");
  }

  function showProgress(judged) {
    byId("label-bar").value = judged;
    byId("label-count").textContent =
      `${judged.toLocaleString("en")} of ${size.toLocaleString("en")} labelled`;
  }

  function showOthers(raters) {
    const rows = raters.map((rater) => {
      const row = document.createElement("li");
      const name = document.createElement("span");
      name.className = "name";
      name.dir = "auto";
      name.textContent = rater.rater;
      const bar = document.createElement("progress");
      bar.max = rater.of;
      bar.value = rater.judged;
      bar.setAttribute("aria-label", rater.rater);
      const count = document.createElement("span");
      count.className = "num";
      count.textContent = `${rater.judged.toLocaleString("en")} of ${rater.of.toLocaleString("en")}`;
      row.append(name, " ", bar, " ", count);
      return row;
    });
    byId("label-raters").replaceChildren(...rows);
  }

  // Refreshes the progress of all raters, at most once per interval unless forced.
  async function refreshOthers(force = false) {
    const wait = state.refreshedAt + REFRESH_INTERVAL - Date.now();
    window.clearTimeout(state.refreshTimer);
    if (!force && wait > 0) {
      state.refreshTimer = window.setTimeout(refreshOthers, wait);
      return;
    }
    state.refreshedAt = Date.now();
    try {
      showOthers((await api.get(base, withTimeout())).raters);
    } catch {
      // The progress bars stay outdated; saving reports its own errors.
    }
  }

  function showDone() {
    state.item = null;
    showOnly("label-done");
    byId("label-done-words").textContent =
      `All ${size.toLocaleString("en")} items are labelled. Thank you, ${state.rater}.`;
    byId("label-own-file").href = `${base}/export?form=jsonl&${raterParam()}`;
    byId("label-done-heading").focus();
    refreshOthers(true);
    showAgreement();
  }

  async function showAgreement() {
    try {
      labelAgreement.show(byId("label-agreement"), await api.get(`${base}/agreement`, withTimeout()));
    } catch (error) {
      byId("label-agreement").textContent = `Agreement cannot be shown: ${errorMessage(error)}`;
    }
  }

  async function prefetch(position) {
    try {
      const answer = await api.get(`${base}/next?${raterParam()}&besides=${position}`, withTimeout());
      if (state.item && state.item.position === position) state.next = answer.item;
    } catch {
      // It is loaded when it is needed.
    }
  }

  async function load(rationale = "") {
    const answer = await api.get(`${base}/next?${raterParam()}`, withTimeout());
    showProgress(answer.judged);
    if (answer.item) showItem(answer.item, rationale);
    else showDone();
  }

  // Runs one change at a time and ignores keys meanwhile, so that no key press skips an item.
  async function runExclusive(task) {
    if (state.busy) return;
    state.busy = true;
    root.setAttribute("aria-busy", "true");
    try {
      await task();
    } finally {
      state.busy = false;
      root.removeAttribute("aria-busy");
    }
  }

  function showFailure(failure, retry, error) {
    state.retry = retry;
    const message = errorMessage(error);
    const stop = /[.?!]$/.test(message) ? "" : ".";
    byId("label-why").textContent = `${failure}: ${message}${stop} The item stays until it is saved.`;
    byId("label-failed").hidden = false;
    showStatus("");
  }

  const judge = (grade) => runExclusive(() => save(grade));

  async function save(grade) {
    const item = state.item;
    if (!item) return;
    clearFeedback();
    const chosen = root.querySelector(`[data-grade="${grade === null ? "none" : grade}"]`);
    chosen.setAttribute("aria-pressed", "true");
    showStatus("Saving …");
    const rationale = byId("label-rationale").value;
    const body = { rater: state.rater, position: item.position, grade, rationale };
    let answer;
    try {
      answer = await api.post(`${base}/judgments`, body, withTimeout());
    } catch (error) {
      showFailure(`Not saved (${gradeLabel(grade)})`, () => judge(grade), error);
      return;
    }
    await showNext(answer, `Saved: ${gradeLabel(grade)}.`);
  }

  // Updates the count together with the item: it shows that the next key press is accepted.
  async function showNext(answer, message) {
    refreshOthers();
    if (answer.next === null) {
      showDone();
    } else if (state.next && state.next.position === answer.next) {
      showItem(state.next);
    } else {
      await reload();
    }
    showProgress(answer.judged);
    showStatus(message);
  }

  async function reload(rationale = "") {
    try {
      await load(rationale);
    } catch (error) {
      state.item = null;
      showOnly("label-item");
      showFailure("The next item could not be loaded", () => runExclusive(reload), error);
    }
  }

  const undo = () => runExclusive(withdrawLast);

  async function withdrawLast() {
    clearFeedback();
    showStatus("Undoing …");
    let answer;
    try {
      answer = await api.post(`${base}/undo`, { rater: state.rater }, withTimeout());
    } catch (error) {
      showOnly("label-item");
      showFailure("Could not undo", undo, error);
      return;
    }
    if (answer.judgment === null) {
      showStatus("There is nothing to undo.");
      return;
    }
    const reopened = answer.next === answer.judgment.position;
    await reload(reopened ? answer.judgment.rationale : "");
    const note = reopened ? "" : " Your previous label of that item counts again.";
    showStatus(`Undone: ${gradeLabel(answer.judgment.grade)}.${note}`);
    refreshOthers();
  }

  // The rater may have labelled this item in another window meanwhile.
  async function syncWithServer() {
    if (!state.item || state.retry || document.hidden) return;
    await runExclusive(async () => {
      const shownPosition = state.item.position;
      try {
        const answer = await api.get(`${base}/next?${raterParam()}`, withTimeout());
        showProgress(answer.judged);
        if (!answer.item) showDone();
        else if (answer.item.position !== shownPosition) {
          showItem(answer.item);
          showStatus("Moved on: that item was labelled in another window.");
        }
      } catch {
        // The item stays; saving it reports whether the server responds.
      }
    });
  }

  function onKeydown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return;
    if (event.target === byId("label-rationale") && event.key === "Escape") {
      byId("label-text").focus({ preventScroll: true });
      return;
    }
    if (event.target.closest("input, textarea, select")) return;
    const handler = handlerFor(event.key);
    if (!handler) return;
    event.preventDefault();
    handler();
  }

  function handlerFor(key) {
    if (!state.rater || !byId("label-name").hidden) return null;
    if (key === "u" || key === "U" || key === "Backspace") return undo;
    if (!state.item) return null;
    if (["0", "1", "2", "3"].includes(key)) return () => judge(Number(key));
    if (["?", "c", "C"].includes(key)) return () => judge(null);
    if (key === "r" || key === "R") return () => byId("label-rationale").focus();
    return null;
  }

  function startLabelling(name) {
    state.rater = name.trim().replace(/\s+/g, " ");
    storeRater(state.rater);
    byId("label-rater").textContent = state.rater;
    showStatus("");
    clearFeedback();
    refreshOthers(true);
    return runExclusive(async () => {
      await reload();
      if (state.item) byId("label-text").focus({ preventScroll: true });
    });
  }

  function askName() {
    showOnly("label-name");
    byId("rater").value = state.rater || "";
    byId("rater").focus();
  }

  // If the server rejects the name, the error is shown at the field.
  async function submitName(name) {
    const field = byId("rater");
    try {
      if (!name.trim()) throw new Error("Enter a name; your labels are saved under it.");
      await api.get(`${base}?rater=${encodeURIComponent(name)}`);
    } catch (error) {
      askName();
      field.value = name;
      field.setCustomValidity(error.message);
      field.reportValidity();
      return;
    }
    startLabelling(name);
  }

  document.addEventListener("keydown", onKeydown);
  byId("label-others").addEventListener("toggle", () => byId("label-others").open && refreshOthers(true));
  for (const button of root.querySelectorAll("[data-grade]")) {
    const grade = button.dataset.grade === "none" ? null : Number(button.dataset.grade);
    button.addEventListener("click", () => judge(grade));
  }
  byId("label-undo").addEventListener("click", undo);
  byId("label-done-undo").addEventListener("click", undo);
  byId("label-retry").addEventListener("click", () => state.retry && state.retry());
  byId("label-change").addEventListener("click", () => state.busy || askName());
  byId("label-name").addEventListener("submit", (event) => {
    event.preventDefault();
    submitName(byId("rater").value);
  });
  byId("rater").addEventListener("input", () => byId("rater").setCustomValidity(""));
  window.addEventListener("online", () => state.retry && state.retry());
  window.addEventListener("focus", syncWithServer);
  document.addEventListener("visibilitychange", syncWithServer);

  const savedName = storedRater();
  if (savedName) submitName(savedName);
  else askName();
})();
