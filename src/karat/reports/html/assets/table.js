// The query table: the controls determine which queries are shown, and the address records both.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, formatValue, formatChange, displayName } = karat;

  // The most characters of a text to render in a row on the screen, and in print.
  const [MOST_ON_SCREEN, MOST_ON_PAPER] = [300, 2000];

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
      this.empty = make("p", { class: "qt-empty muted" }, "No queries match these filters.");
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
      if (this.model.whyUnavailable(this.state.mode, this.state)) this.state.mode = "all";
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

    // The row numbers of the queries shown, in their order.
    get shown() {
      return this.rows.shown;
    }

    // Writes the state and the open query to the address; returns true if that changed it.
    write(options) {
      const query = this.open === null ? null : this.model.rows.query_id[this.open];
      return karat.place.write(this.model.toParams(this.state), query, options);
    }

    // Applies the address to the table; an anchor of another section only closes the drawer.
    follow() {
      if (this.returning) return void this.restoreScroll();
      const params = karat.place.params();
      const query = params.get("q");
      const row = query === null ? -1 : this.model.rows.query_id.indexOf(query);
      const wasOpen = this.open !== null;
      const showsTable = karat.place.stateful() ? !(query !== null && [...params.keys()].length === 1) : !location.hash;
      if (showsTable) {
        this.state = this.model.fromParams(params);
        this.refresh();
      }
      if (row >= 0) return void karat.drawer.open(row, { fromAddress: true });
      karat.drawer.close({ fromAddress: true });
      if (query !== null) this.controls.count.textContent = `This report has no query “${query}”.`;
      if (karat.place.stateful() && !wasOpen) this.home.closest("section").scrollIntoView();
    }

    // The drawer shows this query: mark it in the table and write it to the address.
    visit(row, options) {
      this.open = row;
      const position = this.shown.indexOf(row);
      if (position >= 0) this.rows.activate(position);
      return options ? this.write(options) : false;
    }

    // The drawer closed: if opening it added a history entry, go back.
    leave({ fromAddress, pushed }) {
      this.open = null;
      this.takeFocus();
      if (fromAddress) return;
      this.returning = pushed ? { left: scrollX, top: scrollY } : null;
      if (pushed) history.back();
      else this.write();
    }

    // Going back to the anchor of a section would scroll there and move the focus.
    restoreScroll() {
      scrollTo({ ...this.returning, behavior: "instant" });
      this.returning = null;
      this.takeFocus();
    }

    // Focuses the table if closing the drawer left nothing focused.
    takeFocus() {
      const focused = document.activeElement ?? document.body;
      if (focused === document.body || focused.closest("#drawer")) this.rows.grid.focus({ preventScroll: true });
    }
  }

  function columnsOf(model, state) {
    const { head, rows } = model;
    const selected = head.systems[state.system];
    const longest = longestLength(rows.query_id);
    return [
      {
        by: "id", name: "Query", kind: "id", width: `${Math.min(22, Math.max(8, longest + 4))}ch`,
        paint: (cell, row) => paintId(cell, rows.query_id[row]),
      },
      {
        by: "text", name: "Text", kind: "asked", width: "minmax(14rem, 1fr)",
        paint: (cell, row, printing) => paintText(cell, rows.text[row], printing ? MOST_ON_PAPER : MOST_ON_SCREEN),
      },
      ...head.systems.map((_, system) => valueColumn(model, state, system)),
      ...(head.systems.length > 1 ? [deltaColumn(model, state)] : []),
      {
        by: "rank", name: "Gold rank", kind: "num", width: "6.75rem",
        about: `Rank of the first gold in the list of ${selected}`,
        paint: (cell, row) => paintRank(cell, rows.rank[state.system][row], rows.gold[row]),
      },
      {
        by: "class", name: "Outcome", kind: "outcome", width: outcomeWidth(model, state.system),
        about: `Why ${selected} misses, or why it was not scored`,
        paint: (cell, row) => paintOutcome(cell, model, state.system, row),
      },
    ];
  }

  function longestLength(names) {
    return names.reduce((longest, name) => Math.max(longest, name.length), 0);
  }

  // As wide as the selected system's longest outcome, which leaves the rest to the texts.
  function outcomeWidth({ head, rows }, system) {
    const kinds = [...new Set(rows.class[system])].map((code) => head.classes[code] ?? "");
    const statuses = [...new Set(rows.status[system])].map((code) => head.statuses[code]);
    const longest = longestLength([...kinds, ...statuses.filter((name) => name !== "scored")].map(displayName));
    return `${Math.max(6.25, 2.4 + longest * 0.52).toFixed(2)}rem`;
  }

  function valueColumn(model, state, system) {
    const name = model.head.systems[system];
    return {
      by: `value.${system}`, name, about: `${state.measure} of ${name}`,
      kind: system === state.system ? "num is-looked" : "num",
      width: `${Math.min(10, Math.max(5.5, 2.5 + name.length * 0.52))}rem`,
      paint: (cell, row) => (cell.textContent = formatValue(model.value(row, system, state.measure))),
    };
  }

  function deltaColumn(model, state) {
    const { systems, baseline } = model.head;
    const sign = { higher: 1, lower: -1, none: 0 }[model.better(state.measure)];
    const paint = (cell, row) => {
      const delta = model.delta(row, state);
      cell.textContent = formatChange(delta);
      cell.classList.toggle("good", delta * sign > 0);
      cell.classList.toggle("bad", delta * sign < 0);
    };
    const title = `${state.measure} of ${systems[state.system]} minus that of ${systems[baseline]}`;
    return { by: "delta", name: "Difference", about: title, kind: "num is-delta", width: "7.25rem", paint };
  }

  function paintId(cell, id) {
    const link = cell.firstChild || cell.appendChild(make("a", { tabindex: -1, class: "name mono", dir: "auto" }));
    link.textContent = id;
    link.href = `#${new URLSearchParams({ q: id })}`;
  }

  // The screen shows one line, so rendering more would only cost time; print shows more.
  function paintText(cell, text, limit) {
    const span = cell.firstChild || cell.appendChild(make("span", { class: "text", dir: "auto" }));
    span.textContent = text === null ? "(no text)" : text.slice(0, limit) + (text.length > limit ? " …" : "");
    span.classList.toggle("muted", text === null);
  }

  function paintRank(cell, rank, gold) {
    cell.textContent = rank ?? (gold ? "not found" : "–");
    cell.classList.toggle("muted", rank === null);
  }

  function paintOutcome(cell, { head, rows }, system, row) {
    const status = head.statuses[rows.status[system][row]];
    const kind = head.classes[rows.class[system][row]];
    const unanswered = kind || status === "failed" || status === "missing";
    const badge = cell.firstChild || cell.appendChild(make("span"));
    badge.textContent = kind || status !== "scored" ? displayName(kind || status) : "";
    badge.className = badge.textContent && (unanswered ? "badge bad" : "badge");
  }

  // Keyboard shortcuts that work unless the user is typing in another field.
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
  // Waits until all scripts have run, including the drawer's.
  if (home && karat.data.head) document.addEventListener("DOMContentLoaded", () => start(home));
})();
