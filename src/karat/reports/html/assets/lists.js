// The lists of one query side by side: gold, systems and BM25, as cards that say what each item is.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, plain, several } = karat;
  // So much of a text is set before anybody asks for more, and so many gold items.
  const SNIPPET = 500;
  // Whether a word is common is told by so much of each text.
  const READ = 2000;
  const GOLD = 20;
  const OUTSIDE = 5;
  const UNANSWERED = { missing: "The run has no answer to this query.", failed: "The call failed." };

  const isGold = (grade) => grade !== null && grade >= karat.data.head.rel;
  const badge = (tone, told) => make("span", { class: `badge ${tone}` }, told);
  const reshaped = (element) => element.dispatchEvent(new Event("karat:reshaped", { bubbles: true }));

  // Where gold stands in a system's lists, in words; `inside` where the list that is shown has it.
  // Its rank says so, not its id: gold may be a document or a span, and the list has its chunk.
  function placeOf(gold, system, detail) {
    const { final, ...stages } = gold.ranks[system] || {};
    const { hits, searched, status } = detail.systems[system];
    const rank = final ?? rankOf(gold.item_id, hits);
    if (rank && rank <= hits.length) return { inside: true, rank, told: `rank ${rank}` };
    if (rank) return { inside: false, told: `gold at rank ${rank}` };
    const found = Object.entries(stages).filter(([, rank]) => rank);
    const told = found.map(([stage, rank]) => `${stage} rank ${rank}`).join(", ");
    if (told) return { inside: false, told: `gold at ${told}` };
    if (gold.in_corpus === false) return { inside: false, told: "not in the corpus" };
    if (status in UNANSWERED) return { inside: false, told: "no list" };
    return { inside: false, told: searched ? `not in the final list of ${searched}` : "not in the final list" };
  }

  function rankOf(item, hits) {
    const at = hits.findIndex(([one]) => one === item);
    return at < 0 ? null : at + 1;
  }

  function badgesOf(item, grade, detail) {
    const negative = detail.negatives.includes(item) && badge("bad", "hard negative");
    if (grade === null) return [negative || badge("unsure", "unjudged")];
    const gold = isGold(grade);
    return [badge(gold ? "good" : "", `${gold ? "gold" : "grade"} ${plain(grade)}`), negative];
  }

  // A text of which only the beginning is in sight, and a button where there is more of it.
  function textOf(item, detail, terms) {
    const known = Object.hasOwn(detail.texts, item) ? detail.texts[item] : undefined;
    if (!known) return [];
    const { marked } = karat.words;
    const body = make("div", { class: "dr-text text", dir: "auto" }, marked(known.text.slice(0, SNIPPET), terms));
    const more = make("button", { type: "button", class: "dr-more", "aria-expanded": "false", hidden: true });
    const named = (word) => {
      more.textContent = word;
      more.setAttribute("aria-label", `${word} of ${item}`);
    };
    named("more");
    more.dataset.longer = known.text.length > SNIPPET || known.cut ? "yes" : "";
    more.addEventListener("click", () => {
      const open = body.classList.toggle("is-open");
      body.replaceChildren(marked(open ? known.text : known.text.slice(0, SNIPPET), terms));
      if (open) body.tabIndex = 0;
      else body.removeAttribute("tabindex");
      if (open && known.cut) body.append(make("em", { class: "muted" }, " … the rest is not in this report"));
      more.setAttribute("aria-expanded", open);
      named(open ? "less" : "more");
      reshaped(more);
    });
    const title = known.title && make("div", { class: "dr-item-title text", dir: "auto" }, marked(known.title, terms));
    return [title, body, more];
  }

  // One item of a list; `outside` for gold that the list does not show, where `notes` say why.
  // `items` are all that it stands for: itself, and the gold that it is a chunk of.
  function card(item, { rank = null, score = null, badges = [], notes = [], gold = false, text = [], stands = [] }) {
    const outside = gold && !badges.length;
    const button = make("button", {
      type: "button", class: "dr-id name mono", dir: "auto", "aria-pressed": "false",
      title: "Keep this item marked",
    }, item);
    const anchor = make("div", { class: "dr-item-head" },
      make("span", { class: "dr-rank num" }, rank === null ? "" : String(rank)), button,
      score !== null && make("span", { class: "dr-score num", title: `score ${score}` }, plain(score)));
    const element = make("li", { class: `dr-item${gold ? " is-gold" : ""}${outside ? " is-outside" : ""}` },
      anchor,
      make("div", { class: "dr-badges" }, badges, notes.map((note) => make("span", { class: "dr-note" }, note))),
      text);
    return { item, items: new Set([item, ...stands]), rank, gold, outside, element, anchor, button };
  }

  // The cards of a ranked list, whoever ranked it; rankOfGold(gold) says where that list has gold.
  function ranked(hits, detail, terms, rankOfGold) {
    const standing = new Map();
    for (const gold of detail.gold) {
      const rank = rankOfGold(gold);
      standing.set(rank, [...(standing.get(rank) || []), gold.item_id]);
    }
    return hits.map(([item, score, grade], at) => {
      const stands = standing.get(at + 1) || [];
      return card(item, {
        rank: at + 1, score, gold: isGold(grade) || stands.length > 0, stands,
        badges: badgesOf(item, grade, detail), text: textOf(item, detail, terms),
      });
    });
  }

  function goldColumn(detail, terms, systems) {
    const cards = detail.gold.map((gold) => {
      const notes = [gold.version && `version ${gold.version}`, gold.section].filter(Boolean);
      if (gold.in_corpus === false) notes.push("not in the corpus");
      const text = [...textOf(gold.item_id, detail, terms), placesOf(gold, detail, systems)];
      return card(gold.item_id, { gold: true, badges: badgesOf(gold.item_id, gold.grade, detail), notes, text });
    });
    const left = detail.gold_left_out || 0;
    const part = left ? `the best ${cards.length} of ${cards.length + left}` : null;
    return column("gold", "Gold", cards, detail.gold.length ? part : "This query has no gold.", GOLD);
  }

  function placesOf(gold, detail, systems) {
    const { head } = karat.data;
    const places = systems.map((system) => [head.systems[system], placeOf(gold, system, detail).told]);
    const depth = head.bm25_depth?.toLocaleString("en");
    const beyond = depth ? `not in BM25’s first ${depth}` : "not in BM25’s list";
    if (detail.bm25) places.push(["BM25", gold.bm25 ? `rank ${gold.bm25}` : beyond]);
    return make("ul", { class: "dr-places" },
      places.map(([name, told]) => make("li", {}, make("bdi", {}, name), `: ${told}`)));
  }

  function systemColumn(system, detail, terms) {
    const { hits, status, searched } = detail.systems[system];
    const cards = ranked(hits, detail, terms, (gold) => placeOf(gold, system, detail).rank);
    const places = detail.gold.map((gold) => ({ gold, ...placeOf(gold, system, detail) }));
    const away = status in UNANSWERED ? [] : places.filter((one) => !one.inside);
    for (const { gold, told } of away.slice(0, OUTSIDE)) {
      cards.push(card(gold.item_id, { gold: true, notes: [told] }));
    }
    const part = searched > hits.length ? `the first ${hits.length} of ${searched}` : null;
    const about = hits.length ? part : UNANSWERED[status] || "The list is empty.";
    const made = column(`system-${system}`, karat.data.head.systems[system], cards, about);
    const more = away.length - OUTSIDE;
    if (more > 0) {
      const told = `and ${several(more, "more gold item", "more gold items")} outside this list`;
      made.element.append(make("p", { class: "muted small" }, told));
    }
    return made;
  }

  function bm25Column(detail, terms) {
    const told = detail.bm25.length ? "karat’s own, for comparison" : "No word of the query is in the corpus.";
    const rank = (gold) => gold.bm25 ?? rankOf(gold.item_id, detail.bm25);
    return column("bm25", "BM25", ranked(detail.bm25, detail, terms, rank), told);
  }

  function column(key, name, cards, about, most = cards.length) {
    const list = make("ol", { class: "dr-cards" }, cards.slice(0, most).map((one) => one.element));
    const kind = key.split("-")[0];
    const element = make("div", { class: `dr-column is-${kind}`, role: "group", "data-column": key, "aria-label": name },
      make("header", { class: "dr-column-head" },
        make("h4", { class: "name", dir: "auto" }, name), about && make("p", { class: "muted small" }, about)),
      list);
    if (cards.length > most) element.append(rest(list, cards.slice(most)));
    return { key, name, cards, element };
  }

  function rest(list, cards) {
    const button = make("button", { type: "button", class: "button" }, `Show ${cards.length} more`);
    button.addEventListener("click", () => {
      list.append(...cards.map((one) => one.element));
      reshaped(list);
      cards[0].button.focus();
      button.remove();
    });
    return button;
  }

  // The beginnings of the texts that are shown, each once.
  function textsIn(detail) {
    const lists = [...detail.systems.map((one) => one.hits), detail.bm25 || []];
    const items = new Set([...detail.gold.map((gold) => gold.item_id), ...lists.flat().map(([item]) => item)]);
    return [...items].filter((item) => Object.hasOwn(detail.texts, item)).map((item) => detail.texts[item].text.slice(0, READ));
  }

  // Which lists a query has: gold, the given systems, BM25 where there is one.
  function columnsOf(detail, systems) {
    const terms = karat.words.terms(detail.text, textsIn(detail));
    const own = systems.map((system) => systemColumn(system, detail, terms));
    return [goldColumn(detail, terms, systems), ...own, ...(detail.bm25 ? [bm25Column(detail, terms)] : [])];
  }

  karat.lists = { columnsOf };
})();
