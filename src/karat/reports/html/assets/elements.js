// Creates page elements, with text that is never parsed as HTML, and formats numbers for display.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const SVG = "http://www.w3.org/2000/svg";

  // make("button", {class: "button", onclick: save}, "Save"); null and false values are skipped.
  function make(tag, attributes, ...children) {
    return fill(document.createElement(tag), attributes, children);
  }

  function makeSvg(tag, attributes, ...children) {
    return fill(document.createElementNS(SVG, tag), attributes, children);
  }

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => ![null, undefined, false].includes(child)));
    return element;
  }

  // Four decimals; one for large numbers, such as counts and milliseconds.
  function formatValue(value) {
    if (value === null || value === undefined) return "–";
    return value.toFixed(Math.abs(value) < 100 ? 4 : 1).replace(/^-/, "−");
  }

  // A difference with its sign; screen readers read the true minus aloud.
  function formatChange(value) {
    return value > 0 ? `+${formatValue(value)}` : formatValue(value === 0 ? 0 : value);
  }

  // A number with at most four significant digits: 2, 0.5, 12.35, 2530.
  function formatNumber(value) {
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  }

  function plural(count, singular, pluralForm) {
    return `${count.toLocaleString("en")} ${count === 1 ? singular : pluralForm}`;
  }

  // Class and status names with spaces: complete_miss becomes "complete miss".
  function displayName(name) {
    return name.replaceAll("_", " ");
  }

  Object.assign(karat, { make, makeSvg, formatValue, formatChange, formatNumber, plural, displayName });
})();
