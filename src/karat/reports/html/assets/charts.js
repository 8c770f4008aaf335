// Charts: Vega draws them as SVG when they are about to scroll into view, the rest when the page is
// idle. Their colours are CSS custom properties, so a theme change or printing needs no redraw.
(function () {
  "use strict";

  const karat = (window.karat = window.karat || {});
  const MISSING =
    "The charts on this page are shown as tables. To draw them, install the extra: pip install 'karat[charts]'.";

  // A specification contains its data; any attempt to load more is refused.
  const refuse = () => Promise.reject(new Error("a chart must not load anything"));
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

  // Vega's own tooltip adds a style sheet and writes HTML; this one only shows text.
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

  // Draws a Vega-Lite specification at the width of its element, and follows changes of that width.
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
    // The enclosing element describes the chart, and the table next to it holds the numbers.
    plot.querySelector("svg").setAttribute("aria-hidden", "true");
    let drawnWidth = width;
    new ResizeObserver(() => {
      const newWidth = plot.clientWidth;
      if (!newWidth || newWidth === drawnWidth) return;
      drawnWidth = newWidth;
      view.width(newWidth).runAsync();
    }).observe(plot);
    return view;
  }

  karat.charts = { draw };

  function showMissingNotice(figures) {
    const notice = document.createElement("p");
    notice.className = "notice";
    notice.textContent = MISSING;
    (figures[0].closest(".charts") || figures[0]).before(notice);
    for (const figure of figures) {
      figure.classList.add("undrawn");
    }
  }

  // Reserves space for the drawing and closes the table; if drawing fails, the table reopens.
  function reserveSpace(figure) {
    figure.classList.add("roomy");
    figure.querySelector(".plot").hidden = false;
    figure.querySelector("details").open = false;
  }

  function start() {
    const figures = [...document.querySelectorAll("figure.chart[data-chart]")];
    if (!figures.length) return;
    if (!window.vegaEmbed) {
      showMissingNotice(figures);
      return;
    }
    const specs = JSON.parse(document.getElementById("karat-charts").textContent);
    const waiting = new Set(figures);
    figures.forEach(reserveSpace);

    // A chart without layout has no width yet; it is drawn later.
    function drawFigure(figure) {
      const plot = figure.querySelector(".plot");
      if (!waiting.has(figure) || !plot.clientWidth) return;
      waiting.delete(figure);
      observer.unobserve(figure);
      draw(plot, specs[figure.dataset.chart]).then(
        () => figure.classList.add("drawn"),
        (error) => {
          figure.classList.add("undrawn");
          figure.querySelector("details").open = true;
          console.error(`chart ${figure.dataset.chart}:`, error);
        },
      );
    }

    const observer = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) if (entry.isIntersecting) drawFigure(entry.target);
      },
      { rootMargin: "600px 0px" },
    );
    for (const figure of figures) observer.observe(figure);

    // The timeout draws charts even if the page is never idle, since it may be printed.
    function whenIdle(task) {
      if (window.requestIdleCallback) window.requestIdleCallback(task, { timeout: 500 });
      else window.setTimeout(task, 200);
    }

    function drawNext() {
      const next = [...waiting].find((figure) => figure.querySelector(".plot").clientWidth);
      if (!next) return;
      drawFigure(next);
      whenIdle(drawNext);
    }
    if (document.readyState === "complete") whenIdle(drawNext);
    else window.addEventListener("load", () => whenIdle(drawNext));
    window.addEventListener("beforeprint", () => [...waiting].forEach(drawFigure));
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
