// What stands above the query table: search, system, measure, modes with their counts, and filters.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, several, spoken } = karat;
  const NAMES = {
    all: "All", misses: "Misses", regressed: "Regressed", improved: "Improved",
    different: "Different", unjudged: "Unjudged",
  };
  // A choice among segments is the number of one; a segment may have any name, these too.
  const ANY = "";
  const NONE = "none";

  class Controls {
    // set(change) is called with what a user changed, clear() when all filters go.
    constructor(model, { set, clear }) {
      Object.assign(this, { model, set, clear });
      this.search = make("input", {
        type: "search", class: "qt-search", placeholder: "Search ids and texts",
        "aria-label": "Search queries by id or text", "aria-keyshortcuts": "/",
        autocomplete: "off", spellcheck: "false", oninput: () => this.searched(),
      });
      this.modes = make("div", { class: "qt-modes", role: "group", "aria-label": "Which queries" });
      this.lacks = make("p", { class: "qt-lacks muted small", id: "query-modes-lack" });
      this.count = make("p", { class: "qt-count", role: "status", "aria-live": "polite" });
      this.wiped = make("button", { type: "button", class: "button qt-clear", onclick: clear }, "Clear filters");
      this.selects = this.makeSelects();
      this.element = make("div", { class: "qt-tools" }, this.topLine(), this.modes, this.lacks, this.filters(),
        make("div", { class: "toolbar qt-line" }, this.count, this.wiped));
    }

    makeSelects() {
      const { head, rows } = this.model;
      const select = (name, label, change) => {
        const control = make("select", { "data-control": name, onchange: () => this.set(change(control.value)) });
        return { control, label: make("label", { class: "qt-field" }, make("span", {}, label), control) };
      };
      const made = {
        system: select("system", "System", (value) => ({ system: Number(value) })),
        measure: select("measure", "Measure", (value) => ({ measure: value })),
        sort: select("sort", "Sort by", (value) => ({ sort: karat.sortNamed(value) })),
        kind: select("class", "Failure class", (value) => ({ kind: value || null })),
        status: select("status", "Status", (value) => ({ status: value || null })),
      };
      made.sort.label.classList.add("qt-only-narrow");
      made.system.label.hidden = head.systems.length < 2;
      made.status.label.hidden = new Set(rows.status.flat()).size < 2;
      for (const [column, { names }] of Object.entries(rows.segments)) {
        const named = { [ANY]: undefined, [NONE]: null };
        const change = (value) => ({ segment: [column, value in named ? named[value] : names[Number(value)]] });
        made[`in.${column}`] = select(`in.${column}`, column, change);
      }
      return made;
    }

    topLine() {
      const { system, measure, sort } = this.selects;
      return make("div", { class: "toolbar qt-top" }, this.search, system.label, measure.label, sort.label);
    }

    filters() {
      const { kind, status } = this.selects;
      const segments = Object.keys(this.selects).filter((name) => name.startsWith("in."));
      const labels = [kind, status, ...segments.map((name) => this.selects[name])].map((one) => one.label);
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
      const all = several(this.model.size, "query", "queries");
      const every = this.model.size > 1 ? `All ${all}` : all;
      const some = `${view.shown.length.toLocaleString("en")} of ${all}`;
      this.count.textContent = view.shown.length === this.model.size ? every : some;
      const filters = state.segments.size + (state.kind !== null) + (state.status !== null);
      this.summary.textContent = filters ? `Filters (${filters})` : "Filters";
      this.wiped.hidden = !filters && !state.search && state.mode === "all" && !state.sort;
    }

    showModes(state, counts) {
      const focused = this.modes.contains(document.activeElement) && document.activeElement.dataset.mode;
      const why = new Map();
      const buttons = karat.MODES.map((mode) => {
        const lacking = this.model.lacking(mode, state);
        if (lacking) why.set(lacking, [...(why.get(lacking) || []), NAMES[mode]]);
        return make("button", {
          type: "button", class: "qt-mode", "data-mode": mode, "aria-pressed": String(state.mode === mode),
          "aria-disabled": lacking && "true", "aria-describedby": lacking && this.lacks.id,
          title: lacking && told([NAMES[mode]], lacking),
          onclick: () => lacking || this.set({ mode }),
        }, NAMES[mode], make("span", { class: "qt-number" }, lacking ? "–" : counts[mode].toLocaleString("en")));
      });
      this.modes.replaceChildren(...buttons);
      if (focused) this.modes.querySelector(`[data-mode="${focused}"]`).focus();
      this.lacks.textContent = [...why].map(([lacking, modes]) => told(modes, lacking)).join(" ");
      this.lacks.hidden = !why.size;
    }

    fillSelects(state, sort) {
      const { head, rows } = this.model;
      const counted = (codes, names) => {
        const counts = new Array(names.length).fill(0);
        for (const code of codes) if (code >= 0) counts[code]++;
        return names.map((name, code) => [name, sized(spoken(name), counts[code]), counts[code]]);
      };
      const present = (all, chosen) => [["", "any"], ...all.filter(([name, , count]) => count || name === chosen)];
      fill(this.selects.system, head.systems.map((name, number) => [String(number), name]), String(state.system));
      fill(this.selects.measure, head.measures.map(({ name }) => [name, name]), state.measure);
      fill(this.selects.sort, this.sorts(), karat.nameOfSort(sort));
      const kinds = counted(rows.class[state.system], head.classes);
      fill(this.selects.kind, present(kinds, state.kind), state.kind ?? "");
      const statuses = counted(rows.status[state.system], head.statuses);
      fill(this.selects.status, present(statuses, state.status), state.status ?? "");
      for (const [column, segment] of Object.entries(rows.segments)) {
        const name = state.segments.get(column);
        const chosen = name === undefined ? ANY : name === null ? NONE : String(segment.names.indexOf(name));
        fill(this.selects[`in.${column}`], this.values(column, segment), chosen);
      }
    }

    sorts() {
      const names = { id: "query", text: "text", delta: "difference", rank: "gold rank", class: "failure class" };
      const named = (by) => names[by] || this.model.head.systems[Number(by.slice("value.".length))];
      const both = (by) => [[by, `${named(by)}, ascending`], [`-${by}`, `${named(by)}, descending`]];
      return [["", "order of the report"], ...this.model.sortable().flatMap(both)];
    }

    // The segments of a column with their sizes, counted once.
    values(column, { names, of }) {
      this.counted ||= new Map();
      if (!this.counted.has(column)) {
        const counts = new Array(names.length).fill(0);
        for (const own of of) for (const number of own) counts[number]++;
        const none = of.filter((own) => !own.length).length;
        const options = names.map((name, number) => [String(number), sized(name, counts[number])]);
        if (none) options.push([NONE, sized("none", none)]);
        this.counted.set(column, [[ANY, "any"], ...options]);
      }
      return this.counted.get(column);
    }
  }

  function sized(name, count) {
    return `${name} (${count.toLocaleString("en")})`;
  }

  function told(modes, lacking) {
    const some = modes.slice(0, -1).join(", ");
    return `${some ? `${some} and ` : ""}${modes.at(-1)} cannot be told: ${lacking}.`;
  }

  // Options are only made anew when they changed: a list that is open stays open.
  function fill({ control }, options, chosen) {
    const key = JSON.stringify(options);
    if (control.dataset.options !== key) {
      control.dataset.options = key;
      control.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
    }
    control.value = chosen;
  }

  karat.Controls = Controls;
})();
