// The query table: which queries are shown follows the controls, and the address follows both.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, figure, change, spoken } = karat;

  // So many letters of a text are set in a row on the screen, and on paper.
  const [SEEN, PRINTED] = [300, 2000];

  class QueryTable {
    constructor(model, home) {
      Object.assign(this, { model, home });
      this.state = model.fromParams(karat.place.params());
      this.open = null;
      this.rows = new karat.VirtualRows({
        label: "Queries", columns: () => this.columns,
        open: (row) => karat.drawer.open(row), sortBy: (by) => this.sortBy(by),
        forPaper: (shown) => model.forPaper(shown, this.state),
      });
      this.controls = new karat.Controls(model, { set: (change) => this.set(change), clear: () => this.clear() });
      this.empty = make("p", { class: "qt-empty muted" }, "No query is like that.");
      home.replaceChildren(this.controls.element, this.rows.grid, this.rows.paper, this.empty);
      this.refresh();
    }

    set({ segment, ...change }) {
      const segments = new Map(this.state.segments);
      if (segment) {
        segments.delete(segment[0]);
        if (segment[1] !== undefined) segments.set(segment[0], segment[1]);
      }
      this.state = { ...this.state, ...change, segments };
      if (this.model.lacking(this.state.mode, this.state)) this.state.mode = "all";
      this.rows.grid.scrollTop = 0;
      this.refresh();
      this.write();
    }

    clear() {
      const { system, measure } = this.state;
      this.state = { ...this.model.start(), system, measure };
      this.refresh();
      this.write();
      this.controls.search.focus();
    }

    sortBy(by) {
      const sort = this.model.sortOf(this.state);
      this.set({ sort: { by, down: sort?.by === by && !sort.down } });
    }

    refresh() {
      const view = this.model.view(this.state);
      this.columns = columnsOf(this.model, this.state);
      const shape = JSON.stringify(this.columns);
      if (shape !== this.shape) this.rows.restart();
      this.shape = shape;
      this.controls.show(this.state, view);
      this.rows.show(view.shown, view.sort);
      this.empty.hidden = view.shown.length > 0;
    }

    // Which queries are shown, by their numbers, in their order.
    get shown() {
      return this.rows.shown;
    }

    // Says in the address what is shown, and which query is open; true where that was news.
    write(options) {
      const query = this.open === null ? null : this.model.rows.query_id[this.open];
      return karat.place.write(this.model.toParams(this.state), query, options);
    }

    // Follows the address; an anchor of another section changes nothing but closes what is open.
    follow() {
      if (this.returning) return void this.stay();
      const params = karat.place.params();
      const query = params.get("q");
      const row = query === null ? -1 : this.model.rows.query_id.indexOf(query);
      const wasOpen = this.open !== null;
      const shows = karat.place.stateful() ? !(query !== null && [...params.keys()].length === 1) : !location.hash;
      if (shows) {
        this.state = this.model.fromParams(params);
        this.refresh();
      }
      if (row >= 0) return void karat.drawer.open(row, { told: true });
      karat.drawer.close({ told: true });
      if (query !== null) this.controls.count.textContent = `No query of this report is called “${query}”.`;
      if (karat.place.stateful() && !wasOpen) this.home.closest("section").scrollIntoView();
    }

    // The drawer is at this query: the table marks it and the address names it.
    visit(row, options) {
      this.open = row;
      const at = this.shown.indexOf(row);
      if (at >= 0) this.rows.activate(at);
      return options ? this.write(options) : false;
    }

    // The drawer closed; what was opened by a step is closed by a step back.
    leave({ told, pushed }) {
      this.open = null;
      this.takeFocus();
      if (told) return;
      this.returning = pushed ? { left: scrollX, top: scrollY } : null;
      if (pushed) history.back();
      else this.write();
    }

    // A step back to the anchor of a section would scroll there, and take the focus along.
    stay() {
      scrollTo({ ...this.returning, behavior: "instant" });
      this.returning = null;
      this.takeFocus();
    }

    // Where the focus went with what was closed, the table has it.
    takeFocus() {
      const has = document.activeElement;
      if (!has || has === document.body || has.closest("#drawer")) this.rows.grid.focus({ preventScroll: true });
    }
  }

  function columnsOf(model, state) {
    const { head, rows } = model;
    const looked = head.systems[state.system];
    const longest = lengthOf(rows.query_id);
    return [
      {
        by: "id", name: "Query", kind: "id", width: `${Math.min(22, Math.max(8, longest + 4))}ch`,
        paint: (cell, row) => paintId(cell, rows.query_id[row]),
      },
      {
        by: "text", name: "Text", kind: "asked", width: "minmax(14rem, 1fr)",
        paint: (cell, row, printing) => paintText(cell, rows.text[row], printing ? PRINTED : SEEN),
      },
      ...head.systems.map((_, system) => valueColumn(model, state, system)),
      ...(head.systems.length > 1 ? [deltaColumn(model, state)] : []),
      {
        by: "rank", name: "Gold rank", kind: "num", width: "6.75rem",
        about: `Rank of the first gold in the list of ${looked}`,
        paint: (cell, row) => paintRank(cell, rows.rank[state.system][row], rows.gold[row]),
      },
      {
        by: "class", name: "Outcome", kind: "outcome", width: outcomeWidth(model, state.system),
        about: `Why ${looked} misses, or why it was not scored`,
        paint: (cell, row) => paintOutcome(cell, model, state.system, row),
      },
    ];
  }

  function lengthOf(names) {
    return names.reduce((most, name) => Math.max(most, name.length), 0);
  }

  // As wide as the longest outcome of the system looked at: texts get the rest.
  function outcomeWidth({ head, rows }, system) {
    const kinds = [...new Set(rows.class[system])].map((code) => head.classes[code] ?? "");
    const statuses = [...new Set(rows.status[system])].map((code) => head.statuses[code]);
    const longest = lengthOf([...kinds, ...statuses.filter((name) => name !== "scored")].map(spoken));
    return `${Math.max(6.25, 2.4 + longest * 0.52).toFixed(2)}rem`;
  }

  function valueColumn(model, state, system) {
    const name = model.head.systems[system];
    return {
      by: `value.${system}`, name, about: `${state.measure} of ${name}`,
      kind: system === state.system ? "num is-looked" : "num",
      width: `${Math.min(10, Math.max(5.5, 2.5 + name.length * 0.52))}rem`,
      paint: (cell, row) => (cell.textContent = figure(model.value(row, system, state.measure))),
    };
  }

  function deltaColumn(model, state) {
    const { systems, baseline } = model.head;
    const up = { higher: 1, lower: -1, none: 0 }[model.better(state.measure)];
    const paint = (cell, row) => {
      const delta = model.delta(row, state);
      cell.textContent = change(delta);
      cell.classList.toggle("good", delta * up > 0);
      cell.classList.toggle("bad", delta * up < 0);
    };
    const about = `${state.measure} of ${systems[state.system]} minus that of ${systems[baseline]}`;
    return { by: "delta", name: "Difference", about, kind: "num is-delta", width: "7.25rem", paint };
  }

  function paintId(cell, id) {
    const link = cell.firstChild || cell.appendChild(make("a", { tabindex: -1, class: "name mono", dir: "auto" }));
    link.textContent = id;
    link.href = `#${new URLSearchParams({ q: id })}`;
  }

  // One line of it is in sight; the rest would only cost time. Paper shows all of a text that is no book.
  function paintText(cell, text, most) {
    const span = cell.firstChild || cell.appendChild(make("span", { class: "text", dir: "auto" }));
    span.textContent = text === null ? "(no text)" : text.slice(0, most) + (text.length > most ? " …" : "");
    span.classList.toggle("muted", text === null);
  }

  function paintRank(cell, rank, gold) {
    cell.textContent = rank ?? (gold ? "not found" : "–");
    cell.classList.toggle("muted", rank === null);
  }

  function paintOutcome(cell, { head, rows }, system, row) {
    const status = head.statuses[rows.status[system][row]];
    const kind = head.classes[rows.class[system][row]];
    const lacks = kind || status === "failed" || status === "missing";
    const badge = cell.firstChild || cell.appendChild(make("span"));
    badge.textContent = kind || status !== "scored" ? spoken(kind || status) : "";
    badge.className = badge.textContent && (lacks ? "badge bad" : "badge");
  }

  // Keys that work wherever nothing is being typed.
  function listen(table) {
    addEventListener("hashchange", () => table.follow());
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input, select, textarea, [contenteditable], dialog");
      const { search } = table.controls;
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        search.focus();
        search.select();
      }
      if (event.target !== search) return;
      if (event.key === "Escape" && search.value) table.set({ search: "" });
      else if (event.key === "ArrowDown" || event.key === "Enter") table.rows.grid.focus();
      else return;
      event.preventDefault();
    });
  }

  async function start(home) {
    home.setAttribute("aria-busy", "true");
    home.replaceChildren(make("p", { class: "muted" }, "Reading the queries …"));
    try {
      const model = new karat.QueryModel(karat.data.head, await karat.data.rows());
      karat.table = new QueryTable(model, home);
      listen(karat.table);
      if (karat.place.stateful()) karat.table.follow();
      (window.requestIdleCallback || setTimeout)(() => model.prepare());
    } catch (error) {
      home.replaceChildren(make("p", { class: "notice bad" }, `The queries could not be read. ${error.message}`));
    } finally {
      home.removeAttribute("aria-busy");
    }
  }

  const home = document.getElementById("query-table");
  // Once every script is there, the drawer too.
  if (home && karat.data.head) document.addEventListener("DOMContentLoaded", () => start(home));
})();
