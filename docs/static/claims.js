// Filters of the catalogue of claims: by words, by model, and by the verdict on that model.
document.addEventListener("DOMContentLoaded", () => {
  const tables = [...document.querySelectorAll(".claims-by-model table")];
  if (!tables.length) return;
  const FIRST = 3; // columns that describe a claim; those of models follow
  const names = (table) => [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const models = [...new Set(tables.flatMap((table) => names(table).slice(FIRST)))].sort();

  const bar = document.createElement("p");
  bar.className = "claims-filter";
  const chooser = (label, entries) => {
    const list = document.createElement("select");
    list.setAttribute("aria-label", label);
    for (const [value, text] of entries) list.add(new Option(text, value));
    return list;
  };
  const words = document.createElement("input");
  words.type = "search";
  words.placeholder = words.ariaLabel = "words in a claim";
  const model = chooser("model", [["", "all models"], ...models.map((name) => [name, name])]);
  const verdict = chooser("verdict", [
    ["", "any verdict"], ["✔", "✔ supported"], ["✘", "✘ contradicted"], ["?", "? inconclusive"],
  ]);
  bar.append(words, model, verdict);
  tables[0].closest("section").before(bar);

  function show() {
    for (const table of tables) {
      const columns = names(table);
      const seen = columns.map((name, i) => i < FIRST || !model.value || name === model.value);
      for (const row of table.rows) {
        [...row.cells].forEach((cell, i) => { cell.hidden = !seen[i]; });
      }
      for (const row of table.tBodies[0].rows) {
        const marks = [...row.cells].filter((cell, i) => i >= FIRST && seen[i]).map((cell) => cell.textContent.trim());
        const applies = !model.value || marks.some(Boolean);
        const right = !verdict.value || marks.includes(verdict.value);
        row.hidden = !(applies && right && row.textContent.toLowerCase().includes(words.value.toLowerCase()));
      }
    }
  }
  for (const one of [words, model, verdict]) one.addEventListener("input", show);
});
