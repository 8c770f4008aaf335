"use strict";

// The server never sees the part after #, so the form's address carries it to the requested page.
(function () {
  const form = document.querySelector("form.login");
  form.action = form.getAttribute("action") + location.hash;
})();
