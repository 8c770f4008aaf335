// The theme of the page: as the system has it, light or dark, kept from one visit to the next.
(function () {
  "use strict";

  const KEY = "karat.theme";
  const NEXT = { auto: "light", light: "dark", dark: "auto" };
  const root = document.documentElement;

  // A file opened from disk, or a browser that keeps nothing, may refuse the storage.
  function kept() {
    try {
      const theme = window.localStorage.getItem(KEY);
      return theme in NEXT ? theme : "auto";
    } catch {
      return "auto";
    }
  }

  function keep(theme) {
    try {
      window.localStorage.setItem(KEY, theme);
    } catch {
      // It lasts as long as the page.
    }
  }

  let present = kept();

  function apply() {
    if (present === "auto") delete root.dataset.theme;
    else root.dataset.theme = present;
  }

  function tell(button) {
    button.textContent = `Theme: ${present}`;
    button.setAttribute("aria-label", `Theme: ${present}. Change it to ${NEXT[present]}`);
  }

  function start() {
    const button = document.getElementById("theme");
    if (!button) return;
    tell(button);
    button.addEventListener("click", () => {
      present = NEXT[present];
      keep(present);
      apply();
      tell(button);
      document.dispatchEvent(new CustomEvent("karat:theme", { detail: { theme: present } }));
    });
  }

  apply();
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
