"use strict";

// Starts an evaluation and shows the progress of a running one.
(function () {
  const ENDED = ["done", "failed", "stopped"];
  const POLL_MILLISECONDS = 500;

  function setUpForm(form) {
    const refused = document.getElementById("refused");
    const button = form.querySelector("button[type=submit]");
    const boxes = [...form.querySelectorAll("input[name=system]")];
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      refused.hidden = true;
      const systems = boxes.filter((box) => box.checked).map((box) => box.value);
      if (!systems.length) {
        showError("Choose at least one system.");
        return;
      }
      button.disabled = true;
      const tags = document.getElementById("tags").value.split(/[\s,]+/).filter(Boolean);
      const fresh = document.getElementById("fresh").checked;
      try {
        const run = await karat.api.post("/api/runs", { systems, tags, fresh });
        location.assign(run.url);
      } catch (problem) {
        showError(problem.message);
        button.disabled = false;
      }
    });

    function showError(message) {
      refused.textContent = message;
      refused.hidden = false;
    }
  }

  function watchRun(page) {
    const id = page.dataset.run;
    const api = `/api/runs/${id}`;
    const outcome = document.getElementById("outcome");
    const state = document.getElementById("state");
    const log = document.getElementById("log");
    const stop = document.getElementById("stop");
    const connectionNotice = document.getElementById("lost");
    const bars = [...page.querySelectorAll("li.progress")];

    function show(run) {
      page.dataset.state = run.state;
      document.title = `${run.state}: evaluation run ${id} · karat`;
      outcome.className = `notice ${tone(run)}`.trim();
      setText(state, run.state);
      state.className = `badge ${tone(run)}`.trim();
      setText(outcome.querySelector(".meaning"), run.meaning);
      const reason = outcome.querySelector(".why");
      reason.hidden = !run.why;
      setText(reason, run.why || "");
      stop.hidden = run.state !== "running";
      if (ENDED.includes(run.state)) showSaved(run.evaluations || [], run);
    }

    function tone(run) {
      if (run.state === "failed") return "bad";
      if (run.state === "stopped") return "unsure";
      if (run.state !== "done") return "";
      // A failed gate is a result, not an error of the run; the verdict reports it.
      return { 0: "good", 1: "" }[run.exit_code] ?? "unsure";
    }

    // Sets only changed text, so that screen readers announce it once.
    function setText(element, text) {
      if (element.textContent !== text) element.textContent = text;
    }

    function showSaved(evaluations, run) {
      const element = outcome.querySelector(".saved");
      const links = evaluations.map(({ id, system }) => {
        const link = document.createElement("a");
        link.href = `/evaluations/${id}`;
        link.textContent = system === null ? `Evaluation ${id}` : `${id} ${system}`;
        return link;
      });
      const verdict = evaluations.map((evaluation) => evaluation.verdict).find(Boolean);
      element.hidden = run.state !== "done";
      element.replaceChildren(links.length ? "Saved as " : "Nothing was saved.");
      links.forEach((link, index) => element.append(index ? ", " : "", link));
      if (verdict) element.append(". Verdict: ", verdictBadge(verdict));
    }

    function verdictBadge(verdict) {
      const element = document.createElement("span");
      const kind = { pass: "good", fail: "bad" }[verdict] || "unsure";
      element.className = `badge ${kind}`;
      element.textContent = verdict;
      return element;
    }

    function updateProgress(progress) {
      const item = bars.find((item) => item.dataset.system === (progress.system || ""));
      if (!item) return;
      const label = item.querySelector(".progress-text");
      Object.assign(label.dataset, progress);
      const progressBar = item.querySelector("progress");
      progressBar.max = Math.max(progress.total, 1);
      progressBar.value = progress.done;
      describeProgress(label);
    }

    function describeProgress(label) {
      const { what: unit, done, total } = label.dataset;
      const counts = `${formatCount(done)} of ${formatCount(total)}`;
      if (!unit) label.textContent = "waiting";
      else if (unit === "reused") label.textContent = `log of ${formatCount(total)} calls reused`;
      else label.textContent = `${counts} ${unit}`;
    }

    function formatCount(text) {
      return Number(text).toLocaleString("en");
    }

    // The report step has no final progress message: it is done when the run is.
    function finishBars(run) {
      for (const item of bars) {
        const label = item.querySelector(".progress-text");
        const progressBar = item.querySelector("progress");
        if (run.state === "done" && item.dataset.system === "") {
          progressBar.max = 1;
          progressBar.value = 1;
          label.textContent = "done";
        } else if (run.state === "done" && label.dataset.what) {
          progressBar.value = progressBar.max;
        } else if (!label.dataset.what) {
          label.textContent = ENDED.includes(run.state) ? "not started" : "waiting";
        }
      }
    }

    function appendLine(text) {
      const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      log.append(`${text}\n`);
      if (atEnd) log.scrollTop = log.scrollHeight;
    }

    // Polls for new progress and log lines until the run has ended.
    async function poll(after) {
      let cursor = after;
      try {
        const run = await karat.api.get(`${api}?after=${after}`);
        connectionNotice.hidden = true;
        run.log.forEach(appendLine);
        run.progress.forEach(updateProgress);
        show(run);
        finishBars(run);
        if (ENDED.includes(run.state)) return;
        cursor = run.last;
      } catch (problem) {
        connectionNotice.hidden = false;
        setText(connectionNotice, problem.message);
        // A restarted server does not know the run.
        if (problem.status === 404) return;
      }
      setTimeout(poll, POLL_MILLISECONDS, cursor);
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

    for (const bar of bars) describeProgress(bar.querySelector(".progress-text"));
    log.scrollTop = log.scrollHeight;
    stop.hidden = page.dataset.state !== "running";
    poll(Number(page.dataset.last));
  }

  const form = document.getElementById("new");
  if (form) setUpForm(form);
  const page = document.getElementById("run");
  if (page) watchRun(page);
})();
