// The list of sections marks the one in view.
(function () {
  "use strict";

  function start() {
    const nav = document.querySelector("nav.contents");
    if (!nav || !window.IntersectionObserver) return;
    const links = new Map();
    for (const link of nav.querySelectorAll("a[href^='#']")) {
      const section = document.getElementById(link.hash.slice(1));
      if (section) links.set(section, link);
    }
    const sections = [...links.keys()];
    const last = sections.at(-1);
    const near = new Set();
    let ended = false;

    // The first that reaches into the upper part of the window; at the end of the page, the last.
    function mark() {
      const current = ended && window.scrollY > 0 ? last : sections.find((one) => near.has(one));
      if (!current) return;
      for (const [section, link] of links) {
        if (section !== current) link.removeAttribute("aria-current");
        else if (!link.hasAttribute("aria-current")) show(link);
      }
    }

    // Beside the page the list may be taller than the window, above it wider.
    function show(link) {
      link.setAttribute("aria-current", "true");
      const [box, frame] = [link.getBoundingClientRect(), nav.getBoundingClientRect()];
      if (box.left < frame.left || box.right > frame.right) nav.scrollLeft += box.left - frame.left - 8;
      if (box.top < frame.top || box.bottom > frame.bottom) nav.scrollTop += box.top - frame.top - 8;
    }

    const upper = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          if (isIntersecting) near.add(target);
          else near.delete(target);
        }
        mark();
      },
      { rootMargin: "-80px 0px -65% 0px" },
    );
    for (const section of sections) upper.observe(section);
    if (!last) return;
    new IntersectionObserver(
      ([entry]) => {
        ended = entry.intersectionRatio >= 0.99;
        mark();
      },
      { threshold: [0.99] },
    ).observe(last);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
