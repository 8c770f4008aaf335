// How pages are made from data: elements whose text is only ever text, and figures as people read them.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  const SVG = "http://www.w3.org/2000/svg";

  // make("button", {class: "button", onclick: save}, "Save"); what is null or false is left out.
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
    element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
    return element;
  }

  // Four decimals; fewer for numbers that are no shares, such as counts and milliseconds.
  function figure(value) {
    if (value === null || value === undefined) return "–";
    return value.toFixed(Math.abs(value) < 100 ? 4 : 1).replace(/^-/, "−");
  }

  // A difference with its sign; the minus is one that is read aloud.
  function change(value) {
    return value > 0 ? `+${figure(value)}` : figure(value === 0 ? 0 : value);
  }

  // A number as it is, without a tail of noise: 2, 0.5, 12.35, 2530.
  function plain(value) {
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  }

  function several(count, one, more) {
    return `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
  }

  // Names of classes and statuses as words: complete_miss reads "complete miss".
  function spoken(name) {
    return name.replaceAll("_", " ");
  }

  Object.assign(karat, { make, makeSvg, figure, change, plain, several, spoken });
})();
