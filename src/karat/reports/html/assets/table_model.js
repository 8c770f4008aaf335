// Which queries are shown, in which order, and how many each mode would show: no page in here, only data.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // Differences below this are how floating point writes "none".
  const NO_DIFFERENCE = 1e-12;
  const MODES = ["all", "misses", "regressed", "improved", "different", "unjudged"];
  const LAST = Number.MAX_VALUE;
  // Names that are the same so far count as the same; numbers inside them are compared up to so many digits.
  const [COMPARED, DIGITS] = [300, 20];

  class QueryModel {
    constructor(head, rows) {
      this.head = head;
      this.rows = rows;
      this.size = rows.query_id.length;
      this.known = new Map();
      this.haystacks = null;
    }

    // The first system that is not the baseline is looked at, by the measure that decides.
    start() {
      const { systems, baseline, measures, primary } = this.head;
      const other = systems.findIndex((_, number) => number !== baseline);
      const named = measures.some((one) => one.name === primary);
      return {
        mode: "all", system: Math.max(other, 0), measure: named ? primary : measures[0].name,
        search: "", kind: null, status: null, segments: new Map(), sort: null,
      };
    }

    // Why a mode cannot be had, or null.
    lacking(mode, state) {
      const { systems, baseline } = this.head;
      if (!["regressed", "improved", "different"].includes(mode)) return null;
      if (systems.length < 2) return "this report has only one system";
      if (mode === "different") return null;
      if (state.system === baseline) return `${systems[baseline]} is the baseline itself`;
      return this.better(state.measure) === "none" ? `${state.measure} has no better side` : null;
    }

    better(measure) {
      return this.head.measures.find((one) => one.name === measure).better;
    }

    value(row, system, measure) {
      return this.rows.values[measure][system][row];
    }

    // What the system that is looked at has more than the baseline; null for the baseline itself.
    delta(row, state) {
      if (state.system === this.head.baseline) return null;
      const own = this.value(row, state.system, state.measure);
      const base = this.value(row, this.head.baseline, state.measure);
      if (own === null || base === null) return null;
      return Math.abs(own - base) <= NO_DIFFERENCE ? 0 : own - base;
    }

    // A test for each mode: does a row belong to it?
    tests(state) {
      const { rows } = this;
      const up = this.better(state.measure) === "lower" ? -1 : 1;
      const possible = (mode, test) => (this.lacking(mode, state) ? () => false : test);
      return {
        all: () => true,
        misses: (row) => rows.class[state.system][row] >= 0,
        regressed: possible("regressed", (row) => this.delta(row, state) * up < 0),
        improved: possible("improved", (row) => this.delta(row, state) * up > 0),
        different: possible("different", (row) => rows.different[row] === 1),
        unjudged: (row) => rows.unjudged[state.system][row] > 0,
      };
    }

    // The rows that pass the search and every filter, whatever the mode.
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
        const { names, of } = rows.segments[column];
        const number = names.indexOf(name);
        tests.push(name === null ? (row) => !of[row].length : (row) => of[row].includes(number));
      }
      const found = [];
      for (let row = 0; row < this.size; row++) if (tests.every((test) => test(row))) found.push(row);
      return found;
    }

    // The rows to show in their order, and the count of each mode under the same filters.
    view(state) {
      const { counts, shown } = this.chosen(state);
      return { counts, shown: this.sorted(shown, state), sort: this.sortOf(state) };
    }

    // The rows in the order of the report; another order of the same rows does not ask again.
    chosen({ sort, ...state }) {
      const name = JSON.stringify([state, [...state.segments]]);
      if (this.last?.name !== name) {
        const matching = this.matching(state);
        const tests = this.tests(state);
        const counts = {};
        for (const mode of MODES) counts[mode] = matching.filter(tests[mode]).length;
        const shown = state.mode === "all" ? matching : matching.filter(tests[state.mode]);
        this.last = { name, counts, shown };
      }
      return this.last;
    }

    // Paper takes a few: misses before the rest, unless somebody chose what to see or its order.
    forPaper(shown, state) {
      if (state.mode !== "all" || state.sort) return shown;
      const missed = this.tests(state).misses;
      return [...shown.filter(missed), ...shown.filter((row) => !missed(row))];
    }

    // What a user chose, else the largest change first where changes are looked at.
    sortOf(state) {
      if (state.sort || !["regressed", "improved"].includes(state.mode)) return state.sort;
      const lower = this.better(state.measure) === "lower";
      return { by: "delta", down: (state.mode === "improved") !== lower };
    }

    // Stable in both directions; what has no value stands last in both.
    sorted(list, state) {
      const sort = this.sortOf(state);
      if (!sort) return list;
      const order = this.order(sort, state);
      if (list.length === this.size) return order;
      const wanted = new Uint8Array(this.size);
      for (const row of list) wanted[row] = 1;
      return order.filter((row) => wanted[row]);
    }

    // All rows in an order, worked out once: some of them are in it already.
    order({ by, down }, { system, measure }) {
      const name = JSON.stringify([by, down, system, measure]);
      if (!this.known.has(name)) {
        const keys = this.keys(by, { system, measure });
        const all = [...keys.keys()];
        const valued = Uint32Array.from(all.filter((row) => !Number.isNaN(keys[row])));
        valued.sort(down ? (a, b) => keys[b] - keys[a] || a - b : (a, b) => keys[a] - keys[b] || a - b);
        this.known.set(name, [...valued, ...all.filter((row) => Number.isNaN(keys[row]))]);
      }
      return this.known.get(name);
    }

    // A number for each row to sort it by, NaN where there is none.
    keys(by, state) {
      const { rows, size } = this;
      if (by === "id") return this.alphabetical("query_id");
      if (by === "text") return this.alphabetical("text");
      const each = (key) => Float64Array.from({ length: size }, (_, row) => key(row) ?? NaN);
      if (by === "delta") return each((row) => this.delta(row, state));
      const [kinds, ranks] = [rows.class[state.system], rows.rank[state.system]];
      if (by === "class") return each((row) => (kinds[row] < 0 ? null : kinds[row]));
      // Gold that was not found stands behind every rank; without gold there is nothing to find.
      if (by === "rank") return each((row) => ranks[row] ?? (rows.gold[row] ? LAST : null));
      const values = rows.values[state.measure][Number(by.slice("value.".length))];
      return each((row) => values[row]);
    }

    // Places in alphabetical order, numbers inside names by their size.
    alphabetical(column) {
      if (this.known.has(column)) return this.known.get(column);
      const names = this.rows[column].map((name) => (name === null ? null : spelledOut(name)));
      const order = [...names.keys()].filter((row) => names[row] !== null);
      order.sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : 0));
      const places = new Float64Array(this.size).fill(NaN);
      let place = 0;
      order.forEach((row, at) => {
        if (at && names[order[at - 1]] !== names[row]) place = at;
        places[row] = place;
      });
      this.known.set(column, places);
      return places;
    }

    haystack(row) {
      return this.prepared()[row];
    }

    // What takes a moment, done before anybody asks: what is searched, and the alphabet.
    prepare() {
      this.prepared();
      this.alphabetical("query_id");
      this.alphabetical("text");
    }

    // Folding every text takes a moment, so it is done once, before or at the first search.
    prepared() {
      const { query_id, text } = this.rows;
      this.haystacks ||= query_id.map((id, row) => karat.words.fold(`${id}\n${text[row] || ""}`));
      return this.haystacks;
    }

    // What a link says of the view; what is as at the start is left out.
    toParams(state) {
      const start = this.start();
      const params = new URLSearchParams();
      if (state.mode !== start.mode) params.set("mode", state.mode);
      if (state.system !== start.system) params.set("system", this.head.systems[state.system]);
      if (state.measure !== start.measure) params.set("measure", state.measure);
      if (state.search) params.set("search", state.search);
      if (state.kind !== null) params.set("class", state.kind);
      if (state.status !== null) params.set("status", state.status);
      for (const [column, name] of state.segments) {
        params.append(name === null ? "without" : `in.${column}`, name ?? column);
      }
      if (state.sort) params.set("sort", nameOfSort(state.sort));
      return params;
    }

    // The view that a link asks for; what this report does not have is left as at the start.
    fromParams(params) {
      const { head, rows } = this;
      const state = this.start();
      const system = head.systems.indexOf(params.get("system"));
      if (system >= 0) state.system = system;
      const measure = head.measures.find((one) => one.name === params.get("measure"));
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
      if (MODES.includes(mode) && !this.lacking(mode, state)) state.mode = mode;
      return state;
    }

    sortable() {
      const values = this.head.systems.map((_, number) => `value.${number}`);
      const delta = values.length > 1 ? ["delta"] : [];
      return ["id", "text", ...values, ...delta, "rank", "class"];
    }
  }

  // As it stands in the alphabet when letters are compared one by one: numbers padded to one length.
  function spelledOut(name) {
    return karat.words.fold(name.slice(0, COMPARED)).replace(/\d+/g, (digits) => digits.padStart(DIGITS, "0"));
  }

  // A sort as a link and a list of choices write it: "delta", or "-delta" for the largest first.
  function sortNamed(name) {
    return name ? { by: name.replace(/^-/, ""), down: name.startsWith("-") } : null;
  }

  function nameOfSort(sort) {
    return sort ? (sort.down ? "-" : "") + sort.by : "";
  }

  Object.assign(karat, { QueryModel, MODES, sortNamed, nameOfSort });
})();
