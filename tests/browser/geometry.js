// Where things lie on a page, and where Tab goes: looked at from inside the page.
window.karatGeometry = (() => {
  "use strict";
  const SLACK = 1.5;

  function named(element) {
    const id = element.id ? `#${element.id}` : "";
    const classes = [...element.classList].map((one) => `.${one}`).join("");
    const text = (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
    return `<${element.tagName.toLowerCase()}${id}${classes}> ${JSON.stringify(text)}`;
  }

  // What a person can see and use: with a modal dialog open, only what is in it.
  function root() {
    return document.querySelector("dialog:modal") || document.body;
  }

  function shown(element) {
    return element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  }

  // The box that an element's ancestors leave of it; null where nothing is left.
  const clips = new Map();
  function clip(element) {
    if (element === null || element === document.documentElement) {
      return { left: -Infinity, right: Infinity, top: -Infinity, bottom: Infinity };
    }
    if (!clips.has(element)) {
      const outer = clip(element.parentElement);
      const style = getComputedStyle(element);
      const cuts = style.overflowX !== "visible" || style.clipPath !== "none" || style.clip !== "auto";
      const box = element.getBoundingClientRect();
      clips.set(element, cuts && element !== document.body ? meet(outer, box) : outer);
    }
    return clips.get(element);
  }

  function meet(a, b) {
    return {
      left: Math.max(a.left, b.left),
      right: Math.min(a.right, b.right),
      top: Math.max(a.top, b.top),
      bottom: Math.min(a.bottom, b.bottom),
    };
  }

  function floats(element) {
    for (let one = element; one && one !== document.body; one = one.parentElement) {
      if (["fixed", "sticky"].includes(getComputedStyle(one).position) && !one.matches("dialog")) {
        return true;
      }
    }
    return false;
  }

  // The lines of text that can be seen, each with its box and the element that holds it.
  function lines() {
    clips.clear();
    const found = [];
    const walker = document.createTreeWalker(root(), NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const holder = node.parentElement;
      if (!node.data.trim() || holder.closest("script, style, template, noscript")) continue;
      if (!shown(holder) || floats(holder)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const rect of range.getClientRects()) {
        const box = meet(rect, clip(holder));
        // One pixel is how a text is kept for screen readers alone.
        if (box.right - box.left > 2 && box.bottom - box.top > 2) found.push({ holder, box });
      }
    }
    return found;
  }

  function overlapping() {
    const found = lines().sort((a, b) => a.box.top - b.box.top);
    const troubles = [];
    for (let at = 0; at < found.length; at += 1) {
      const one = found[at];
      for (let other = at + 1; other < found.length; other += 1) {
        const two = found[other];
        if (two.box.top >= one.box.bottom) break;
        if (one.holder === two.holder) continue;
        const both = meet(one.box, two.box);
        const height = Math.min(one.box.bottom - one.box.top, two.box.bottom - two.box.top);
        // Boxes of lines reach above and below their letters, so a little overlap is none.
        if (both.right - both.left > 2 && both.bottom - both.top > 0.4 * height) {
          troubles.push(`${named(one.holder)} and ${named(two.holder)}`);
        }
      }
    }
    return troubles.slice(0, 20);
  }

  function outside() {
    clips.clear();
    const width = document.documentElement.clientWidth;
    const troubles = [];
    const scrolled = document.scrollingElement.scrollWidth;
    if (scrolled > width) troubles.push(`the page is ${scrolled} wide and the window ${width}`);
    for (const element of root().querySelectorAll("*")) {
      if (!shown(element) || element.closest("svg svg, svg *")) continue;
      const box = element.getBoundingClientRect();
      const seen = meet(box, clip(element.parentElement));
      if (seen.right > width + SLACK && seen.bottom > seen.top && !floats(element)) {
        troubles.push(`ends at ${Math.round(seen.right)} of ${width}: ${named(element)}`);
      }
      const style = getComputedStyle(element);
      const cut = style.overflowX === "hidden" || style.overflowX === "clip";
      if (cut && box.width > 2 && element.scrollWidth > element.clientWidth + SLACK) {
        if (style.textOverflow !== "ellipsis" && element.clientWidth) {
          troubles.push(`cut at ${element.clientWidth} of ${element.scrollWidth}: ${named(element)}`);
        }
      }
    }
    return troubles.slice(0, 20);
  }

  function textEnd(cell) {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getBoundingClientRect().right;
  }

  function numbers() {
    const troubles = [];
    const columns = new Map();
    for (const cell of root().querySelectorAll("td.num, th.num, [role=cell].num, [role=gridcell].num")) {
      if (!shown(cell) || !cell.textContent.trim()) continue;
      const style = getComputedStyle(cell);
      if (!["right", "end"].includes(style.textAlign)) {
        troubles.push(`aligned ${style.textAlign}: ${named(cell)}`);
      }
      if (!style.fontVariantNumeric.includes("tabular-nums")) {
        troubles.push(`digits of different widths: ${named(cell)}`);
      }
      const table = cell.closest("table");
      if (!table || cell.colSpan > 1 || cell.tagName !== "TD" || cell.children.length) continue;
      const key = `${[...document.querySelectorAll("table")].indexOf(table)}:${cell.cellIndex}:${cell.parentElement.cells.length}`;
      columns.set(key, [...(columns.get(key) || []), [textEnd(cell), cell]]);
    }
    for (const cells of columns.values()) {
      const ends = cells.map(([end]) => end);
      if (Math.max(...ends) - Math.min(...ends) > SLACK) {
        troubles.push(`not below each other: ${cells.slice(0, 4).map(([, cell]) => named(cell))}`);
      }
    }
    return troubles.slice(0, 20);
  }

  const TABBABLE =
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex], [contenteditable=true]";
  let expected = [];
  let before = new Map();
  let reached = new Set();
  let last = null;

  function look(element) {
    const style = getComputedStyle(element);
    const outline = style.outlineStyle === "none" ? "none" : `${style.outlineStyle} ${style.outlineWidth} ${style.outlineColor}`;
    return { outline, shadow: style.boxShadow };
  }

  function isTabbable(element) {
    if (element.disabled || element.tabIndex < 0 || !shown(element)) return false;
    if (element.closest("[inert]") || element.closest("fieldset:disabled")) return false;
    if (element.type === "radio" && !element.checked) {
      const group = document.getElementsByName(element.name);
      // Of radio buttons that belong together Tab takes the chosen one, else the first.
      return ![...group].some((one) => one.checked) && group[0] === element;
    }
    return element.getClientRects().length > 0;
  }

  // From the top, also where the page gives the focus to a field of its own.
  function startTabbing() {
    const start = document.createElement("span");
    start.tabIndex = -1;
    root().prepend(start);
    start.focus();
    start.remove();
    window.scrollTo(0, 0);
    expected = [...root().querySelectorAll(TABBABLE)].filter(isTabbable);
    before = new Map(expected.map((one) => [one, [look(one), look(one.parentElement)]]));
    reached = new Set();
    last = null;
    return expected.map(named);
  }

  function isVisible(element) {
    const [own, around] = before.get(element) || [{}, {}];
    const now = [look(element), look(element.parentElement)];
    return [own, around].some(
      (was, at) =>
        (now[at].outline !== "none" && now[at].outline !== was.outline) ||
        (now[at].shadow !== "none" && now[at].shadow !== was.shadow),
    );
  }

  // Among elements beside each other the next one lies further down, or further right.
  function isBackwards(one, next) {
    if (one.parentElement !== next.parentElement) return false;
    const a = one.getBoundingClientRect();
    const b = next.getBoundingClientRect();
    if (b.bottom <= a.top + SLACK) return true;
    const sameRow = b.top < a.bottom - SLACK && a.top < b.bottom - SLACK;
    return sameRow && getComputedStyle(one).direction === "ltr" && b.right <= a.left + SLACK;
  }

  function step() {
    const here = document.activeElement;
    if (!here || here === document.body || here === document.documentElement) {
      return { over: reached.size > 0, troubles: [] };
    }
    if (reached.has(here)) return { over: true, troubles: [] };
    reached.add(here);
    const troubles = [];
    if (before.has(here) && !isVisible(here)) troubles.push(`focus cannot be seen: ${named(here)}`);
    if (last && last.isConnected) {
      const follows = last.compareDocumentPosition(here) & Node.DOCUMENT_POSITION_FOLLOWING;
      if (!follows || isBackwards(last, here)) {
        troubles.push(`out of order: ${named(last)}, then ${named(here)}`);
      }
    }
    last = here;
    return { over: false, troubles };
  }

  function missed() {
    const left = expected.filter((one) => one.isConnected && isTabbable(one) && !reached.has(one));
    const ahead = expected.filter((one) => one.tabIndex > 0);
    return [
      ...ahead.map((one) => `tabindex ${one.tabIndex}: ${named(one)}`),
      ...left.slice(0, 20).map((one) => `Tab does not reach ${named(one)}`),
    ];
  }

  return { missed, numbers, outside, overlapping, startTabbing, step };
})();
