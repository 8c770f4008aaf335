// A grid of any number of rows, of which only those in sight are elements; moved in by keys or pointer.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make } = karat;
  // Rows beyond the edges, so that a quick scroll does not show a gap.
  const BEYOND = 8;
  // Paper takes only the first of them.
  const PRINTED = 40;

  class VirtualRows {
    // columns(): [{by, name, about, kind, paint(cell, row, printing)}]; open(row) and sortBy(by) are called back,
    // forPaper(shown) says in which order paper gets the first of them.
    constructor({ label, columns, open, sortBy, forPaper }) {
      Object.assign(this, { columns, open, sortBy, forPaper });
      this.shown = [];
      this.active = null;
      this.lines = new Map();
      this.head = make("div", { role: "rowgroup", class: "qt-head" });
      this.body = make("div", { role: "rowgroup", class: "qt-body" });
      this.paper = make("p", { class: "qt-paper muted" });
      this.grid = make("div", { role: "grid", tabindex: 0, class: "qt-grid", "aria-label": label },
        this.head, this.body);
      this.listen();
    }

    listen() {
      this.grid.addEventListener("scroll", () => this.paint(), { passive: true });
      this.grid.addEventListener("keydown", (event) => this.pressed(event));
      this.grid.addEventListener("focus", () => {
        if (this.position() < 0 && this.shown.length) this.activate(this.inSight()[0]);
      });
      this.body.addEventListener("click", (event) => this.clicked(event));
      new ResizeObserver(() => this.paint()).observe(this.grid);
      addEventListener("beforeprint", () => this.print(true));
      addEventListener("afterprint", () => this.print(false));
    }

    // Columns may have changed; every row is made anew.
    restart() {
      for (const line of this.lines.values()) line.remove();
      this.lines.clear();
      this.layColumns();
      this.grid.setAttribute("aria-colcount", this.columns().length);
      this.drawHead();
    }

    // Paper does not scroll sideways: columns of many systems are narrower there.
    layColumns() {
      const own = ({ width }) => (!this.printed || width.startsWith("minmax") ? width : `minmax(3.5rem, ${width})`);
      this.grid.style.setProperty("--qt-columns", this.columns().map(own).join(" "));
    }

    show(shown, sort) {
      this.shown = shown;
      this.markSort(sort);
      this.grid.setAttribute("aria-rowcount", shown.length + 1);
      this.body.classList.toggle("is-empty", !shown.length);
      this.paint(true);
    }

    drawHead() {
      const cells = this.columns().map((column, number) => {
        const button = make("button", {
          type: "button", class: "qt-sort", title: column.about, "data-by": column.by,
          onclick: () => this.sortBy(column.by),
        }, make("span", { class: "name", dir: "auto" }, column.name));
        const place = { role: "columnheader", "aria-colindex": number + 1 };
        return make("div", { class: `qt-cell ${column.kind}`, ...place }, button);
      });
      this.head.replaceChildren(make("div", { role: "row", class: "qt-row", "aria-rowindex": 1 }, cells));
    }

    // The head stays as it is, and the keyboard in it.
    markSort(sort) {
      const way = (by) => (sort?.by !== by ? "none" : sort.down ? "descending" : "ascending");
      const heads = this.head.firstChild.children;
      this.columns().forEach(({ by }, number) => heads[number].setAttribute("aria-sort", way(by)));
    }

    rowHeight() {
      const told = getComputedStyle(this.grid).getPropertyValue("--qt-row");
      // A browser that cannot register a property tells it as it was written.
      const letter = told.endsWith("rem") ? parseFloat(getComputedStyle(document.documentElement).fontSize) : 1;
      return parseFloat(told) * letter;
    }

    inSight() {
      const height = this.rowHeight();
      const first = Math.floor(this.grid.scrollTop / height);
      const many = Math.ceil(this.grid.clientHeight / height);
      return [Math.min(first, Math.max(this.shown.length - 1, 0)), first + many];
    }

    // Rows that went out of sight are used again for those that came into it.
    paint(anew = false) {
      const height = this.rowHeight();
      const { length } = this.printed || this.shown;
      this.body.style.height = `${length * height}px`;
      const [first, last] = this.printed ? [0, length] : this.inSight();
      const from = Math.max(0, first - BEYOND);
      const to = Math.min(length, last + BEYOND);
      const spare = [];
      for (const [at, line] of this.lines) {
        if (at >= from && at < to && !anew) continue;
        this.lines.delete(at);
        spare.push(line);
      }
      for (let at = from; at < to; at++) {
        if (!this.lines.has(at)) this.lines.set(at, this.draw(spare.pop() || this.blank(), at, height));
      }
      for (const line of spare) line.remove();
      this.arrange(from, to);
      this.mark();
    }

    // Who reads the elements one after the other reads the rows in their order.
    arrange(from, to) {
      for (let at = from; at < to; at++) {
        const there = this.body.children[at - from];
        if (there !== this.lines.get(at)) this.body.insertBefore(this.lines.get(at), there);
      }
    }

    blank() {
      const cells = this.columns().map((column, number) =>
        make("div", { role: "gridcell", class: `qt-cell ${column.kind}`, "aria-colindex": number + 1 }));
      const line = make("div", { role: "row", class: "qt-row" }, cells);
      this.body.append(line);
      return line;
    }

    draw(line, at, height) {
      const row = (this.printed || this.shown)[at];
      line.id = `query-row-${row}`;
      line.dataset.row = row;
      line.setAttribute("aria-rowindex", at + 2);
      line.style.transform = `translateY(${at * height}px)`;
      line.classList.toggle("is-odd", at % 2 === 1);
      this.columns().forEach((column, number) => column.paint(line.children[number], row, Boolean(this.printed)));
      return line;
    }

    position() {
      return this.active === null ? -1 : (this.printed || this.shown).indexOf(this.active);
    }

    activate(at) {
      this.active = this.shown[Math.max(0, Math.min(at, this.shown.length - 1))] ?? null;
      this.reveal();
      this.mark();
    }

    // Scrolls as little as it takes to have the active row in sight.
    reveal() {
      const at = this.position();
      if (at < 0) return;
      const height = this.rowHeight();
      const room = this.grid.clientHeight - this.head.offsetHeight;
      const top = at * height;
      if (top < this.grid.scrollTop) this.grid.scrollTop = top;
      else if (top + height > this.grid.scrollTop + room) this.grid.scrollTop = top + height - room;
      this.paint();
    }

    mark() {
      const line = this.lines.get(this.position());
      for (const one of this.lines.values()) {
        one.classList.toggle("is-active", one === line);
        one.setAttribute("aria-selected", one === line);
      }
      if (line) this.grid.setAttribute("aria-activedescendant", line.id);
      else this.grid.removeAttribute("aria-activedescendant");
    }

    pressed(event) {
      if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
      const page = Math.max(1, this.inSight()[1] - this.inSight()[0] - 2);
      const at = this.position();
      const steps = {
        ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.shown.length,
      };
      if (event.key in steps) this.activate(steps[event.key]);
      else if (["Enter", " "].includes(event.key) && at >= 0) this.open(this.active);
      else return;
      event.preventDefault();
    }

    clicked(event) {
      const line = event.target.closest(".qt-row");
      // A link opened elsewhere stays a link, and a text that is being selected is not a click.
      if (!line || event.ctrlKey || event.metaKey || event.shiftKey || String(getSelection())) return;
      event.preventDefault();
      // The row may be used for another query when the keyboard comes back: the grid stays.
      this.grid.focus({ preventScroll: true });
      this.active = Number(line.dataset.row);
      this.mark();
      this.open(this.active);
    }

    // What is said below rows that are only some of them.
    partOf(order) {
      if (order.length <= PRINTED) return "";
      const all = `${order.length.toLocaleString("en")} queries`;
      const some = order === this.shown ? `The first ${PRINTED} of ${all}` : `${PRINTED} of ${all}, misses first`;
      return `${some}; the page itself has all of them.`;
    }

    print(printing) {
      const order = printing ? this.forPaper(this.shown) : null;
      this.printed = order?.slice(0, PRINTED);
      this.paper.textContent = printing ? this.partOf(order) : "";
      this.layColumns();
      this.paint(true);
    }
  }

  karat.VirtualRows = VirtualRows;
})();
