"use strict";

// Texts for raters: control characters made visible, words of the query marked.
(function () {
  const karat = (window.karat = window.karat || {});
  const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
  const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;
  const MOST_TERMS = 100;
  // More than anyone reads; beyond, a long text is plain, so that it shows at once.
  const MOST_MARKS = 1000;

  function plain(text) {
    return text.replace(/\r\n?/g, "\n").replace(CONTROL, "\ufffd");
  }

  // Words that tell something: not the short ones that stand in any text, such as "the" or "um",
  // unless they are names or numbers, or in a script that needs few letters.
  function telling(word) {
    const named = word.length > 1 && /\p{Lu}/u.test(word);
    return word.length > 3 || named || /[^\p{Script=Latin}\p{M}]/u.test(word);
  }

  function terms(query) {
    const [first = "", ...others] = query.match(WORD) || [];
    // A sentence begins with a capital, whatever the word.
    const words = [first.toLowerCase(), ...others].filter(telling);
    return [...new Set(words.map((word) => word.toLowerCase()))].slice(0, MOST_TERMS);
  }

  // The same word, or one that the other begins with: refund, refunds.
  function alike(word, known) {
    if (known.has(word)) return true;
    if (word.length < 4) return false;
    for (const term of known) {
      if (term.length >= 4 && (word.startsWith(term) || term.startsWith(word))) return true;
    }
    return false;
  }

  // Fills an element with a text in which the terms are marked; all of it are text nodes.
  function fill(element, text, query) {
    const known = new Set(terms(query));
    const seen = new Map();
    const shown = plain(text);
    const parts = document.createDocumentFragment();
    let from = 0;
    let marks = 0;
    for (const match of shown.matchAll(WORD)) {
      const word = match[0].toLowerCase();
      if (!seen.has(word)) seen.set(word, alike(word, known));
      if (!seen.get(word)) continue;
      if (marks === MOST_MARKS) break;
      marks += 1;
      parts.append(shown.slice(from, match.index));
      const mark = document.createElement("mark");
      mark.textContent = match[0];
      parts.append(mark);
      from = match.index + match[0].length;
    }
    parts.append(shown.slice(from));
    element.replaceChildren(parts);
  }

  karat.labelText = { plain, fill };
})();
