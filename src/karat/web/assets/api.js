"use strict";

// Calls the workbench's API: karat.api.get(url), karat.api.post(url, body). A refused request
// throws an Error whose message can be shown as it is.
(function () {
  const karat = (window.karat = window.karat || {});
  const csrf = document.currentScript.dataset.csrf;

  async function request(url, options) {
    let response;
    try {
      response = await fetch(url, { credentials: "same-origin", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("the workbench does not respond; is karat serve still running?");
    }
    const json = (response.headers.get("content-type") || "").startsWith("application/json");
    const body = json ? await response.json() : null;
    if (!response.ok) {
      const message = response.status === 401 && "your session has ended; load the page again and enter the token";
      const error = new Error(message || (body && body.error) || `the server returned status ${response.status}`);
      error.status = response.status;
      throw error;
    }
    return body;
  }

  function get(url, options = {}) {
    return request(url, options);
  }

  function post(url, body, options = {}) {
    return request(url, {
      ...options,
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Karat-CSRF": csrf },
      body: JSON.stringify(body === undefined ? {} : body),
    });
  }

  // Shows a message at the top of the page and announces it to screen readers.
  function notice(text, kind = "") {
    const element = document.getElementById("notice");
    element.textContent = text;
    element.className = `notice ${kind}`.trim();
    element.hidden = !text;
  }

  karat.api = { get, post, notice };
})();
