// A button on every block of code that copies it, without the prompts and outputs of a session.
function copied(block) {
  const lines = block.innerText.replace(/\n$/, "").split("\n");
  const session = lines.some((line) => line.startsWith(">>> "));
  const kept = session ? lines.filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)) : lines;
  return kept.map((line) => (session ? line.slice(4) : line)).join("\n");
}
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight pre")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(copied(block));
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed here";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.parentElement.append(button);
  }
});
