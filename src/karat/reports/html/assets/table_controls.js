// The controls above the query table: search, system, measure, modes with counts, and filters.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, plural, displayName } = karat;
  const NAMES = {
    all: "All", misses: "Misses", regressed: "Regressed", improved: "Improved",
    different: "Different", unjudged: "Unjudged",
  };
  // Option values of a segment filter; segments themselves use their index, since they may have any name.
  const ANY = "";
  const NONE = "none";

  class Controls {
    // Calls set(change) when the user changes a control, and clear() to reset all filters.
    constructor(model, { set, clear }) {
      Object.assign(this, { model, set, clear });
      this.search = make("input", {
        type: "search", class: "qt-search", placeholder: "Search ids and texts",
        "aria-label": "Search queries by id or text", "aria-keyshortcuts": "/",
        autocomplete: "off", spellcheck: "false", oninput: () => this.searched(),
      });
      this.modes = make("div", { class: "qt-modes", role: "group", "aria-label": "Which queries" });
      this.modeNote = make("p", { class: "qt-lacks muted small", id: "query-modes-lack" });
      this.count = make("p", { class: "qt-count", role: "status", "aria-live": "polite" });
      this.clearButton = make("button", { type: "button", class: "button qt-clear", onclick: clear }, "Clear filters");
      this.selects = this.makeSelects();
      this.element = make("div", { class: "qt-tools" }, this.topLine(), this.modes, this.modeNote, this.filters(),
        make("div", { class: "toolbar qt-line" }, this.count, this.clearButton));
    }

    makeSelects() {
      const { head, rows } = this.model;
      const select = (name, label, change) => {
        const control = make("select", { "data-control": name, onchange: () => this.set(change(control.value)) });
        return { control, label: make("label", { class: "qt-field" }, make("span", {}, label), control) };
      };
      const selects = {
        system: select("system", "System", (value) => ({ system: Number(value) })),
        measure: select("measure", "Measure", (value) => ({ measure: value })),
        sort: select("sort", "Sort by", (value) => ({ sort: karat.sortNamed(value) })),
        kind: select("class", "Failure class", (value) => ({ kind: value || null })),
        status: select("status", "Status", (value) => ({ status: value || null })),
      };
      selects.sort.label.classList.add("qt-only-narrow");
      selects.system.label.hidden = head.systems.length < 2;
      selects.status.label.hidden = new Set(rows.status.flat()).size < 2;
      for (const [column, { names }] of Object.entries(rows.segments)) {
        const special = { [ANY]: undefined, [NONE]: null };
        const change = (value) => ({ segment: [column, value in special ? special[value] : names[Number(value)]] });
        selects[`in.${column}`] = select(`in.${column}`, column, change);
      }
      return selects;
    }

    topLine() {
      const { system, measure, sort } = this.selects;
      return make("div", { class: "toolbar qt-top" }, this.search, system.label, measure.label, sort.label);
    }

    filters() {
      const { kind, status } = this.selects;
      const segments = Object.keys(this.selects).filter((name) => name.startsWith("in."));
      const labels = [kind, status, ...segments.map((name) => this.selects[name])].map((select) => select.label);
      this.summary = make("summary", {}, "Filters");
      this.folder = make("details", { class: "qt-filters" }, this.summary, make("div", { class: "toolbar" }, labels));
      this.folder.open = matchMedia("(min-width: 48rem)").matches;
      return this.folder;
    }

    searched() {
      cancelAnimationFrame(this.waiting);
      this.waiting = requestAnimationFrame(() => this.set({ search: this.search.value }));
    }

    show(state, view) {
      this.showModes(state, view.counts);
      this.fillSelects(state, view.sort);
      if (this.search.value !== state.search) this.search.value = state.search;
      const total = plural(this.model.size, "query", "queries");
      const everything = this.model.size > 1 ? `All ${total}` : total;
      const part = `${view.shown.length.toLocaleString("en")} of ${total}`;
      this.count.textContent = view.shown.length === this.model.size ? everything : part;
      const filters = state.segments.size + (state.kind !== null) + (state.status !== null);
      this.summary.textContent = filters ? `Filters (${filters})` : "Filters";
      this.clearButton.hidden = !filters && !state.search && state.mode === "all" && !state.sort;
    }

    showModes(state, counts) {
      const focused = this.modes.contains(document.activeElement) && document.activeElement.dataset.mode;
      const modesByReason = new Map();
      const buttons = karat.MODES.map((mode) => {
        const reason = this.model.whyUnavailable(mode, state);
        if (reason) modesByReason.set(reason, [...(modesByReason.get(reason) || []), NAMES[mode]]);
        return make("button", {
          type: "button", class: "qt-mode", "data-mode": mode, "aria-pressed": String(state.mode === mode),
          "aria-disabled": reason && "true", "aria-describedby": reason && this.modeNote.id,
          title: reason && unavailable([NAMES[mode]], reason),
          onclick: () => reason || this.set({ mode }),
        }, NAMES[mode], make("span", { class: "qt-number" }, reason ? "–" : counts[mode].toLocaleString("en")));
      });
      this.modes.replaceChildren(...buttons);
      if (focused) this.modes.querySelector(`[data-mode="${focused}"]`).focus();
      this.modeNote.textContent = [...modesByReason].map(([reason, modes]) => unavailable(modes, reason)).join(" ");
      this.modeNote.hidden = !modesByReason.size;
    }

    fillSelects(state, sort) {
      const { head, rows } = this.model;
      const optionsWithCounts = (codes, names) => {
        const counts = new Array(names.length).fill(0);
        for (const code of codes) if (code >= 0) counts[code]++;
        return names.map((name, code) => [name, withCount(displayName(name), counts[code]), counts[code]]);
      };
      const nonEmpty = (all, chosen) => [["", "any"], ...all.filter(([name, , count]) => count || name === chosen)];
      fillSelect(this.selects.system, head.systems.map((name, index) => [String(index), name]), String(state.system));
      fillSelect(this.selects.measure, head.measures.map(({ name }) => [name, name]), state.measure);
      fillSelect(this.selects.sort, this.sorts(), karat.nameOfSort(sort));
      const kinds = optionsWithCounts(rows.class[state.system], head.classes);
      fillSelect(this.selects.kind, nonEmpty(kinds, state.kind), state.kind ?? "");
      const statuses = optionsWithCounts(rows.status[state.system], head.statuses);
      fillSelect(this.selects.status, nonEmpty(statuses, state.status), state.status ?? "");
      for (const [column, segment] of Object.entries(rows.segments)) {
        const name = state.segments.get(column);
        const chosen = name === undefined ? ANY : name === null ? NONE : String(segment.names.indexOf(name));
        fillSelect(this.selects[`in.${column}`], this.values(column, segment), chosen);
      }
    }

    sorts() {
      const names = { id: "query", text: "text", delta: "difference", rank: "gold rank", class: "failure class" };
      const labelOf = (by) => names[by] || this.model.head.systems[Number(by.slice("value.".length))];
      const bothOrders = (by) => [[by, `${labelOf(by)}, ascending`], [`-${by}`, `${labelOf(by)}, descending`]];
      return [["", "order of the report"], ...this.model.sortable().flatMap(bothOrders)];
    }

    // Returns the options of a segment column with their counts, computed once.
    values(column, { names, of: memberships }) {
      this.counted ||= new Map();
      if (!this.counted.has(column)) {
        const counts = new Array(names.length).fill(0);
        for (const segments of memberships) for (const index of segments) counts[index]++;
        const without = memberships.filter((segments) => !segments.length).length;
        const options = names.map((name, index) => [String(index), withCount(name, counts[index])]);
        if (without) options.push([NONE, withCount("none", without)]);
        this.counted.set(column, [[ANY, "any"], ...options]);
      }
      return this.counted.get(column);
    }
  }

  function withCount(name, count) {
    return `${name} (${count.toLocaleString("en")})`;
  }

  function unavailable(modes, reason) {
    const allButLast = modes.slice(0, -1).join(", ");
    return `${allButLast ? `${allButLast} and ` : ""}${modes.at(-1)} not available: ${reason}.`;
  }

  // Rebuilds the options only if they changed, so that an open list stays open.
  function fillSelect({ control }, options, chosen) {
    const key = JSON.stringify(options);
    if (control.dataset.options !== key) {
      control.dataset.options = key;
      control.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
    }
    control.value = chosen;
  }

  karat.Controls = Controls;
})();
