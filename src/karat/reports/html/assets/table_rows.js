// A virtual grid: only the visible rows are elements. Keys and pointer move through the rows.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make } = karat;
  // Extra rows beyond the edges, so that fast scrolling shows no gap.
  const OVERSCAN = 8;
  // The most rows in print.
  const MOST_PRINTED = 40;

  class VirtualRows {
    // columns() returns [{by, name, about, kind, paint(cell, row, printing)}]; open(row) and sortBy(by) are
    // callbacks; forPaper(shown) returns the rows in print order.
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
      this.grid.addEventListener("keydown", (event) => this.onKeydown(event));
      this.grid.addEventListener("focus", () => {
        if (this.position() < 0 && this.shown.length) this.activate(this.visibleRange()[0]);
      });
      this.body.addEventListener("click", (event) => this.onClick(event));
      new ResizeObserver(() => this.paint()).observe(this.grid);
      addEventListener("beforeprint", () => this.print(true));
      addEventListener("afterprint", () => this.print(false));
    }

    // Rebuilds all rows, since the columns may have changed.
    restart() {
      for (const line of this.lines.values()) line.remove();
      this.lines.clear();
      this.layColumns();
      this.grid.setAttribute("aria-colcount", this.columns().length);
      this.drawHead();
    }

    // Print cannot scroll sideways, so the columns of many systems are narrower there.
    layColumns() {
      const narrow = ({ width }) => (this.printed && !width.startsWith("minmax") ? `minmax(3.5rem, ${width})` : width);
      this.grid.style.setProperty("--qt-columns", this.columns().map(narrow).join(" "));
    }

    show(shown, sort) {
      this.shown = shown;
      this.markSort(sort);
      this.grid.setAttribute("aria-rowcount", shown.length + 1);
      this.body.classList.toggle("is-empty", !shown.length);
      this.paint(true);
    }

    drawHead() {
      const cells = this.columns().map((column, index) => {
        const button = make("button", {
          type: "button", class: "qt-sort", title: column.about, "data-by": column.by,
          onclick: () => this.sortBy(column.by),
        }, make("span", { class: "name", dir: "auto" }, column.name));
        const attributes = { role: "columnheader", "aria-colindex": index + 1 };
        return make("div", { class: `qt-cell ${column.kind}`, ...attributes }, button);
      });
      this.head.replaceChildren(make("div", { role: "row", class: "qt-row", "aria-rowindex": 1 }, cells));
    }

    // Updates the header in place, so that it keeps the keyboard focus.
    markSort(sort) {
      const direction = (by) => (sort?.by !== by ? "none" : sort.down ? "descending" : "ascending");
      const heads = this.head.firstChild.children;
      this.columns().forEach(({ by }, index) => heads[index].setAttribute("aria-sort", direction(by)));
    }

    rowHeight() {
      const setting = getComputedStyle(this.grid).getPropertyValue("--qt-row");
      // A browser without @property returns the value as written, in rem.
      const unit = setting.endsWith("rem") ? parseFloat(getComputedStyle(document.documentElement).fontSize) : 1;
      return parseFloat(setting) * unit;
    }

    visibleRange() {
      const height = this.rowHeight();
      const first = Math.floor(this.grid.scrollTop / height);
      const visible = Math.ceil(this.grid.clientHeight / height);
      return [Math.min(first, Math.max(this.shown.length - 1, 0)), first + visible];
    }

    // Reuses the elements of rows that scrolled out of view.
    paint(redraw = false) {
      const height = this.rowHeight();
      const { length } = this.printed || this.shown;
      this.body.style.height = `${length * height}px`;
      const [first, last] = this.printed ? [0, length] : this.visibleRange();
      const from = Math.max(0, first - OVERSCAN);
      const to = Math.min(length, last + OVERSCAN);
      const unused = [];
      for (const [index, line] of this.lines) {
        if (index >= from && index < to && !redraw) continue;
        this.lines.delete(index);
        unused.push(line);
      }
      for (let index = from; index < to; index++) {
        if (!this.lines.has(index)) this.lines.set(index, this.draw(unused.pop() || this.blank(), index, height));
      }
      for (const line of unused) line.remove();
      this.arrange(from, to);
      this.mark();
    }

    // Keeps the elements in row order for screen readers.
    arrange(from, to) {
      for (let index = from; index < to; index++) {
        const current = this.body.children[index - from];
        if (current !== this.lines.get(index)) this.body.insertBefore(this.lines.get(index), current);
      }
    }

    blank() {
      const cells = this.columns().map((column, index) =>
        make("div", { role: "gridcell", class: `qt-cell ${column.kind}`, "aria-colindex": index + 1 }));
      const line = make("div", { role: "row", class: "qt-row" }, cells);
      this.body.append(line);
      return line;
    }

    draw(line, index, height) {
      const row = (this.printed || this.shown)[index];
      line.id = `query-row-${row}`;
      line.dataset.row = row;
      line.setAttribute("aria-rowindex", index + 2);
      line.style.transform = `translateY(${index * height}px)`;
      line.classList.toggle("is-odd", index % 2 === 1);
      this.columns().forEach((column, index) => column.paint(line.children[index], row, Boolean(this.printed)));
      return line;
    }

    position() {
      return this.active === null ? -1 : (this.printed || this.shown).indexOf(this.active);
    }

    activate(index) {
      this.active = this.shown[Math.max(0, Math.min(index, this.shown.length - 1))] ?? null;
      this.reveal();
      this.mark();
    }

    // Scrolls just enough to make the active row visible.
    reveal() {
      const index = this.position();
      if (index < 0) return;
      const height = this.rowHeight();
      const viewport = this.grid.clientHeight - this.head.offsetHeight;
      const top = index * height;
      if (top < this.grid.scrollTop) this.grid.scrollTop = top;
      else if (top + height > this.grid.scrollTop + viewport) this.grid.scrollTop = top + height - viewport;
      this.paint();
    }

    mark() {
      const line = this.lines.get(this.position());
      for (const other of this.lines.values()) {
        other.classList.toggle("is-active", other === line);
        other.setAttribute("aria-selected", other === line);
      }
      if (line) this.grid.setAttribute("aria-activedescendant", line.id);
      else this.grid.removeAttribute("aria-activedescendant");
    }

    onKeydown(event) {
      if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
      const page = Math.max(1, this.visibleRange()[1] - this.visibleRange()[0] - 2);
      const at = this.position();
      const steps = {
        ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.shown.length,
      };
      if (event.key in steps) this.activate(steps[event.key]);
      else if (["Enter", " "].includes(event.key) && at >= 0) this.open(this.active);
      else return;
      event.preventDefault();
    }

    onClick(event) {
      const line = event.target.closest(".qt-row");
      // Let the browser open links in new tabs, and ignore clicks that select text.
      if (!line || event.ctrlKey || event.metaKey || event.shiftKey || String(getSelection())) return;
      event.preventDefault();
      // Focus the grid, not the row, whose element may show another query later.
      this.grid.focus({ preventScroll: true });
      this.active = Number(line.dataset.row);
      this.mark();
      this.open(this.active);
    }

    // Returns the note below a print that shows only some rows.
    partOf(order) {
      if (order.length <= MOST_PRINTED) return "";
      const total = `${order.length.toLocaleString("en")} queries`;
      const part = `${MOST_PRINTED} of ${total}`;
      return `${order === this.shown ? `The first ${part}` : `${part}, misses first`}; the page has all of them.`;
    }

    print(printing) {
      const order = printing ? this.forPaper(this.shown) : null;
      this.printed = order?.slice(0, MOST_PRINTED);
      this.paper.textContent = printing ? this.partOf(order) : "";
      this.layColumns();
      this.paint(true);
    }
  }

  karat.VirtualRows = VirtualRows;
})();
