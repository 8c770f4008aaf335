"use strict";

// The agreement between raters as a table, shown to a rater who has finished.
(function () {
  const karat = (window.karat = window.karat || {});
  const HEADS = ["Raters", "Both graded", "Same grade", "Kappa", "Linear kappa"];

  function cell(name, text, kind) {
    const element = document.createElement(name);
    element.textContent = text;
    if (kind) element.className = kind;
    return element;
  }

  function formatKappa(value) {
    return value === null ? "–" : value.toFixed(2).replace("-", "−");
  }

  function row(pair) {
    const tableRow = document.createElement("tr");
    const raters = cell("th", pair.raters.join(" and "));
    raters.scope = "row";
    const share = pair.share === null ? "–" : `${(100 * pair.share).toFixed(0)} %`;
    const values = [pair.n.toLocaleString("en"), share, formatKappa(pair.kappa), formatKappa(pair.kappa_linear)];
    tableRow.append(raters, ...values.map((value) => cell("td", value, "num")));
    return tableRow;
  }

  function table(pairs) {
    const element = document.createElement("table");
    element.className = "grid-table";
    const head = document.createElement("thead");
    const headerRow = document.createElement("tr");
    for (const [index, name] of HEADS.entries()) {
      const header = cell("th", name, index ? "num" : "");
      header.scope = "col";
      headerRow.append(header);
    }
    head.append(headerRow);
    const body = document.createElement("tbody");
    body.append(...pairs.map(row));
    element.append(head, body);
    return element;
  }

  // Shows the API's agreement figures in an element.
  function show(element, agreement) {
    if (!agreement.pairs.length) {
      element.replaceChildren(cell("p", "Agreement needs two raters.", "muted"));
      return;
    }
    const wrapper = document.createElement("div");
    wrapper.className = "scroll";
    wrapper.tabIndex = 0;
    wrapper.setAttribute("role", "region");
    wrapper.setAttribute("aria-label", "Agreement");
    wrapper.append(table(agreement.pairs));
    const notes = agreement.pairs.filter((pair) => pair.because);
    const notices = notes.map((pair) =>
      cell("p", `${pair.raters.join(" and ")}: ${pair.because}.`, "muted small"),
    );
    element.replaceChildren(wrapper, ...notices);
  }

  karat.labelAgreement = { show };
})();
