"use strict";

// The form that creates a label set from an evaluation and opens it.
(function () {
  const form = document.getElementById("label-new");
  if (!form) return;
  const status = document.getElementById("new-error");
  const button = form.querySelector("button");

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const fields = new FormData(form);
    const body = { name: fields.get("name") };
    for (const name of ["report_id", "depth", "seed"]) body[name] = Number(fields.get(name));
    status.hidden = true;
    button.disabled = true;
    try {
      const labelSet = await window.karat.api.post("/api/label-sets", body);
      window.location.assign(`/label/${labelSet.id}`);
    } catch (error) {
      status.textContent = error.message;
      status.hidden = false;
      button.disabled = false;
    }
  });
})();
