// Marks the section in view in the table of contents.
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
    const inView = new Set();
    let atEnd = false;

    // The current section is the first in the upper part of the window, or the last at the page's end.
    function markCurrent() {
      const current = atEnd && window.scrollY > 0 ? last : sections.find((section) => inView.has(section));
      if (!current) return;
      for (const [section, link] of links) {
        if (section !== current) link.removeAttribute("aria-current");
        else if (!link.hasAttribute("aria-current")) markLink(link);
      }
    }

    // The table of contents may be taller or wider than its frame, so the link is scrolled into view.
    function markLink(link) {
      link.setAttribute("aria-current", "true");
      const [box, frame] = [link.getBoundingClientRect(), nav.getBoundingClientRect()];
      if (box.left < frame.left || box.right > frame.right) nav.scrollLeft += box.left - frame.left - 8;
      if (box.top < frame.top || box.bottom > frame.bottom) nav.scrollTop += box.top - frame.top - 8;
    }

    const upper = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          if (isIntersecting) inView.add(target);
          else inView.delete(target);
        }
        markCurrent();
      },
      { rootMargin: "-80px 0px -65% 0px" },
    );
    for (const section of sections) upper.observe(section);
    if (!last) return;
    new IntersectionObserver(
      ([entry]) => {
        atEnd = entry.intersectionRatio >= 0.99;
        markCurrent();
      },
      { threshold: [0.99] },
    ).observe(last);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
