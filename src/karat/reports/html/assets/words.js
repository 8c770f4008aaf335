// Words of queries and texts: folding for search, and highlighting of query words in texts.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowels; not the vowel signs of Indic scripts.
  const ACCENTS = /[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]/g;
  const WORD = /[\p{L}\p{M}\p{N}_]+/gu;
  const UNSPACED = /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]/u;
  const ASCII = /^[\x00-\x7f]*$/;
  // Stop words of more than two letters, for the most frequent languages.
  const STOP_WORDS = new Set((
    "about after all and any are because been before being between but can could did does doing done for from had has"
    + " have how into its just may might more most must not off only other our out over same shall should some such"
    + " than that the their them then there these they this those through too under until very was were what when"
    + " where which while who whom whose why will with would you your"
    + " como con cual cuando del desde donde ella ellos entre esta este esto hay las los mas muy para pero por porque"
    + " que quien ser sobre sus también tiene una uno unos"
    + " aos até com das ela ele eles essa esse está isso mais mas mesmo meu minha muito não nas nos onde pela pelo"
    + " quais qual quando quem sem seu sua tem uma"
    + " aux avec ces cette comment dans des elle est les leur leurs mais mon nous ont par pas pourquoi"
    + " quand quel quelle qui quoi sans ses sont très une vos votre vous"
    + " aber als auch auf aus bei das dass dem den der des die doch durch ein eine einem einen einer eines für"
    + " ich ihr ihre ist kann kein keine mein meine mich mir mit nach nicht noch nur oder sein sich sie sind über"
    + " und uns unter vom von vor wann warum was weil wenn wer werden wie wird wir wurde zum zur"
  ).split(" ").map(fold));
  // In any language, words this short that occur in this share of the texts are stop words too.
  const [SHORT_WORD, COMMON_SHARE] = [3, 0.5];
  // With fewer texts than this, that share means nothing.
  const FEWEST_TEXTS = 4;
  // More highlights than this do not help, and take seconds to lay out.
  const MOST_MARKS = 500;

  // Upper, then lower case: this folds ß to ss and ſ to s, which lower case alone does not.
  function fold(text) {
    if (ASCII.test(text)) return text.toLowerCase();
    const bare = text.normalize("NFKD").replace(ACCENTS, "");
    return bare.toUpperCase().toLowerCase().replaceAll("ς", "σ");
  }

  // Yields the [start, end] of each word; scripts without spaces need a dictionary.
  function* wordsIn(text) {
    if (UNSPACED.test(text) && Intl.Segmenter) {
      const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });
      for (const part of segmenter.segment(text)) {
        if (part.isWordLike) yield [part.index, part.index + part.segment.length];
      }
      return;
    }
    for (const match of text.matchAll(WORD)) yield [match.index, match.index + match[0].length];
  }

  // Words of one or two letters are mostly articles, unless they are numbers, capitals or in other scripts.
  function isSignificant(word) {
    return ([...word].length > 2 && !STOP_WORDS.has(fold(word))) || /\p{N}/u.test(word)
      || !/[\p{sc=Latn}\p{sc=Cyrl}\p{sc=Grek}]/u.test(word) || (word.length > 1 && word === word.toUpperCase());
  }

  // Returns the significant words of a query for these texts; all its words if none is.
  function terms(query, texts = []) {
    const words = [...wordsIn(query || "")].map(([start, end]) => query.slice(start, end));
    const significant = words.filter(isSignificant);
    const folded = new Set((significant.length ? significant : words).map(fold));
    const rare = [...folded].filter((word) => [...word].length > SHORT_WORD || !isCommon(word, texts));
    return rare.length ? new Set(rare) : folded;
  }

  function isCommon(word, texts) {
    if (texts.length < FEWEST_TEXTS || UNSPACED.test(word) || /\p{N}/u.test(word)) return false;
    const count = texts.filter((text) => containsWord(text, word)).length;
    return count >= texts.length * COMMON_SHARE;
  }

  function containsWord(text, word) {
    for (const [start, end] of wordsIn(text)) if (fold(text.slice(start, end)) === word) return true;
    return false;
  }

  // Returns a text as nodes, with the words that are terms inside <mark>.
  function marked(text, termSet) {
    const nodes = document.createDocumentFragment();
    let [from, marks] = [0, 0];
    for (const [start, end] of termSet.size ? wordsIn(text) : []) {
      if (!termSet.has(fold(text.slice(start, end)))) continue;
      if (++marks > MOST_MARKS) break;
      const mark = document.createElement("mark");
      mark.textContent = text.slice(start, end);
      nodes.append(text.slice(from, start), mark);
      from = end;
    }
    nodes.append(text.slice(from));
    return nodes;
  }

  karat.words = { fold, terms, marked };
})();
