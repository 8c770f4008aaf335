"use strict";

// Gives an evaluation a tag where it stands: a plus opens a field, Enter saves, Escape closes.
(function () {
  const karat = window.karat;

  function open(place, button) {
    const field = document.createElement("input");
    field.type = "text";
    field.className = "tag-field";
    field.maxLength = 100;
    field.setAttribute("aria-label", `New tag of evaluation ${place.dataset.evaluation}`);
    button.hidden = true;
    place.append(field);
    field.focus();

    let done = false;
    function close() {
      if (done) return;
      done = true;
      field.remove();
      button.hidden = false;
    }

    async function save() {
      const tag = field.value.trim();
      if (!tag) {
        close();
        button.focus();
        return;
      }
      try {
        field.disabled = true;
        const address = `/api/evaluations/${place.dataset.evaluation}/tags`;
        const evaluation = await karat.api.post(address, { tags: [tag] });
        show(place, button, evaluation.tags);
        karat.api.notice(`Evaluation ${evaluation.id} has the tag ${tag}.`, "good");
        close();
        button.focus();
      } catch (error) {
        field.disabled = false;
        karat.api.notice(error.message, "bad");
        field.focus();
      }
    }

    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        // The list is a form of its own, which Enter must not send.
        event.preventDefault();
        save();
      } else if (event.key === "Escape") {
        close();
        button.focus();
      }
    });
    field.addEventListener("blur", () => {
      if (!field.value.trim()) close();
    });
  }

  function show(place, button, tags) {
    for (const chip of place.querySelectorAll("a.chip")) chip.remove();
    for (const tag of tags) {
      const chip = document.createElement("a");
      chip.className = "chip";
      chip.href = `/?tag=${encodeURIComponent(tag)}`;
      const name = document.createElement("bdi");
      name.textContent = tag;
      chip.append(name);
      place.insertBefore(chip, button);
    }
  }

  for (const button of document.querySelectorAll(".add-tag")) {
    button.hidden = false;
    button.addEventListener("click", () => open(button.closest(".tags"), button));
  }
})();
