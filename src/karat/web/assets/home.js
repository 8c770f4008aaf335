"use strict";

// The list of evaluations: says what would be compared, and compares the oldest with the others.
(function () {
  const form = document.getElementById("choose");
  if (!form) return;
  const button = document.getElementById("compare");
  const told = document.getElementById("chosen");

  function chosen() {
    const boxes = form.querySelectorAll("input[name=ids]:checked");
    return Array.from(boxes, (box) => Number(box.value)).sort((a, b) => a - b);
  }

  function tell() {
    const ids = chosen();
    button.disabled = ids.length < 2;
    if (ids.length === 0) {
      told.textContent = "Choose two or more; the oldest is the baseline.";
    } else if (ids.length === 1) {
      told.textContent = `${ids[0]} is chosen; choose another to compare it with.`;
    } else {
      told.textContent = `${ids.slice(1).join(", ")} against the baseline ${ids[0]}`;
    }
  }

  form.addEventListener("change", tell);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    window.location.assign(`/compare?ids=${chosen().join(",")}`);
  });
  // A page that is gone back to may have its boxes still checked.
  window.addEventListener("pageshow", tell);
  tell();
})();
