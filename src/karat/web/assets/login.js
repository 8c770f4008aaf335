"use strict";

// What follows # never reaches the server: the form takes it along to the page that was asked for.
(function () {
  const form = document.querySelector("form.login");
  form.action = form.getAttribute("action") + location.hash;
})();
