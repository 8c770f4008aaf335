// The lists of one query side by side: gold, systems and BM25, with a card for each item.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, formatNumber, plural } = karat;
  // The characters of a text, and below the gold items, that are shown before "more" is pressed.
  const SNIPPET = 500;
  // The characters of each text that are read to find common words.
  const SAMPLE = 2000;
  const MOST_GOLD = 20;
  const MOST_OUTSIDE = 5;
  const NO_ANSWER = { missing: "The run has no answer to this query.", failed: "The call failed." };

  const isGold = (grade) => grade !== null && grade >= karat.data.head.rel;
  const badge = (tone, label) => make("span", { class: `badge ${tone}` }, label);
  const notifyReshaped = (element) => element.dispatchEvent(new Event("karat:reshaped", { bubbles: true }));

  // Describes where a gold item is in a system's lists; `inside` if the shown list contains it. This
  // depends on its rank, not its id: gold may be a document or span, and the list has its chunk.
  function positionOf(gold, system, detail) {
    const { final, ...stages } = gold.ranks[system] || {};
    const { hits, searched, status } = detail.systems[system];
    const rank = final ?? rankOf(gold.item_id, hits);
    if (rank && rank <= hits.length) return { inside: true, rank, label: `rank ${rank}` };
    if (rank) return { inside: false, label: `gold at rank ${rank}` };
    const foundIn = Object.entries(stages).filter(([, rank]) => rank);
    const label = foundIn.map(([stage, rank]) => `${stage} rank ${rank}`).join(", ");
    if (label) return { inside: false, label: `gold at ${label}` };
    if (gold.in_corpus === false) return { inside: false, label: "not in the corpus" };
    if (status in NO_ANSWER) return { inside: false, label: "no list" };
    return { inside: false, label: searched ? `not in the final list of ${searched}` : "not in the final list" };
  }

  function rankOf(item, hits) {
    const index = hits.findIndex(([hitId]) => hitId === item);
    return index < 0 ? null : index + 1;
  }

  function gradeBadges(item, grade, detail) {
    const negative = detail.negatives.includes(item) && badge("bad", "hard negative");
    if (grade === null) return [negative || badge("unsure", "unjudged")];
    const gold = isGold(grade);
    return [badge(gold ? "good" : "", `${gold ? "gold" : "grade"} ${formatNumber(grade)}`), negative];
  }

  // Returns the title, the start of the text, and a button to show the rest.
  function textElements(item, detail, terms) {
    const entry = Object.hasOwn(detail.texts, item) ? detail.texts[item] : undefined;
    if (!entry) return [];
    const { marked } = karat.words;
    const body = make("div", { class: "dr-text text", dir: "auto" }, marked(entry.text.slice(0, SNIPPET), terms));
    const button = make("button", { type: "button", class: "dr-more", "aria-expanded": "false", hidden: true });
    const labelButton = (action) => {
      button.textContent = action;
      button.setAttribute("aria-label", `${action} of ${item}`);
    };
    labelButton("more");
    button.dataset.longer = entry.text.length > SNIPPET || entry.cut ? "yes" : "";
    button.addEventListener("click", () => {
      const isOpen = body.classList.toggle("is-open");
      body.replaceChildren(marked(isOpen ? entry.text : entry.text.slice(0, SNIPPET), terms));
      if (isOpen) body.tabIndex = 0;
      else body.removeAttribute("tabindex");
      if (isOpen && entry.cut) body.append(make("em", { class: "muted" }, " … the report does not include the rest"));
      button.setAttribute("aria-expanded", isOpen);
      labelButton(isOpen ? "less" : "more");
      notifyReshaped(button);
    });
    const title = entry.title && make("div", { class: "dr-item-title text", dir: "auto" }, marked(entry.title, terms));
    return [title, body, button];
  }

  // Creates the card of an item. It is `outside` if it is gold that the list lacks; `notes` say why.
  // `items` holds the item and the gold items that it is a chunk of.
  function createCard(item, { rank = null, score = null, badges = [], notes = [], gold = false, text = [], goldIds = [] }) {
    const outside = gold && !badges.length;
    const button = make("button", {
      type: "button", class: "dr-id name mono", dir: "auto", "aria-pressed": "false",
      title: "Keep this item highlighted",
    }, item);
    const anchor = make("div", { class: "dr-item-head" },
      make("span", { class: "dr-rank num" }, rank === null ? "" : String(rank)), button,
      score !== null && make("span", { class: "dr-score num", title: `score ${score}` }, formatNumber(score)));
    const element = make("li", { class: `dr-item${gold ? " is-gold" : ""}${outside ? " is-outside" : ""}` },
      anchor,
      make("div", { class: "dr-badges" }, badges, notes.map((note) => make("span", { class: "dr-note" }, note))),
      text);
    return { item, items: new Set([item, ...goldIds]), rank, gold, outside, element, anchor, button };
  }

  // Returns the cards of a ranked list; rankOfGold(gold) gives the rank of a gold item in it.
  function rankedCards(hits, detail, terms, rankOfGold) {
    const goldByRank = new Map();
    for (const gold of detail.gold) {
      const rank = rankOfGold(gold);
      goldByRank.set(rank, [...(goldByRank.get(rank) || []), gold.item_id]);
    }
    return hits.map(([item, score, grade], index) => {
      const goldIds = goldByRank.get(index + 1) || [];
      return createCard(item, {
        rank: index + 1, score, gold: isGold(grade) || goldIds.length > 0, goldIds,
        badges: gradeBadges(item, grade, detail), text: textElements(item, detail, terms),
      });
    });
  }

  function goldColumn(detail, terms, systems) {
    const cards = detail.gold.map((gold) => {
      const notes = [gold.version && `version ${gold.version}`, gold.section].filter(Boolean);
      if (gold.in_corpus === false) notes.push("not in the corpus");
      const text = [...textElements(gold.item_id, detail, terms), positionList(gold, detail, systems)];
      return createCard(gold.item_id, { gold: true, badges: gradeBadges(gold.item_id, gold.grade, detail), notes, text });
    });
    const omitted = detail.gold_left_out || 0;
    const summary = omitted ? `the best ${cards.length} of ${cards.length + omitted}` : null;
    return createColumn("gold", "Gold", cards, detail.gold.length ? summary : "This query has no gold.", MOST_GOLD);
  }

  function positionList(gold, detail, systems) {
    const { head } = karat.data;
    const positions = systems.map((system) => [head.systems[system], positionOf(gold, system, detail).label]);
    const depth = head.bm25_depth?.toLocaleString("en");
    const notFound = depth ? `not in BM25’s top ${depth}` : "not in BM25’s list";
    if (detail.bm25) positions.push(["BM25", gold.bm25 ? `rank ${gold.bm25}` : notFound]);
    return make("ul", { class: "dr-places" },
      positions.map(([name, label]) => make("li", {}, make("bdi", {}, name), `: ${label}`)));
  }

  function systemColumn(system, detail, terms) {
    const { hits, status, searched } = detail.systems[system];
    const cards = rankedCards(hits, detail, terms, (gold) => positionOf(gold, system, detail).rank);
    const positions = detail.gold.map((gold) => ({ gold, ...positionOf(gold, system, detail) }));
    const outside = status in NO_ANSWER ? [] : positions.filter((position) => !position.inside);
    for (const { gold, label } of outside.slice(0, MOST_OUTSIDE)) {
      cards.push(createCard(gold.item_id, { gold: true, notes: [label] }));
    }
    const summary = searched > hits.length ? `the first ${hits.length} of ${searched}` : null;
    const description = hits.length ? summary : NO_ANSWER[status] || "The list is empty.";
    const systemList = createColumn(`system-${system}`, karat.data.head.systems[system], cards, description);
    const remaining = outside.length - MOST_OUTSIDE;
    if (remaining > 0) {
      const message = `and ${plural(remaining, "more gold item", "more gold items")} outside this list`;
      systemList.element.append(make("p", { class: "muted small" }, message));
    }
    return systemList;
  }

  function bm25Column(detail, terms) {
    const empty = "The corpus contains no word of the query.";
    const description = detail.bm25.length ? "karat’s own BM25, for comparison" : empty;
    const rank = (gold) => gold.bm25 ?? rankOf(gold.item_id, detail.bm25);
    return createColumn("bm25", "BM25", rankedCards(detail.bm25, detail, terms, rank), description);
  }

  function createColumn(key, name, cards, about, limit = cards.length) {
    const list = make("ol", { class: "dr-cards" }, cards.slice(0, limit).map((card) => card.element));
    const kind = key.split("-")[0];
    const element = make("div", { class: `dr-column is-${kind}`, role: "group", "data-column": key, "aria-label": name },
      make("header", { class: "dr-column-head" },
        make("h4", { class: "name", dir: "auto" }, name), about && make("p", { class: "muted small" }, about)),
      list);
    if (cards.length > limit) element.append(showMoreButton(list, cards.slice(limit)));
    return { key, name, cards, element };
  }

  function showMoreButton(list, cards) {
    const button = make("button", { type: "button", class: "button" }, `Show ${cards.length} more`);
    button.addEventListener("click", () => {
      list.append(...cards.map((card) => card.element));
      notifyReshaped(list);
      cards[0].button.focus();
      button.remove();
    });
    return button;
  }

  // Returns the start of each text that is shown, without duplicates.
  function textSamples(detail) {
    const lists = [...detail.systems.map((system) => system.hits), detail.bm25 || []];
    const ids = new Set([...detail.gold.map((gold) => gold.item_id), ...lists.flat().map(([item]) => item)]);
    return [...ids].filter((id) => Object.hasOwn(detail.texts, id)).map((id) => detail.texts[id].text.slice(0, SAMPLE));
  }

  // Returns the lists of a query: gold, the given systems, and BM25 if it was searched.
  function columnsOf(detail, systems) {
    const terms = karat.words.terms(detail.text, textSamples(detail));
    const systemColumns = systems.map((system) => systemColumn(system, detail, terms));
    return [goldColumn(detail, terms, systems), ...systemColumns, ...(detail.bm25 ? [bm25Column(detail, terms)] : [])];
  }

  karat.lists = { columnsOf };
})();
