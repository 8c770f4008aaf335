// Charts: drawn by Vega as SVG when they come near, all of them once the page is at rest.
// Their colours are CSS custom properties, so a change of theme or printing redraws nothing.
(function () {
  "use strict";

  const karat = (window.karat = window.karat || {});
  const MISSING =
    "The charts of this page are shown as tables; to draw them, install the extra: pip install 'karat[charts]'.";

  // A specification holds its own data: whatever else it asked for is refused.
  const refuse = () => Promise.reject(new Error("a chart fetches nothing"));
  const LOADER = { load: refuse, sanitize: refuse, http: refuse, file: refuse };

  function config() {
    const font = getComputedStyle(document.documentElement).getPropertyValue("--font").trim();
    return {
      font: font || "sans-serif",
      background: null,
      padding: 4,
      axis: {
        labelColor: "var(--muted)",
        titleColor: "var(--muted)",
        gridColor: "var(--line)",
        domainColor: "var(--line)",
        tickColor: "var(--line)",
        labelFontSize: 12,
        titleFontSize: 12,
        titleFontWeight: 500,
        titlePadding: 8,
      },
      legend: { orient: "top", columns: 1, labelColor: "var(--ink)", labelFontSize: 12, labelLimit: 240 },
      text: { color: "var(--ink)", fontSize: 12 },
      view: { stroke: null },
    };
  }

  let tip = null;

  // Vega's own tooltip brings a style sheet and writes HTML; this one shows text.
  function tooltip(_, event, __, value) {
    if (!tip) {
      tip = document.createElement("div");
      tip.className = "chart-tip";
      document.body.append(tip);
    }
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.textContent = String(value);
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - width - 8);
    const below = event.clientY + 16;
    const top = below + height > window.innerHeight ? event.clientY - height - 8 : below;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${Math.max(top, 8)}px`;
  }

  // Draw a Vega-Lite specification into an element, as wide as that is; again when it changes.
  async function draw(plot, spec) {
    const width = plot.clientWidth;
    const sized = { ...spec, width, autosize: { type: "fit-x", contains: "padding" } };
    const { view } = await window.vegaEmbed(plot, sized, {
      mode: "vega-lite",
      config: config(),
      ast: true,
      actions: false,
      renderer: "svg",
      defaultStyle: false,
      loader: LOADER,
      tooltip,
    });
    // Its place says what is drawn, and the table beside it holds the numbers.
    plot.querySelector("svg").setAttribute("aria-hidden", "true");
    let drawn = width;
    new ResizeObserver(() => {
      const now = plot.clientWidth;
      if (!now || now === drawn) return;
      drawn = now;
      view.width(now).runAsync();
    }).observe(plot);
    return view;
  }

  karat.charts = { draw };

  function tellMissing(figures) {
    const notice = document.createElement("p");
    notice.className = "notice";
    notice.textContent = MISSING;
    (figures[0].closest(".charts") || figures[0]).before(notice);
    for (const figure of figures) {
      figure.classList.add("undrawn");
    }
  }

  // Room for the drawing instead of the table; should it fail, the table comes back.
  function makeRoom(figure) {
    figure.classList.add("roomy");
    figure.querySelector(".plot").hidden = false;
    figure.querySelector("details").open = false;
  }

  function start() {
    const figures = [...document.querySelectorAll("figure.chart[data-chart]")];
    if (!figures.length) return;
    if (!window.vegaEmbed) {
      tellMissing(figures);
      return;
    }
    const specs = JSON.parse(document.getElementById("karat-charts").textContent);
    const waiting = new Set(figures);
    figures.forEach(makeRoom);

    // What is not laid out has no width yet, and waits.
    function drawOne(figure) {
      const plot = figure.querySelector(".plot");
      if (!waiting.has(figure) || !plot.clientWidth) return;
      waiting.delete(figure);
      near.unobserve(figure);
      draw(plot, specs[figure.dataset.chart]).then(
        () => figure.classList.add("drawn"),
        (error) => {
          figure.classList.add("undrawn");
          figure.querySelector("details").open = true;
          console.error(`chart ${figure.dataset.chart}:`, error);
        },
      );
    }

    const near = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) if (entry.isIntersecting) drawOne(entry.target);
      },
      { rootMargin: "600px 0px" },
    );
    for (const figure of figures) near.observe(figure);

    // Even a page that is never at rest draws what it may have to print.
    function later(work) {
      if (window.requestIdleCallback) window.requestIdleCallback(work, { timeout: 500 });
      else window.setTimeout(work, 200);
    }

    function drawNext() {
      const next = [...waiting].find((figure) => figure.querySelector(".plot").clientWidth);
      if (!next) return;
      drawOne(next);
      later(drawNext);
    }
    if (document.readyState === "complete") later(drawNext);
    else window.addEventListener("load", () => later(drawNext));
    window.addEventListener("beforeprint", () => [...waiting].forEach(drawOne));
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
