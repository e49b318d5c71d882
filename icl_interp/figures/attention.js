// Draws the attention patterns of `data` into the element before this script: see attention.py.
const place = document.currentScript.previousElementSibling;
const tokens = data.tokens.length;
const chosen = {prompt: 0, layer: 0, head: 0, query: tokens - 1};
const LEAST = 0.03;  // of a uniform weight: where colours begin

function make(tag, parent, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (parent) parent.appendChild(made);
  return made;
}

// A weight of the chosen prompt; integers are shares of the largest one.
function weight(layer, head, query, key) {
  const each = data.weights[chosen.prompt][layer][head];
  return each[query * tokens + key] * data.unit;
}

function visible(query, key) { return data.visible[query][key] === "1"; }

function count(query) { return data.visible[query].replaceAll("0", "").length; }

// Colours follow the logarithm of weight times visible tokens, so that a uniform row is seen.
function colour(value, n) {
  const most = Math.max(n, 2);
  const share = Math.log(Math.abs(value) * n / LEAST) / Math.log(most / LEAST);
  const depth = Math.min(Math.max(share, 0), 1);
  const end = value < 0 ? [213, 94, 0] : [0, 80, 140];
  return end.map(part => Math.round(255 + depth * (part - 255)));
}

function paint(canvas, layer, head) {
  canvas.width = canvas.height = tokens;
  const context = canvas.getContext("2d");
  const image = context.createImageData(tokens, tokens);
  for (let query = 0; query < tokens; query++) {
    const n = count(query);
    for (let key = 0; key < tokens; key++) {
      const seen = visible(query, key);
      const rgb = seen ? colour(weight(layer, head, query, key), n) : [238, 238, 238];
      image.data.set([...rgb, 255], 4 * (query * tokens + key));
    }
  }
  context.putImageData(image, 0, 0);
}

function choice(parent, words, key, names) {
  const label = make("label", parent);
  label.append(words + " ");
  const select = make("select", label, key);
  names.forEach((name, i) => select.add(new Option(name, i)));
  select.addEventListener("change", () => { chosen[key] = Number(select.value); draw(); });
  return select;
}

const view = make("div", place, "attention");
const controls = make("div", view, "controls");
const numbers = n => [...Array(n).keys()].map(String);
const selects = {
  prompt: choice(controls, "Prompt", "prompt", data.prompts),
  layer: choice(controls, "Layer", "layer", numbers(data.layers)),
  head: choice(controls, "Head", "head", numbers(data.heads)),
  query: choice(controls, "Query token", "query", data.tokens),
};
const both = make("div", view, "both");

// One small map for each head: a click chooses it.
const heads = make("div", both, "heads");
heads.style.gridTemplateColumns = `repeat(${Math.min(data.heads, 4)}, 62px)`;
const small = [];
for (let layer = 0; layer < data.layers; layer++) {
  for (let head = 0; head < data.heads; head++) {
    const button = make("button", heads);
    const canvas = make("canvas", button);
    canvas.style.width = canvas.style.height = "56px";
    button.append(`${layer}.${head}`);
    button.setAttribute("aria-label", `layer ${layer}, head ${head}`);
    button.addEventListener("click", () => { Object.assign(chosen, {layer, head}); draw(); });
    small.push({button, canvas, layer, head});
  }
}

// The chosen head: a click on a row chooses its query token.
const map = make("canvas", both, "map");
map.setAttribute("role", "img");
const place_of = event => {
  const box = map.getBoundingClientRect();
  const at = (value, size) => Math.min(Math.max(Math.floor(value / size * tokens), 0), tokens - 1);
  return [at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width)];
};
map.addEventListener("click", event => { chosen.query = place_of(event)[0]; draw(); });
map.addEventListener("mousemove", event => {
  const [query, key] = place_of(event);
  const value = visible(query, key) ? weight(chosen.layer, chosen.head, query, key).toFixed(4) : "hidden";
  map.title = `${data.tokens[query]} looks at ${data.tokens[key]}: ${value}`;
});

// The row of the chosen query token.
const row = make("div", both, "row");
const said = make("div", row, "said");
said.setAttribute("aria-live", "polite");
const bars = make("div", row, "bars");
const names = make("div", row, "names");
data.tokens.forEach(name => { make("span", names).textContent = name; });
make("p", view, "note").textContent = data.note;

function draw() {
  Object.keys(selects).forEach(key => { selects[key].value = chosen[key]; });
  for (const one of small) {
    paint(one.canvas, one.layer, one.head);
    const pressed = one.layer === chosen.layer && one.head === chosen.head;
    one.button.setAttribute("aria-pressed", pressed);
  }
  paint(map, chosen.layer, chosen.head);
  const n = count(chosen.query);
  const line = [...Array(tokens).keys()].map(
    key => visible(chosen.query, key) ? weight(chosen.layer, chosen.head, chosen.query, key) : 0);
  const sizes = line.map(Math.abs);
  const high = Math.max(...sizes, 1.25 / n);
  bars.replaceChildren();
  line.forEach((value, key) => {
    const bar = make("i", bars, value < 0 ? "below" : "");
    bar.style.height = `${100 * sizes[key] / high}%`;
    const shown = data.values[chosen.prompt];
    bar.title = `${data.tokens[key]}${shown ? ` (${shown[key]})` : ""}: ${value.toFixed(4)}`;
  });
  const even = make("hr", bars);
  even.style.bottom = `${100 / n / high}%`;
  const most = sizes.indexOf(Math.max(...sizes));
  const name = `Layer ${chosen.layer}, head ${chosen.head}`;
  said.textContent = `${name}: ${data.tokens[chosen.query]} looks most at ${data.tokens[most]}, `
    + `weight ${line[most].toFixed(3)} (dashed: 1/${n}, all alike)`;
  map.setAttribute("aria-label", said.textContent);
}
draw();
