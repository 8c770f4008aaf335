// Lines that connect the same item in neighbouring lists, and highlighting of an item in all lists.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, makeSvg } = karat;
  // Lines end at the first line of a card, even if its id wraps.
  const FIRST_LINE = 24;

  class JoinedLists {
    constructor(columns) {
      this.columns = columns;
      this.pinned = null;
      this.lines = [];
      this.owners = new Map(columns.flatMap((column) => column.cards.map((card) => [card.element, card])));
      this.drawing = makeSvg("svg", { class: "dr-lines", "aria-hidden": "true", focusable: "false" });
      this.board = make("div", { class: "dr-board" }, columns.map((column) => column.element), this.drawing);
      const ranks = Math.max(0, ...columns.slice(1).map((column) => column.cards.length));
      this.board.style.setProperty("--dr-ranks", ranks + 1);
      this.board.style.setProperty("--dr-count", columns.length);
      this.element = make("div", { class: "dr-lists" }, this.tabs(),
        make("div", { class: "dr-scroll", tabindex: 0, role: "group", "aria-label": "Lists side by side" }, this.board));
      this.showRankChanges();
      this.listen();
    }

    listen() {
      const { board } = this;
      board.addEventListener("pointerover", (event) => this.hover(this.cardAt(event)));
      board.addEventListener("pointerleave", () => this.hover(null));
      board.addEventListener("focusin", (event) => this.hover(this.cardAt(event)));
      board.addEventListener("focusout", () => this.hover(null));
      board.addEventListener("karat:reshaped", () => this.draw());
      board.addEventListener("click", (event) => event.target.closest(".dr-id") && this.pin(this.cardAt(event)));
      this.watch = new ResizeObserver(() => this.draw());
      this.watch.observe(board);
    }

    stop() {
      this.watch.disconnect();
    }

    cardAt(event) {
      return this.owners.get(event.target.closest(".dr-item")) ?? null;
    }

    hover(card) {
      this.highlight(card ?? this.pinned);
    }

    pin(card) {
      const unpin = this.pinned && sharedItems(this.pinned, card).length > 0;
      this.pinned = unpin ? null : card;
      for (const other of this.owners.values()) {
        other.button.setAttribute("aria-pressed", String(standForSame(other, this.pinned)));
      }
      this.highlight(this.pinned);
    }

    // Highlights a card, all cards that stand for one of its items, and the lines between them.
    highlight(card) {
      this.board.classList.toggle("has-lit", card !== null);
      for (const other of this.owners.values()) other.element.classList.toggle("is-lit", standForSame(other, card));
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
        for (const tab of bar.children) tab.setAttribute("aria-pressed", String(tab.dataset.column === key));
      };
      const systems = this.columns.filter((column) => column.key.startsWith("system"));
      choose(systems[systems.length - 1].key);
      return bar;
    }

    // Shows rank changes from the baseline on the cards of the other systems, if the baseline has a list.
    showRankChanges() {
      const systems = this.columns.filter((column) => column.key.startsWith("system"));
      const base = systems.find((column) => column.key === `system-${karat.data.head.baseline}`) || systems[0];
      const rankedCards = (column) => column.cards.filter((card) => card.rank !== null);
      const baselineRanks = new Map(rankedCards(base).map((card) => [card.item, card.rank]));
      this.baselineName = baselineRanks.size && systems.length > 1 ? base.name : null;
      if (!this.baselineName) return;
      for (const column of systems.filter((other) => other !== base)) {
        for (const card of rankedCards(column)) card.anchor.append(rankChange(card, baselineRanks, base.name));
      }
    }

    // Reads all positions before drawing, so that the browser computes the layout once.
    draw() {
      for (const card of this.owners.values()) showMore(card.element);
      const origin = this.board.getBoundingClientRect();
      const isShown = (card) => card.element.isConnected;
      const positions = this.columns.map(({ cards }) => cards.filter(isShown).map((card) => positionOf(card, origin)));
      this.lines = positions.slice(1).flatMap((right, index) => joinLists(positions[index], right, index === 0));
      this.drawing.setAttribute("width", this.board.scrollWidth);
      this.drawing.setAttribute("height", this.board.scrollHeight);
      this.drawing.replaceChildren(...this.lines.map((joined) => joined.line));
      this.highlight(this.pinned);
    }
  }

  // Compares a card's rank with that in the baseline's list, which may be cut off.
  function rankChange(card, baselineRanks, name) {
    const baselineRank = baselineRanks.get(card.item);
    if (!baselineRank) return changeBadge("new", "muted", `not in the first ${baselineRanks.size} of ${name}`);
    const places = baselineRank - card.rank;
    if (places === 0) return changeBadge("=", "muted", `as in ${name}`, `rank ${baselineRank} in ${name}`);
    const [sign, direction] = places > 0 ? ["▲", "up"] : ["▼", "down"];
    const moved = `${Math.abs(places)} ${direction} from ${name}`;
    return changeBadge(`${sign}${Math.abs(places)}`, direction, moved, `rank ${baselineRank} in ${name}`);
  }

  function changeBadge(sign, direction, description, title = description) {
    return make("span", { class: `dr-move ${direction}`, title },
      make("span", { "aria-hidden": "true" }, sign), make("span", { class: "visually-hidden" }, description));
  }

  // Returns the items that both cards stand for; a card's own item comes first.
  function sharedItems(card, otherCard) {
    return [...card.items].filter((item) => otherCard.items.has(item));
  }

  function standForSame(card, otherCard) {
    return otherCard !== null && sharedItems(card, otherCard).length > 0;
  }

  // Hides the "more" button if the text fits.
  function showMore(element) {
    const button = element.querySelector(".dr-more");
    const text = element.querySelector(".dr-text");
    if (!button || text.classList.contains("is-open")) return;
    button.hidden = !button.dataset.longer && text.scrollHeight <= text.clientHeight + 1;
  }

  function positionOf(card, origin) {
    const box = card.element.getBoundingClientRect();
    const anchorBox = card.anchor.getBoundingClientRect();
    const y = anchorBox.top + Math.min(anchorBox.height, FIRST_LINE) / 2 - origin.top;
    return { card, left: box.left - origin.left, right: box.right - origin.left, y };
  }

  // Gold that is outside both lists gets no line.
  function joinLists(left, right, fromGold) {
    const pairs = left.flatMap((from) => right.map((to) => [from, to, sharedItems(from.card, to.card)]));
    const joined = pairs.filter(([from, to, items]) => items.length && !(from.card.outside && to.card.outside));
    return joined.map(([from, to, items]) => ({ items, line: lineOf(from, to, items[0], fromGold) }));
  }

  function lineOf(from, to, item, fromGold) {
    const middle = (from.right + to.left) / 2;
    const [before, after] = [from.card.rank ?? Infinity, to.card.rank ?? Infinity];
    const direction = fromGold ? "from-gold" : before === after ? "same" : after < before ? "up" : "down";
    const outsideClass = from.card.outside || to.card.outside ? " is-away" : "";
    const path = makeSvg("path", {
      class: `dr-line ${direction}${to.card.gold ? " is-gold" : ""}${outsideClass}`,
      d: `M${from.right} ${from.y} C${middle} ${from.y} ${middle} ${to.y} ${to.left} ${to.y}`,
    });
    path.dataset.item = item;
    return path;
  }

  karat.JoinedLists = JoinedLists;
})();
