// Draws the attention patterns of `data` into the element `place`: see attention.py.
const tokens = data.tokens.length;
// Of the head the place in data.heads, whose names are "layer.head".
const chosen = {prompt: 0, head: 0, query: tokens - 1};
const part = (i, which) => data.heads[i].split(".")[which];
const layer_of = i => part(i, 0);
const head_of = i => part(i, 1);
const LEAST = 0.03;  // of a uniform weight: where colours begin

function make(tag, parent, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (parent) parent.appendChild(made);
  return made;
}

// A weight of the chosen prompt; integers are shares of the largest one.
function weight(head, query, key) {
  return data.weights[chosen.prompt][head][query * tokens + key] * data.unit;
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

function paint(canvas, head) {
  canvas.width = canvas.height = tokens;
  const context = canvas.getContext("2d");
  const image = context.createImageData(tokens, tokens);
  for (let query = 0; query < tokens; query++) {
    const n = count(query);
    for (let key = 0; key < tokens; key++) {
      const seen = visible(query, key);
      const rgb = seen ? colour(weight(head, query, key), n) : [238, 238, 238];
      image.data.set([...rgb, 255], 4 * (query * tokens + key));
    }
  }
  context.putImageData(image, 0, 0);
}

function fill(select, names, values) {
  select.replaceChildren();
  names.forEach((name, i) => select.add(new Option(name, values ? values[i] : i)));
}

function choice(parent, words, key, change) {
  const label = make("label", parent);
  label.append(words + " ");
  const select = make("select", label, key);
  select.addEventListener("change", () => { change(select.value); draw(); });
  return select;
}

const view = make("div", place, "attention");
view.setAttribute("role", "group");
view.setAttribute("aria-label", "Attention weights to look through");
const controls = make("div", view, "controls");
const every = [...data.heads.keys()];
const selects = {
  prompt: choice(controls, "Prompt", "prompt", value => { chosen.prompt = Number(value); }),
  layer: choice(controls, "Layer", "layer", value => {
    chosen.head = every.find(i => layer_of(i) === value);
  }),
  head: choice(controls, "Head", "head", value => { chosen.head = Number(value); }),
  query: choice(controls, "Query token", "query", value => { chosen.query = Number(value); }),
};
fill(selects.prompt, data.prompts);
const layers = [...new Set(every.map(layer_of))];
fill(selects.layer, layers, layers);
fill(selects.query, data.tokens);

// One small map for each head: a click chooses it.
const both = make("div", view, "both");
const heads = make("div", both, "maps");
const widest = Math.max(...layers.map(layer => every.filter(i => layer_of(i) === layer).length));
heads.style.gridTemplateColumns = `repeat(${Math.min(widest, 4)}, 62px)`;
const small = every.map(head => {
  const button = make("button", heads);
  const canvas = make("canvas", button);
  canvas.style.width = canvas.style.height = "56px";
  const mark = data.marks[data.heads[head]];
  make("b", button).textContent = data.heads[head];
  if (mark) button.append(" " + mark);
  const name = `layer ${layer_of(head)}, head ${head_of(head)}`;
  button.setAttribute("aria-label", mark ? `${name}, ablation ${mark}` : name);
  button.addEventListener("click", () => { chosen.head = head; draw(); });
  return {button, canvas, head};
});

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
  const value = visible(query, key) ? weight(chosen.head, query, key).toFixed(4) : "hidden";
  map.title = `${data.tokens[query]} looks at ${data.tokens[key]}: ${value}`;
});

// The row of the chosen query token.
const row = make("div", both, "row");
const said = make("div", row, "said");
said.setAttribute("aria-live", "polite");
const does = make("div", row, "does");
const bars = make("div", row, "bars");
const names = make("div", row, "names");
data.tokens.forEach(name => { make("span", names).textContent = name; });
make("p", view, "note").textContent = data.note;

function draw() {
  const layer = layer_of(chosen.head);
  const beside = every.filter(i => layer_of(i) === layer);
  fill(selects.head, beside.map(head_of), beside);
  Object.keys(chosen).forEach(key => { selects[key].value = chosen[key]; });
  selects.layer.value = layer;
  for (const one of small) {
    paint(one.canvas, one.head);
    one.button.setAttribute("aria-pressed", one.head === chosen.head);
  }
  paint(map, chosen.head);
  const n = count(chosen.query);
  const line = [...Array(tokens).keys()].map(
    key => visible(chosen.query, key) ? weight(chosen.head, chosen.query, key) : 0);
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
  const of = data.prompts[chosen.prompt];
  const name = `Layer ${layer}, head ${head_of(chosen.head)}, ${of}`;
  does.textContent = data.effects[data.heads[chosen.head]] || "";
  const sum = line.reduce((all, value) => all + value, 0);
  const adds = Math.abs(sum - 1) > 0.01 ? `; the row adds up to ${sum.toFixed(2)}` : "";
  said.textContent = `${name}: ${data.tokens[chosen.query]} looks most at ${data.tokens[most]}, `
    + `weight ${line[most].toFixed(3)} (dashed: 1/${n}, all alike${adds})`;
  map.setAttribute("aria-label", `Attention weights. ${said.textContent}`);
}
draw();

// A figure of the page asks for a head: files.py sends it.
document.addEventListener("head", event => {
  const asked = data.heads.indexOf(event.detail);
  if (asked < 0) return;
  chosen.head = asked;
  draw();
  view.scrollIntoView({block: "nearest"});
});
