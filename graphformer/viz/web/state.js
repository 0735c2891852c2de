// What the page knows: the data beside it, what is chosen, the numbers and their colours.

const data = JSON.parse(document.getElementById("data").textContent);
const KINDS = {
  ee: { name: "encoder self-attention", keys: "src", queries: "src" },
  ed: { name: "decoder to encoder", keys: "src", queries: "tgt" },
  dd: { name: "decoder self-attention", keys: "tgt", queries: "tgt" },
};
const SIDES = {
  src: { steps: "enc", name: "source" },
  tgt: { steps: "dec", name: "target" },
};
// Dark to light, lightness rising evenly (matplotlib's "magma").
const RAMP = ("000004 0a0822 1d1147 36106b 51127c 6a1c81 832681 9c2e7f b73779 d0416f e75263 " +
  "f56b5c fc8961 fea772 fec488 fde2a3 fcfdbf").split(" ")
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const MEAN = "mean";
const SHOWN = 8; // rows of the table of strongest weights
const LABEL = 150; // pixels, the longest label of the heat map
const dark = matchMedia("(prefers-color-scheme: dark)");
const byId = (id) => document.getElementById(id);
const kinds = Object.keys(KINDS).filter((kind) => kind in data.maps);
const state = {
  kind: kinds.includes("ed") ? "ed" : kinds[0],
  round: 0, head: "0", side: "queries", word: 0, kept: false, cell: null,
};

const rounds = () => data.maps[state.kind];
const wordsOf = (side) => data[KINDS[state.kind][side]];
const other = (side) => (side === "keys" ? "queries" : "keys");

function meanOf(heads) {
  return heads[0].map((row, q) =>
    row.map((_, k) => heads.reduce((sum, head) => sum + head[q][k], 0) / heads.length));
}

/** The map shown, by query and key. */
function current() {
  const heads = rounds()[state.round];
  return state.head === MEAN ? meanOf(heads) : heads[Number(state.head)];
}

/** Weights between the chosen word and each word of the other side. */
function weights() {
  const map = current();
  return state.side === "queries" ? map[state.word] : map.map((row) => row[state.word]);
}

/** The weight shown strongest: one scale for all heads of a layer, so that they compare. */
function top() {
  let most = 0;
  for (const head of rounds()[state.round]) {
    for (const row of head) for (const weight of row) most = Math.max(most, weight);
  }
  return most || 1;
}

function stepsOf(side) {
  return data.steps ? data.steps[SIDES[KINDS[state.kind][side]].steps] : undefined;
}

/** Colour of a share of the scale; the ground stands for 0 in either colour scheme. */
function rgb(share) {
  const at = (dark.matches ? 0.06 + 0.94 * share : 1 - share) * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[low].map((value, i) => Math.round(value + (at - low) * (RAMP[low + 1][i] - value)));
}
const css = (colour) => `rgb(${colour.join(",")})`;
function inkOn(colour) {
  const linear = colour.map((value) => (value / 255) ** 2.2);
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return light > 0.18 ? "#000000" : "#ffffff";
}

function make(tag, attributes = {}, text = undefined) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
function makeSvg(tag, attributes = {}, text = undefined) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
function number(weight, digits) {
  if (weight === 0) return "\u2013"; // no edge
  const least = 10 ** -digits;
  return weight < least / 2 ? `<${least}` : weight.toFixed(digits);
}
const roundLabel = (round) =>
  data.round === "step" ? `step ${round + 1}` : `layer ${round}`;
const headLabel = (head) => (head === MEAN ? "mean of heads" : `head ${head}`);

function radios(box, name, values, label, picture) {
  box.replaceChildren(...values.map((value) => {
    const choice = make("label");
    const input = make("input", { type: "radio", name, value });
    input.checked = value === state[name];
    input.addEventListener("change", () => choose({ [name]: value }));
    const face = make("span", { class: "face" });
    if (picture) face.append(make("canvas", { "data-head": value, "aria-hidden": "true" }));
    face.append(make("span", {}, label(value)));
    choice.append(input, face);
    return choice;
  }));
}
