"use strict";

// Asks the workbench's API: karat.api.get(url), karat.api.post(url, body). What it refuses is
// thrown as an Error whose message is the sentence to show.
(function () {
  const karat = (window.karat = window.karat || {});
  const csrf = document.currentScript.dataset.csrf;

  async function ask(url, options) {
    let response;
    try {
      response = await fetch(url, { credentials: "same-origin", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("the workbench does not answer; is karat serve still running?");
    }
    const json = (response.headers.get("content-type") || "").startsWith("application/json");
    const answer = json ? await response.json() : null;
    if (!response.ok) {
      const ended = response.status === 401 && "your session has ended; load the page again and enter the token";
      const error = new Error(ended || (answer && answer.error) || `the answer was ${response.status}`);
      error.status = response.status;
      throw error;
    }
    return answer;
  }

  function get(url, options = {}) {
    return ask(url, options);
  }

  function post(url, body, options = {}) {
    return ask(url, {
      ...options,
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Karat-CSRF": csrf },
      body: JSON.stringify(body === undefined ? {} : body),
    });
  }

  // Says something at the top of the page, where screen readers hear it.
  function notice(text, kind = "") {
    const place = document.getElementById("notice");
    place.textContent = text;
    place.className = `notice ${kind}`.trim();
    place.hidden = !text;
  }

  karat.api = { get, post, notice };
})();
