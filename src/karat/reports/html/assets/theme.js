// The theme of the page: that of the system, light or dark; remembered between visits.
(function () {
  "use strict";

  const KEY = "karat.theme";
  const NEXT = { auto: "light", light: "dark", dark: "auto" };
  const root = document.documentElement;

  // Storage may be unavailable: in a file opened from disk, or in a private window.
  function storedTheme() {
    try {
      const theme = window.localStorage.getItem(KEY);
      return theme in NEXT ? theme : "auto";
    } catch {
      return "auto";
    }
  }

  function storeTheme(theme) {
    try {
      window.localStorage.setItem(KEY, theme);
    } catch {
      // Without storage, the theme lasts until the page is closed.
    }
  }

  let current = storedTheme();

  function apply() {
    if (current === "auto") delete root.dataset.theme;
    else root.dataset.theme = current;
  }

  function labelButton(button) {
    button.textContent = `Theme: ${current}`;
    button.setAttribute("aria-label", `Theme: ${current}. Change it to ${NEXT[current]}`);
  }

  function start() {
    const button = document.getElementById("theme");
    if (!button) return;
    labelButton(button);
    button.addEventListener("click", () => {
      current = NEXT[current];
      storeTheme(current);
      apply();
      labelButton(button);
      document.dispatchEvent(new CustomEvent("karat:theme", { detail: { theme: current } }));
    });
  }

  apply();
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
