"use strict";

// Adds tags to an evaluation in place: the + button opens a field, Enter saves, Escape cancels.
(function () {
  const karat = window.karat;

  function openField(container, button) {
    const field = document.createElement("input");
    field.type = "text";
    field.className = "tag-field";
    field.maxLength = 100;
    field.setAttribute("aria-label", `New tag of evaluation ${container.dataset.evaluation}`);
    button.hidden = true;
    container.append(field);
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
        const address = `/api/evaluations/${container.dataset.evaluation}/tags`;
        const evaluation = await karat.api.post(address, { tags: [tag] });
        showTags(container, button, evaluation.tags);
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
        // The field is inside the list's form, which Enter must not submit.
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

  function showTags(container, button, tags) {
    for (const chip of container.querySelectorAll("a.chip")) chip.remove();
    for (const tag of tags) {
      const chip = document.createElement("a");
      chip.className = "chip";
      chip.href = `/?tag=${encodeURIComponent(tag)}`;
      const name = document.createElement("bdi");
      name.textContent = tag;
      chip.append(name);
      container.insertBefore(chip, button);
    }
  }

  for (const button of document.querySelectorAll(".add-tag")) {
    button.hidden = false;
    button.addEventListener("click", () => openField(button.closest(".tags"), button));
  }
})();
