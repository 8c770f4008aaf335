// What became of one query: in each system, by every measure, and the commands that show it again.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, figure, change, plain, spoken } = karat;

  // As much of an attribute as reads beside others.
  const LONGEST = 400;

  // Attributes are whatever a file holds.
  function spelled(value) {
    if (typeof value === "number") return plain(value);
    if (Array.isArray(value)) return value.map(spelled).join(", ");
    return cut(value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
  }

  function cut(text) {
    return text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text;
  }

  // Whether a difference is for the better: "good", "bad" or "muted".
  function tone(delta, better) {
    const up = { higher: 1, lower: -1, none: 0 }[better];
    return delta * up > 0 ? "good" : delta * up < 0 ? "bad" : "muted";
  }

  function facts(detail) {
    const attribute = ([name, value]) => make("span", { class: "chip" },
      make("span", { class: "muted" }, cut(name)), " ", make("span", { class: "text", dir: "auto" }, spelled(value)));
    return make("div", { class: "dr-facts" },
      make("div", { class: "toolbar" },
        make("code", { class: "dr-query-id name", dir: "auto" }, detail.query_id),
        Object.entries(detail.attributes || {}).map(attribute)),
      detail.note && make("p", { class: "text", dir: "auto" }, make("strong", {}, "Note: "), detail.note));
  }

  function outcomes(detail, row) {
    return make("div", { class: "dr-outcomes" }, detail.systems.map((one, system) => outcome(one, system, row)));
  }

  function outcome(one, system, row) {
    const { model, state } = karat.table;
    const rank = model.rows.rank[system][row];
    const lacks = ["missing", "failed"].includes(one.status);
    const badges = [
      one.status !== "scored" && make("span", { class: lacks ? "badge bad" : "badge" }, spoken(one.status)),
      one.class && make("span", { class: "badge bad" }, spoken(one.class)),
      rank !== null && make("span", { class: rank <= model.head.k ? "badge good" : "badge" }, `gold at rank ${rank}`),
    ];
    return make("article", { class: "dr-outcome" },
      make("h4", { class: "name", dir: "auto" }, model.head.systems[system]),
      badges.some(Boolean) && make("p", { class: "toolbar" }, badges),
      valueOf(system, row, model, state.measure),
      one.because && make("p", { class: "text" }, origin(one), one.because),
      one.error && make("p", { class: "dr-error text mono", dir: "auto", tabindex: 0 }, one.error),
      calls(one.calls));
  }

  // A miss is looked for in what the retriever returned, which may be longer than the final list beside it.
  function origin({ because, searched }) {
    const [, top] = /^not in the top (\d+)/.exec(because) || [];
    return searched && Number(top) > searched && make("span", { class: "muted" }, "In the retriever’s own list: ");
  }

  function valueOf(system, row, model, measure) {
    const delta = model.delta(row, { system, measure });
    const way = tone(delta, model.better(measure));
    return make("p", {}, make("span", { class: "muted" }, `${measure} `),
      make("strong", { class: "num" }, figure(model.value(row, system, measure))),
      delta !== null && make("span", { class: `num dr-delta ${way}` }, ` ${change(delta)}`));
  }

  function calls(known) {
    const told = Object.entries(known || {}).filter(([, value]) => value !== null);
    const line = ([name, value]) =>
      [make("dt", {}, name), make("dd", { class: "text", dir: "auto" }, measured(name, value))];
    return told.length > 0 && make("dl", { class: "dr-calls" }, told.map(line));
  }

  // Times of calls are milliseconds, whoever logged them.
  function measured(name, value) {
    const timed = typeof value === "number" && /^latency(\.|$)/.test(name);
    return timed ? `${spelled(value)} ms` : spelled(value);
  }

  // Every measure of every system, and how far each is from the baseline.
  function measures(row) {
    const { model } = karat.table;
    const { systems, baseline } = model.head;
    const head = (name) => make("th", { class: "num", scope: "col" }, make("bdi", {}, name));
    const heads = systems.map((name, system) => [head(name), system !== baseline && head("difference")]);
    const line = ({ name, better }) => make("tr", {}, make("th", { scope: "row" }, name), systems.map((_, system) => {
      const delta = model.delta(row, { system, measure: name });
      return [make("td", { class: "num" }, figure(model.value(row, system, name))),
        system !== baseline && make("td", { class: `num dr-delta ${tone(delta, better)}` }, change(delta))];
    }));
    return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "All measures" },
      make("table", { class: "grid-table" },
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "measure"), heads)),
        make("tbody", {}, model.head.measures.map(line))));
  }

  function commands(detail) {
    const { systems, commands: given } = karat.data.head;
    const told = given.map((command, system) => command && reproduction(command, systems[system], detail.query_id));
    const none = "No command shows this again: the run or the gold came from no file.";
    return told.some(Boolean) ? told : make("p", { class: "muted" }, none);
  }

  function reproduction(command, system, id) {
    const code = make("code", {}, commandFor(command, id));
    const button = make("button", { type: "button", class: "button", onclick: () => copy(code, button) }, "Copy");
    const about = { tabindex: 0, role: "group", "aria-label": `Command for ${system}` };
    return make("div", { class: "dr-reproduce" }, make("pre", { class: "dr-command", ...about }, code), button);
  }

  // The last place is the query's; a file may be called {query} too.
  function commandFor(command, id) {
    const at = command.lastIndexOf("{query}");
    return at < 0 ? command : command.slice(0, at) + quoted(id) + command.slice(at + "{query}".length);
  }

  // As a POSIX shell reads it back: inside single quotes nothing means anything but themselves.
  function quoted(text) {
    return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
  }

  // Where the clipboard is closed to pages, the text is selected for the user's own keys.
  async function copy(code, button) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected: press Ctrl+C";
    }
  }

  karat.outcomes = { facts, outcomes, measures, commands };
})();
