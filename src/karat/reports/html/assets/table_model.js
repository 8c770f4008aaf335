// The data of the query table: which queries are shown, in which order, and the count of each mode.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // Smaller differences are floating-point noise.
  const NO_DIFFERENCE = 1e-12;
  const MODES = ["all", "misses", "regressed", "improved", "different", "unjudged"];
  const NOT_FOUND = Number.MAX_VALUE;
  // Sorting compares this many characters of a name, and numbers in it up to this many digits.
  const [MOST_COMPARED, DIGITS] = [300, 20];

  class QueryModel {
    constructor(head, rows) {
      this.head = head;
      this.rows = rows;
      this.size = rows.query_id.length;
      this.orders = new Map();
      this.haystacks = null;
    }

    // The defaults: the first system that is not the baseline, and the primary measure.
    start() {
      const { systems, baseline, measures, primary } = this.head;
      const firstSystem = systems.findIndex((_, index) => index !== baseline);
      const hasPrimary = measures.some((measure) => measure.name === primary);
      return {
        mode: "all", system: Math.max(firstSystem, 0), measure: hasPrimary ? primary : measures[0].name,
        search: "", kind: null, status: null, segments: new Map(), sort: null,
      };
    }

    // Returns why a mode is not available, or null if it is.
    whyUnavailable(mode, state) {
      const { systems, baseline } = this.head;
      if (!["regressed", "improved", "different"].includes(mode)) return null;
      if (systems.length < 2) return "this report has only one system";
      if (mode === "different") return null;
      if (state.system === baseline) return `${systems[baseline]} is the baseline itself`;
      return this.better(state.measure) === "none" ? `${state.measure} has no better direction` : null;
    }

    better(measure) {
      return this.head.measures.find((candidate) => candidate.name === measure).better;
    }

    value(row, system, measure) {
      return this.rows.values[measure][system][row];
    }

    // Returns the selected system's value minus the baseline's; null for the baseline itself.
    delta(row, state) {
      if (state.system === this.head.baseline) return null;
      const selected = this.value(row, state.system, state.measure);
      const base = this.value(row, this.head.baseline, state.measure);
      if (selected === null || base === null) return null;
      return Math.abs(selected - base) <= NO_DIFFERENCE ? 0 : selected - base;
    }

    // Returns a predicate for each mode: does a row belong to it?
    tests(state) {
      const { rows } = this;
      const sign = this.better(state.measure) === "lower" ? -1 : 1;
      const ifAvailable = (mode, test) => (this.whyUnavailable(mode, state) ? () => false : test);
      return {
        all: () => true,
        misses: (row) => rows.class[state.system][row] >= 0,
        regressed: ifAvailable("regressed", (row) => this.delta(row, state) * sign < 0),
        improved: ifAvailable("improved", (row) => this.delta(row, state) * sign > 0),
        different: ifAvailable("different", (row) => rows.different[row] === 1),
        unjudged: (row) => rows.unjudged[state.system][row] > 0,
      };
    }

    // Returns the rows that match the search and all filters, in any mode.
    matching(state) {
      const { rows, head } = this;
      const tests = [];
      const words = karat.words.fold(state.search).split(/\s+/).filter(Boolean);
      if (words.length) tests.push((row) => words.every((word) => this.haystack(row).includes(word)));
      const kinds = rows.class[state.system];
      if (state.kind !== null) tests.push((row) => head.classes[kinds[row]] === state.kind);
      const statuses = rows.status[state.system];
      if (state.status !== null) tests.push((row) => head.statuses[statuses[row]] === state.status);
      for (const [column, name] of state.segments) {
        const { names, of: memberships } = rows.segments[column];
        const index = names.indexOf(name);
        tests.push(name === null ? (row) => !memberships[row].length : (row) => memberships[row].includes(index));
      }
      const matches = [];
      for (let row = 0; row < this.size; row++) if (tests.every((test) => test(row))) matches.push(row);
      return matches;
    }

    // Returns the sorted rows to show, and the count of each mode under the same filters.
    view(state) {
      const { counts, shown } = this.filtered(state);
      return { counts, shown: this.sorted(shown, state), sort: this.sortOf(state) };
    }

    // Returns the rows in report order; cached, so that sorting does not filter again.
    filtered({ sort, ...state }) {
      const key = JSON.stringify([state, [...state.segments]]);
      if (this.last?.key !== key) {
        const matching = this.matching(state);
        const tests = this.tests(state);
        const counts = {};
        for (const mode of MODES) counts[mode] = matching.filter(tests[mode]).length;
        const shown = state.mode === "all" ? matching : matching.filter(tests[state.mode]);
        this.last = { key, counts, shown };
      }
      return this.last;
    }

    // Print shows only some rows: misses come first, unless the user chose a mode or an order.
    forPaper(shown, state) {
      if (state.mode !== "all" || state.sort) return shown;
      const missed = this.tests(state).misses;
      return [...shown.filter(missed), ...shown.filter((row) => !missed(row))];
    }

    // Returns the user's order, else the largest change first in the modes that show changes.
    sortOf(state) {
      if (state.sort || !["regressed", "improved"].includes(state.mode)) return state.sort;
      const lower = this.better(state.measure) === "lower";
      return { by: "delta", down: (state.mode === "improved") !== lower };
    }

    // Sorts stably in both directions; rows without a value always come last.
    sorted(list, state) {
      const sort = this.sortOf(state);
      if (!sort) return list;
      const order = this.order(sort, state);
      if (list.length === this.size) return order;
      const listed = new Uint8Array(this.size);
      for (const row of list) listed[row] = 1;
      return order.filter((row) => listed[row]);
    }

    // Returns all rows in an order, computed once; any subset of them is then sorted by filtering.
    order({ by, down }, { system, measure }) {
      const cacheKey = JSON.stringify([by, down, system, measure]);
      if (!this.orders.has(cacheKey)) {
        const keys = this.keys(by, { system, measure });
        const rowNumbers = [...keys.keys()];
        const withValue = Uint32Array.from(rowNumbers.filter((row) => !Number.isNaN(keys[row])));
        withValue.sort(down ? (a, b) => keys[b] - keys[a] || a - b : (a, b) => keys[a] - keys[b] || a - b);
        this.orders.set(cacheKey, [...withValue, ...rowNumbers.filter((row) => Number.isNaN(keys[row]))]);
      }
      return this.orders.get(cacheKey);
    }

    // Returns the numeric sort key of each row, NaN if it has none.
    keys(by, state) {
      const { rows, size } = this;
      if (by === "id") return this.alphabetical("query_id");
      if (by === "text") return this.alphabetical("text");
      const forEachRow = (key) => Float64Array.from({ length: size }, (_, row) => key(row) ?? NaN);
      if (by === "delta") return forEachRow((row) => this.delta(row, state));
      const [kinds, ranks] = [rows.class[state.system], rows.rank[state.system]];
      if (by === "class") return forEachRow((row) => (kinds[row] < 0 ? null : kinds[row]));
      // Gold that was not found sorts after every rank; queries without gold have no key.
      if (by === "rank") return forEachRow((row) => ranks[row] ?? (rows.gold[row] ? NOT_FOUND : null));
      const values = rows.values[state.measure][Number(by.slice("value.".length))];
      return forEachRow((row) => values[row]);
    }

    // Returns alphabetical positions, with numbers inside names compared by value.
    alphabetical(column) {
      if (this.orders.has(column)) return this.orders.get(column);
      const names = this.rows[column].map((name) => (name === null ? null : sortKey(name)));
      const order = [...names.keys()].filter((row) => names[row] !== null);
      order.sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : 0));
      const ranks = new Float64Array(this.size).fill(NaN);
      let rank = 0;
      order.forEach((row, index) => {
        if (index && names[order[index - 1]] !== names[row]) rank = index;
        ranks[row] = rank;
      });
      this.orders.set(column, ranks);
      return ranks;
    }

    haystack(row) {
      return this.prepared()[row];
    }

    // Prepares searching and alphabetical sorting while the browser is idle.
    prepare() {
      this.prepared();
      this.alphabetical("query_id");
      this.alphabetical("text");
    }

    // Folding every text takes a moment, so it is done once, at the first search at the latest.
    prepared() {
      const { query_id, text } = this.rows;
      this.haystacks ||= query_id.map((id, row) => karat.words.fold(`${id}\n${text[row] || ""}`));
      return this.haystacks;
    }

    // Returns the state as address parameters, without default values.
    toParams(state) {
      const defaults = this.start();
      const params = new URLSearchParams();
      if (state.mode !== defaults.mode) params.set("mode", state.mode);
      if (state.system !== defaults.system) params.set("system", this.head.systems[state.system]);
      if (state.measure !== defaults.measure) params.set("measure", state.measure);
      if (state.search) params.set("search", state.search);
      if (state.kind !== null) params.set("class", state.kind);
      if (state.status !== null) params.set("status", state.status);
      for (const [column, name] of state.segments) {
        params.append(name === null ? "without" : `in.${column}`, name ?? column);
      }
      if (state.sort) params.set("sort", nameOfSort(state.sort));
      return params;
    }

    // Returns the state for address parameters; values that this report lacks keep their defaults.
    fromParams(params) {
      const { head, rows } = this;
      const state = this.start();
      const system = head.systems.indexOf(params.get("system"));
      if (system >= 0) state.system = system;
      const measure = head.measures.find((candidate) => candidate.name === params.get("measure"));
      if (measure) state.measure = measure.name;
      if (head.classes.includes(params.get("class"))) state.kind = params.get("class");
      if (head.statuses.includes(params.get("status"))) state.status = params.get("status");
      state.search = params.get("search") || "";
      for (const column of Object.keys(rows.segments)) {
        const name = params.get(`in.${column}`);
        if (rows.segments[column].names.includes(name)) state.segments.set(column, name);
        else if (params.getAll("without").includes(column)) state.segments.set(column, null);
      }
      const sort = sortNamed(params.get("sort") || "");
      if (sort && this.sortable().includes(sort.by)) state.sort = sort;
      const mode = params.get("mode");
      if (MODES.includes(mode) && !this.whyUnavailable(mode, state)) state.mode = mode;
      return state;
    }

    sortable() {
      const values = this.head.systems.map((_, index) => `value.${index}`);
      const delta = values.length > 1 ? ["delta"] : [];
      return ["id", "text", ...values, ...delta, "rank", "class"];
    }
  }

  // Returns a sort key for natural order: numbers are padded to one length.
  function sortKey(name) {
    return karat.words.fold(name.slice(0, MOST_COMPARED)).replace(/\d+/g, (digits) => digits.padStart(DIGITS, "0"));
  }

  // Parses an order as written in links and options: "delta", or "-delta" for the largest first.
  function sortNamed(name) {
    return name ? { by: name.replace(/^-/, ""), down: name.startsWith("-") } : null;
  }

  function nameOfSort(sort) {
    return sort ? (sort.down ? "-" : "") + sort.by : "";
  }

  Object.assign(karat, { QueryModel, MODES, sortNamed, nameOfSort });
})();
