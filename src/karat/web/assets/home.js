"use strict";

// The list of evaluations: compares the selected ones, with the oldest as the baseline.
(function () {
  const form = document.getElementById("choose");
  if (!form) return;
  const button = document.getElementById("compare");
  const status = document.getElementById("chosen");

  function chosenIds() {
    const boxes = form.querySelectorAll("input[name=ids]:checked");
    return Array.from(boxes, (box) => Number(box.value)).sort((a, b) => a - b);
  }

  function updateStatus() {
    const ids = chosenIds();
    button.disabled = ids.length < 2;
    if (ids.length === 0) {
      status.textContent = "Select two or more; the oldest is the baseline.";
    } else if (ids.length === 1) {
      status.textContent = `${ids[0]} is selected; select another to compare it with.`;
    } else {
      status.textContent = `${ids.slice(1).join(", ")} compared with the baseline ${ids[0]}`;
    }
  }

  form.addEventListener("change", updateStatus);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    window.location.assign(`/compare?ids=${chosenIds().join(",")}`);
  });
  // After the back button, boxes may still be checked.
  window.addEventListener("pageshow", updateStatus);
  updateStatus();
})();
