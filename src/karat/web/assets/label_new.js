"use strict";

// The form that makes a label set of an evaluation, and goes to it.
(function () {
  const form = document.getElementById("label-new");
  if (!form) return;
  const told = document.getElementById("new-error");
  const button = form.querySelector("button");

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const asked = new FormData(form);
    const body = { name: asked.get("name") };
    for (const name of ["report_id", "depth", "seed"]) body[name] = Number(asked.get(name));
    told.hidden = true;
    button.disabled = true;
    try {
      const made = await window.karat.api.post("/api/label-sets", body);
      window.location.assign(`/label/${made.id}`);
    } catch (error) {
      told.textContent = error.message;
      told.hidden = false;
      button.disabled = false;
    }
  });
})();
