"use strict";

// Texts for raters: control characters are made visible and query words highlighted.
(function () {
  const karat = (window.karat = window.karat || {});
  const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
  const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;
  const MOST_TERMS = 100;
  // Limits the highlights in a long text, so that it renders immediately.
  const MOST_MARKS = 1000;

  function visibleText(text) {
    return text.replace(/\r\n?/g, "\n").replace(CONTROL, "\ufffd");
  }

  // Skips short words that occur in any text, such as "the" or "um", but keeps names, numbers and
  // scripts that use few characters per word.
  function isSignificant(word) {
    const hasCapital = word.length > 1 && /\p{Lu}/u.test(word);
    return word.length > 3 || hasCapital || /[^\p{Script=Latin}\p{M}]/u.test(word);
  }

  function queryTerms(query) {
    const [first = "", ...others] = query.match(WORD) || [];
    // The first word of a sentence is capitalised even if it is not a name.
    const words = [first.toLowerCase(), ...others].filter(isSignificant);
    return [...new Set(words.map((word) => word.toLowerCase()))].slice(0, MOST_TERMS);
  }

  // Matches the same word, or a word that starts with the other: refund, refunds.
  function matchesTerm(word, termSet) {
    if (termSet.has(word)) return true;
    if (word.length < 4) return false;
    for (const term of termSet) {
      if (term.length >= 4 && (word.startsWith(term) || term.startsWith(word))) return true;
    }
    return false;
  }

  // Fills an element with a text and highlights the terms, using text nodes only.
  function fill(element, text, query) {
    const termSet = new Set(queryTerms(query));
    const matched = new Map();
    const visible = visibleText(text);
    const parts = document.createDocumentFragment();
    let end = 0;
    let marks = 0;
    for (const match of visible.matchAll(WORD)) {
      const word = match[0].toLowerCase();
      if (!matched.has(word)) matched.set(word, matchesTerm(word, termSet));
      if (!matched.get(word)) continue;
      if (marks === MOST_MARKS) break;
      marks += 1;
      parts.append(visible.slice(end, match.index));
      const mark = document.createElement("mark");
      mark.textContent = match[0];
      parts.append(mark);
      end = match.index + match[0].length;
    }
    parts.append(visible.slice(end));
    element.replaceChildren(parts);
  }

  karat.labelText = { plain: visibleText, fill };
})();
