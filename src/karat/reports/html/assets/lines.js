// Lines between neighbouring lists where they have the same item, and the item marked wherever it stands.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, makeSvg } = karat;
  // Lines end at the first line of a card, however long its id is.
  const FIRST_LINE = 24;

  class JoinedLists {
    constructor(columns) {
      this.columns = columns;
      this.pinned = null;
      this.lines = [];
      this.owners = new Map(columns.flatMap((one) => one.cards.map((card) => [card.element, card])));
      this.drawing = makeSvg("svg", { class: "dr-lines", "aria-hidden": "true", focusable: "false" });
      this.board = make("div", { class: "dr-board" }, columns.map((one) => one.element), this.drawing);
      const ranks = Math.max(0, ...columns.slice(1).map((one) => one.cards.length));
      this.board.style.setProperty("--dr-ranks", ranks + 1);
      this.board.style.setProperty("--dr-count", columns.length);
      this.element = make("div", { class: "dr-lists" }, this.tabs(),
        make("div", { class: "dr-scroll", tabindex: 0, role: "group", "aria-label": "Lists side by side" }, this.board));
      this.tellMoves();
      this.listen();
    }

    listen() {
      const { board } = this;
      board.addEventListener("pointerover", (event) => this.point(this.under(event)));
      board.addEventListener("pointerleave", () => this.point(null));
      board.addEventListener("focusin", (event) => this.point(this.under(event)));
      board.addEventListener("focusout", () => this.point(null));
      board.addEventListener("karat:reshaped", () => this.draw());
      board.addEventListener("click", (event) => event.target.closest(".dr-id") && this.pin(this.under(event)));
      this.watch = new ResizeObserver(() => this.draw());
      this.watch.observe(board);
    }

    stop() {
      this.watch.disconnect();
    }

    under(event) {
      return this.owners.get(event.target.closest(".dr-item")) ?? null;
    }

    point(card) {
      this.light(card ?? this.pinned);
    }

    pin(card) {
      const again = this.pinned && shared(this.pinned, card).length > 0;
      this.pinned = again ? null : card;
      for (const one of this.owners.values()) {
        one.button.setAttribute("aria-pressed", String(isSame(one, this.pinned)));
      }
      this.light(this.pinned);
    }

    // A card is marked with all that stand for one of its items, and the lines between them.
    light(card) {
      this.board.classList.toggle("has-lit", card !== null);
      for (const one of this.owners.values()) one.element.classList.toggle("is-lit", isSame(one, card));
      for (const { line, items } of this.lines) {
        line.classList.toggle("is-lit", card !== null && items.some((item) => card.items.has(item)));
      }
    }

    // On a narrow screen one list is shown at a time.
    tabs() {
      const button = ({ key, name }) => make("button", {
        type: "button", class: "qt-mode", "data-column": key, onclick: () => choose(key),
      }, make("bdi", {}, name));
      const bar = make("div", { class: "dr-tabs", role: "group", "aria-label": "Which list" }, this.columns.map(button));
      const choose = (key) => {
        for (const { element } of this.columns) element.classList.toggle("is-chosen", element.dataset.column === key);
        for (const one of bar.children) one.setAttribute("aria-pressed", String(one.dataset.column === key));
      };
      const systems = this.columns.filter((one) => one.key.startsWith("system"));
      choose(systems[systems.length - 1].key);
      return bar;
    }

    // What moved against the baseline, said on the cards of the others; against no list nothing moved.
    tellMoves() {
      const systems = this.columns.filter((one) => one.key.startsWith("system"));
      const base = systems.find((one) => one.key === `system-${karat.data.head.baseline}`) || systems[0];
      const listed = (column) => column.cards.filter((card) => card.rank !== null);
      const before = new Map(listed(base).map((card) => [card.item, card.rank]));
      this.against = before.size && systems.length > 1 ? base.name : null;
      if (!this.against) return;
      for (const column of systems.filter((one) => one !== base)) {
        for (const card of listed(column)) card.anchor.append(moveOf(card, before, base.name));
      }
    }

    // Places are read before anything is drawn, so that the page is laid out once.
    draw() {
      for (const card of this.owners.values()) showMore(card.element);
      const origin = this.board.getBoundingClientRect();
      const there = (card) => card.element.isConnected;
      const placed = this.columns.map(({ cards }) => cards.filter(there).map((card) => placeOf(card, origin)));
      this.lines = placed.slice(1).flatMap((right, at) => join(placed[at], right, at === 0));
      this.drawing.setAttribute("width", this.board.scrollWidth);
      this.drawing.setAttribute("height", this.board.scrollHeight);
      this.drawing.replaceChildren(...this.lines.map((one) => one.line));
      this.light(this.pinned);
    }
  }

  // How far a card is from its rank in another list, of which the beginning is known.
  function moveOf(card, before, name) {
    const was = before.get(card.item);
    if (!was) return move("new", "muted", `not in the first ${before.size} of ${name}`);
    const by = was - card.rank;
    if (by === 0) return move("=", "muted", `as in ${name}`, `rank ${was} in ${name}`);
    const [sign, way] = by > 0 ? ["▲", "up"] : ["▼", "down"];
    return move(`${sign}${Math.abs(by)}`, way, `${Math.abs(by)} ${way} from ${name}`, `rank ${was} in ${name}`);
  }

  function move(sign, way, told, title = told) {
    return make("span", { class: `dr-move ${way}`, title },
      make("span", { "aria-hidden": "true" }, sign), make("span", { class: "visually-hidden" }, told));
  }

  // What both stand for, the item itself first.
  function shared(one, other) {
    return [...one.items].filter((item) => other.items.has(item));
  }

  function isSame(one, other) {
    return other !== null && shared(one, other).length > 0;
  }

  // A text that fits needs no button for more of it.
  function showMore(element) {
    const more = element.querySelector(".dr-more");
    const text = element.querySelector(".dr-text");
    if (!more || text.classList.contains("is-open")) return;
    more.hidden = !more.dataset.longer && text.scrollHeight <= text.clientHeight + 1;
  }

  function placeOf(card, origin) {
    const box = card.element.getBoundingClientRect();
    const line = card.anchor.getBoundingClientRect();
    const y = line.top + Math.min(line.height, FIRST_LINE) / 2 - origin.top;
    return { card, left: box.left - origin.left, right: box.right - origin.left, y };
  }

  // Gold that is in neither of two lists moved nowhere: no line.
  function join(left, right, fromGold) {
    const pairs = left.flatMap((from) => right.map((to) => [from, to, shared(from.card, to.card)]));
    const wanted = pairs.filter(([from, to, items]) => items.length && !(from.card.outside && to.card.outside));
    return wanted.map(([from, to, items]) => ({ items, line: lineOf(from, to, items[0], fromGold) }));
  }

  function lineOf(from, to, item, fromGold) {
    const middle = (from.right + to.left) / 2;
    const [was, is] = [from.card.rank ?? Infinity, to.card.rank ?? Infinity];
    const way = fromGold ? "from-gold" : was === is ? "same" : is < was ? "up" : "down";
    const away = from.card.outside || to.card.outside ? " is-away" : "";
    const line = makeSvg("path", {
      class: `dr-line ${way}${to.card.gold ? " is-gold" : ""}${away}`,
      d: `M${from.right} ${from.y} C${middle} ${from.y} ${middle} ${to.y} ${to.left} ${to.y}`,
    });
    line.dataset.item = item;
    return line;
  }

  karat.JoinedLists = JoinedLists;
})();
