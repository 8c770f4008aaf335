// Words of queries and texts: folded for searching, and marked where a text has them.
(() => {
  "use strict";
  const karat = (window.karat = window.karat || {});
  // Accents of Latin, Greek and Cyrillic, points of Hebrew, vowels of Arabic; not vowel signs of Indic scripts.
  const ACCENTS = /[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]/g;
  const WORD = /[\p{L}\p{M}\p{N}_]+/gu;
  const UNSPACED = /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]/u;
  const ASCII = /^[\x00-\x7f]*$/;
  // Words that a text has whatever it is about; the longer ones of the languages that are met most.
  const EMPTY = new Set((
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
  // Other languages have such words too: short ones that are in so large a share of the texts.
  const [SHORT, OFTEN] = [3, 0.5];
  // Of fewer texts than this no share is worth anything.
  const FEW = 4;
  // More marks than this in a text point at nothing, and laying them out takes seconds.
  const MOST_MARKS = 500;

  // Upper, then lower case: ß and ss, ſ and s come out the same, which lower case alone misses.
  function fold(text) {
    if (ASCII.test(text)) return text.toLowerCase();
    const bare = text.normalize("NFKD").replace(ACCENTS, "");
    return bare.toUpperCase().toLowerCase().replaceAll("ς", "σ");
  }

  // Where words stand: [start, end] pairs; a dictionary parts those of scripts without spaces.
  function* wordsIn(text) {
    if (UNSPACED.test(text) && Intl.Segmenter) {
      const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });
      for (const part of segmenter.segment(text)) {
        if (part.isWordLike) yield [part.index, part.index + part.segment.length];
      }
      return;
    }
    for (const found of text.matchAll(WORD)) yield [found.index, found.index + found[0].length];
  }

  // Words of one or two letters are mostly articles; numbers, capitals and other scripts say more.
  function telling(word) {
    return ([...word].length > 2 && !EMPTY.has(fold(word))) || /\p{N}/u.test(word)
      || !/[\p{sc=Latn}\p{sc=Cyrl}\p{sc=Grek}]/u.test(word) || (word.length > 1 && word === word.toUpperCase());
  }

  // The words of a query that are worth finding in these texts; all of them where none is.
  function terms(query, texts = []) {
    const words = [...wordsIn(query || "")].map(([start, end]) => query.slice(start, end));
    const some = words.filter(telling);
    const folded = new Set((some.length ? some : words).map(fold));
    const rare = [...folded].filter((word) => [...word].length > SHORT || !common(word, texts));
    return rare.length ? new Set(rare) : folded;
  }

  function common(word, texts) {
    if (texts.length < FEW || UNSPACED.test(word) || /\p{N}/u.test(word)) return false;
    const having = texts.filter((text) => has(text, word)).length;
    return having >= texts.length * OFTEN;
  }

  function has(text, word) {
    for (const [start, end] of wordsIn(text)) if (fold(text.slice(start, end)) === word) return true;
    return false;
  }

  // A text as nodes, its words that are among the terms inside <mark>.
  function marked(text, wanted) {
    const nodes = document.createDocumentFragment();
    let [done, marks] = [0, 0];
    for (const [start, end] of wanted.size ? wordsIn(text) : []) {
      if (!wanted.has(fold(text.slice(start, end)))) continue;
      if (++marks > MOST_MARKS) break;
      const mark = document.createElement("mark");
      mark.textContent = text.slice(start, end);
      nodes.append(text.slice(done, start), mark);
      done = end;
    }
    nodes.append(text.slice(done));
    return nodes;
  }

  karat.words = { fold, terms, marked };
})();
