// The results of one query: by system, by measure, and the commands that reproduce them.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const { make, formatValue, formatChange, formatNumber, displayName } = karat;

  // Longer attributes are cut.
  const MOST_CHARACTERS = 400;

  // Attributes come from the user's files and may have any type.
  function formatAttribute(value) {
    if (typeof value === "number") return formatNumber(value);
    if (Array.isArray(value)) return value.map(formatAttribute).join(", ");
    return truncate(value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
  }

  function truncate(text) {
    return text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)} …` : text;
  }

  // Returns the tone of a difference: "good", "bad" or "muted".
  function tone(delta, better) {
    const sign = { higher: 1, lower: -1, none: 0 }[better];
    return delta * sign > 0 ? "good" : delta * sign < 0 ? "bad" : "muted";
  }

  function facts(detail) {
    const attribute = ([name, value]) => make("span", { class: "chip" }, make("span", { class: "muted" }, truncate(name)),
      " ", make("span", { class: "text", dir: "auto" }, formatAttribute(value)));
    return make("div", { class: "dr-facts" },
      make("div", { class: "toolbar" },
        make("code", { class: "dr-query-id name", dir: "auto" }, detail.query_id),
        Object.entries(detail.attributes || {}).map(attribute)),
      detail.note && make("p", { class: "text", dir: "auto" }, make("strong", {}, "Note: "), detail.note));
  }

  function outcomes(detail, row) {
    return make("div", { class: "dr-outcomes" }, detail.systems.map((result, system) => outcome(result, system, row)));
  }

  function outcome(result, system, row) {
    const { model, state } = karat.table;
    const rank = model.rows.rank[system][row];
    const failed = ["missing", "failed"].includes(result.status);
    const badges = [
      result.status !== "scored" && make("span", { class: failed ? "badge bad" : "badge" }, displayName(result.status)),
      result.class && make("span", { class: "badge bad" }, displayName(result.class)),
      rank !== null && make("span", { class: rank <= model.head.k ? "badge good" : "badge" }, `gold at rank ${rank}`),
    ];
    return make("article", { class: "dr-outcome" },
      make("h4", { class: "name", dir: "auto" }, model.head.systems[system]),
      badges.some(Boolean) && make("p", { class: "toolbar" }, badges),
      valueOf(system, row, model, state.measure),
      result.because && make("p", { class: "text" }, missScope(result), result.because),
      result.error && make("p", { class: "dr-error text mono", dir: "auto", tabindex: 0 }, result.error),
      callList(result.calls));
  }

  // The reason for a miss refers to the retriever's list, which may be longer than the final list shown.
  function missScope({ because, searched }) {
    const [, top] = /^not in the top (\d+)/.exec(because) || [];
    return searched && Number(top) > searched && make("span", { class: "muted" }, "In the retriever’s own list: ");
  }

  function valueOf(system, row, model, measure) {
    const delta = model.delta(row, { system, measure });
    const direction = tone(delta, model.better(measure));
    return make("p", {}, make("span", { class: "muted" }, `${measure} `),
      make("strong", { class: "num" }, formatValue(model.value(row, system, measure))),
      delta !== null && make("span", { class: `num dr-delta ${direction}` }, ` ${formatChange(delta)}`));
  }

  function callList(call) {
    const values = Object.entries(call || {}).filter(([, value]) => value !== null);
    const pair = ([name, value]) =>
      [make("dt", {}, name), make("dd", { class: "text", dir: "auto" }, formatCallValue(name, value))];
    return values.length > 0 && make("dl", { class: "dr-calls" }, values.map(pair));
  }

  // Logged times are always in milliseconds.
  function formatCallValue(name, value) {
    const isTime = typeof value === "number" && /^latency(\.|$)/.test(name);
    return isTime ? `${formatAttribute(value)} ms` : formatAttribute(value);
  }

  // Returns a table of all measures by system, with the differences from the baseline.
  function measures(row) {
    const { model } = karat.table;
    const { systems, baseline } = model.head;
    const head = (name) => make("th", { class: "num", scope: "col" }, make("bdi", {}, name));
    const heads = systems.map((name, system) => [head(name), system !== baseline && head("difference")]);
    const line = ({ name, better }) => make("tr", {}, make("th", { scope: "row" }, name), systems.map((_, system) => {
      const delta = model.delta(row, { system, measure: name });
      return [make("td", { class: "num" }, formatValue(model.value(row, system, name))),
        system !== baseline && make("td", { class: `num dr-delta ${tone(delta, better)}` }, formatChange(delta))];
    }));
    return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "All measures" },
      make("table", { class: "grid-table" },
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "measure"), heads)),
        make("tbody", {}, model.head.measures.map(line))));
  }

  function commands(detail) {
    const { systems, commands: templates } = karat.data.head;
    const blocks = templates.map((command, index) => command && reproduction(command, systems[index], detail.query_id));
    const message = "No command can reproduce this: the run or the gold was not read from a file.";
    return blocks.some(Boolean) ? blocks : make("p", { class: "muted" }, message);
  }

  function reproduction(command, system, id) {
    const code = make("code", {}, commandFor(command, id));
    const button = make("button", { type: "button", class: "button", onclick: () => copy(code, button) }, "Copy");
    const attributes = { tabindex: 0, role: "group", "aria-label": `Command for ${system}` };
    return make("div", { class: "dr-reproduce" }, make("pre", { class: "dr-command", ...attributes }, code), button);
  }

  // Only the last {query} is the placeholder: a file name may contain {query} too.
  function commandFor(command, id) {
    const start = command.lastIndexOf("{query}");
    return start < 0 ? command : command.slice(0, start) + shellQuoted(id) + command.slice(start + "{query}".length);
  }

  // Quotes for a POSIX shell: inside single quotes, only a single quote is special.
  function shellQuoted(text) {
    return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
  }

  // If the page may not write to the clipboard, select the text so that the user can copy it.
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
