"use strict";

// How far raters agree, as a table; shown to a rater who has finished.
(function () {
  const karat = (window.karat = window.karat || {});
  const HEADS = ["Raters", "Both graded", "Same grade", "Kappa", "Linear kappa"];

  function cell(name, text, kind) {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function figure(value) {
    return value === null ? "–" : value.toFixed(2).replace("-", "−");
  }

  function row(pair) {
    const made = document.createElement("tr");
    const raters = cell("th", pair.raters.join(" and "));
    raters.scope = "row";
    const share = pair.share === null ? "–" : `${(100 * pair.share).toFixed(0)} %`;
    const values = [pair.n.toLocaleString("en"), share, figure(pair.kappa), figure(pair.kappa_linear)];
    made.append(raters, ...values.map((value) => cell("td", value, "num")));
    return made;
  }

  function table(pairs) {
    const made = document.createElement("table");
    made.className = "grid-table";
    const head = document.createElement("thead");
    const top = document.createElement("tr");
    for (const [at, name] of HEADS.entries()) {
      const one = cell("th", name, at ? "num" : "");
      one.scope = "col";
      top.append(one);
    }
    head.append(top);
    const body = document.createElement("tbody");
    body.append(...pairs.map(row));
    made.append(head, body);
    return made;
  }

  // What the API says on agreement, put into an element.
  function show(element, found) {
    if (!found.pairs.length) {
      element.replaceChildren(cell("p", "It takes two raters.", "muted"));
      return;
    }
    const around = document.createElement("div");
    around.className = "scroll";
    around.tabIndex = 0;
    around.setAttribute("role", "region");
    around.setAttribute("aria-label", "Agreement");
    around.append(table(found.pairs));
    const notes = found.pairs.filter((pair) => pair.because);
    const told = notes.map((pair) =>
      cell("p", `${pair.raters.join(" and ")}: ${pair.because}.`, "muted small"),
    );
    element.replaceChildren(around, ...told);
  }

  karat.labelAgreement = { show };
})();
