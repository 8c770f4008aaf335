"use strict";

// Starts an evaluation, and shows one under way as the server tells of it.
(function () {
  const ENDED = ["done", "failed", "stopped"];
  const POLL_MILLISECONDS = 500;

  function begin(form) {
    const refused = document.getElementById("refused");
    const button = form.querySelector("button[type=submit]");
    const boxes = [...form.querySelectorAll("input[name=system]")];
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      refused.hidden = true;
      const systems = boxes.filter((box) => box.checked).map((box) => box.value);
      if (!systems.length) {
        refuse("Choose at least one system.");
        return;
      }
      button.disabled = true;
      const tags = document.getElementById("tags").value.split(/[\s,]+/).filter(Boolean);
      const fresh = document.getElementById("fresh").checked;
      try {
        const run = await karat.api.post("/api/runs", { systems, tags, fresh });
        location.assign(run.url);
      } catch (problem) {
        refuse(problem.message);
        button.disabled = false;
      }
    });

    function refuse(sentence) {
      refused.textContent = sentence;
      refused.hidden = false;
    }
  }

  function watch(page) {
    const id = page.dataset.run;
    const api = `/api/runs/${id}`;
    const outcome = document.getElementById("outcome");
    const state = document.getElementById("state");
    const log = document.getElementById("log");
    const stop = document.getElementById("stop");
    const lost = document.getElementById("lost");
    const bars = [...page.querySelectorAll("li.progress")];

    function show(run) {
      page.dataset.state = run.state;
      document.title = `${run.state}: evaluation run ${id} · karat`;
      outcome.className = `notice ${mood(run)}`.trim();
      set(state, run.state);
      state.className = `badge ${mood(run)}`.trim();
      set(outcome.querySelector(".meaning"), run.meaning);
      const why = outcome.querySelector(".why");
      why.hidden = !run.why;
      set(why, run.why || "");
      stop.hidden = run.state !== "running";
      if (ENDED.includes(run.state)) saved(run.evaluations || [], run);
    }

    function mood(run) {
      if (run.state === "failed") return "bad";
      if (run.state === "stopped") return "unsure";
      if (run.state !== "done") return "";
      // A gate that fails is a finding; the verdict says so, and the run itself went well.
      return { 0: "good", 1: "" }[run.exit_code] ?? "unsure";
    }

    // Only what differs is set, so that a screen reader hears it once.
    function set(place, text) {
      if (place.textContent !== text) place.textContent = text;
    }

    function saved(evaluations, run) {
      const place = outcome.querySelector(".saved");
      const links = evaluations.map((one) => {
        const link = document.createElement("a");
        link.href = `/evaluations/${one.id}`;
        link.textContent = one.system === null ? `Evaluation ${one.id}` : `${one.id} ${one.system}`;
        return link;
      });
      const verdict = evaluations.map((one) => one.verdict).find(Boolean);
      place.hidden = run.state !== "done";
      place.replaceChildren(links.length ? "Saved as " : "Nothing was saved.");
      links.forEach((link, at) => place.append(at ? ", " : "", link));
      if (verdict) place.append(". Verdict: ", badge(verdict));
    }

    function badge(verdict) {
      const made = document.createElement("span");
      const kind = { pass: "good", fail: "bad" }[verdict] || "unsure";
      made.className = `badge ${kind}`;
      made.textContent = verdict;
      return made;
    }

    function step(progress) {
      const bar = bars.find((one) => one.dataset.system === (progress.system || ""));
      if (!bar) return;
      const told = bar.querySelector(".told");
      Object.assign(told.dataset, progress);
      const shown = bar.querySelector("progress");
      shown.max = Math.max(progress.total, 1);
      shown.value = progress.done;
      tell(told);
    }

    function tell(told) {
      const { what, done, total } = told.dataset;
      const of = `${number(done)} of ${number(total)}`;
      if (!what) told.textContent = "waiting";
      else if (what === "reused") told.textContent = `log of ${number(total)} calls used again`;
      else told.textContent = `${of} ${what}`;
    }

    function number(text) {
      return Number(text).toLocaleString("en");
    }

    // Files are told of as their turn comes; with the end of the run the last is done, too.
    function complete(run) {
      for (const bar of bars) {
        const told = bar.querySelector(".told");
        const shown = bar.querySelector("progress");
        if (run.state === "done" && bar.dataset.system === "") {
          shown.max = 1;
          shown.value = 1;
          told.textContent = "done";
        } else if (run.state === "done" && told.dataset.what) {
          shown.value = shown.max;
        } else if (!told.dataset.what) {
          told.textContent = ENDED.includes(run.state) ? "not begun" : "waiting";
        }
      }
    }

    function line(text) {
      const below = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      log.append(`${text}\n`);
      if (below) log.scrollTop = log.scrollHeight;
    }

    // Asks for what happened since, until the run has ended.
    async function poll(after) {
      let last = after;
      try {
        const run = await karat.api.get(`${api}?after=${after}`);
        lost.hidden = true;
        run.log.forEach(line);
        run.progress.forEach(step);
        show(run);
        complete(run);
        if (ENDED.includes(run.state)) return;
        last = run.last;
      } catch (problem) {
        lost.hidden = false;
        set(lost, problem.message);
        // A server that was started anew does not know the run.
        if (problem.status === 404) return;
      }
      setTimeout(poll, POLL_MILLISECONDS, last);
    }

    stop.addEventListener("click", async () => {
      stop.disabled = true;
      try {
        show(await karat.api.post(`${api}/stop`));
      } catch (problem) {
        karat.api.notice(problem.message, "bad");
      }
      stop.disabled = false;
    });

    for (const bar of bars) tell(bar.querySelector(".told"));
    log.scrollTop = log.scrollHeight;
    stop.hidden = page.dataset.state !== "running";
    poll(Number(page.dataset.last));
  }

  const form = document.getElementById("new");
  if (form) begin(form);
  const page = document.getElementById("run");
  if (page) watch(page);
})();
