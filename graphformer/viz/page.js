"use strict";
// The page of attention maps. All it shows comes from the JSON beside it; it loads nothing.
(() => {
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

  // ---- the numbers ---------------------------------------------------------------------------

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

  // ---- colours -------------------------------------------------------------------------------

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

  // ---- small helpers -------------------------------------------------------------------------

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

  // ---- the rows of words ---------------------------------------------------------------------

  function wordButton(side, word, index) {
    const button = make("button", { type: "button", "data-index": index, tabindex: "-1" });
    button.append(make("span", { class: "text", dir: "auto" }, word));
    if (side === "queries" && KINDS[state.kind].queries === "tgt" && data.out) {
      button.append(make("span", { class: "out", dir: "auto" }, `\u2192 ${data.out[index]}`));
    }
    button.append(make("span", { class: "weight" }));
    const steps = stepsOf(side);
    if (steps) {
      const pile = make("span", { class: "steps" });
      for (let step = 0; step < steps[index]; step += 1) pile.append(make("i"));
      button.append(pile);
    }
    const look = () => { if (!state.kept) choose({ side, word: index, cell: null }); };
    button.addEventListener("mouseenter", look);
    button.addEventListener("focus", look);
    button.addEventListener("click", () => {
      const same = state.kept && state.side === side && state.word === index;
      choose({ side, word: index, kept: !same, cell: null });
    });
    const item = make("li");
    item.append(button);
    return item;
  }

  function buildWords() {
    for (const side of ["keys", "queries"]) {
      const list = byId(side);
      const words = wordsOf(side);
      list.className = `words ${SIDES[KINDS[state.kind][side]].steps}`;
      list.replaceChildren(...words.map((word, index) => wordButton(side, word, index)));
      const name = SIDES[KINDS[state.kind][side]].name;
      const what = side === "keys" ? "words looked at (keys)" : "words that look (queries)";
      byId(`${side}-name`).textContent = `${name} ${what}`;
      list.setAttribute("aria-labelledby", `${side}-name`);
    }
  }

  function paintWord(side, button, index, weight) {
    const chosen = side === state.side && index === state.word;
    const steps = stepsOf(side);
    const reached = state.round + 1;
    const coloured = side !== state.side && weight > 0;
    button.classList.toggle("chosen", chosen);
    button.classList.toggle("coloured", coloured);
    button.setAttribute("aria-pressed", String(chosen && state.kept));
    button.tabIndex = index === (side === state.side ? state.word : 0) ? 0 : -1;
    const colour = coloured ? rgb(Math.min(1, weight / top())) : null;
    button.style.background = colour ? css(colour) : "";
    button.style.color = colour ? inkOn(colour) : "";
    button.querySelector(".weight").textContent = side === state.side ? "" : number(weight, 3);
    if (!steps) return;
    const halted = steps[index] < reached;
    // A key that has halted is still looked at, in the state in which it stopped.
    button.classList.toggle("halted", halted && side === "queries");
    button.title = halted ? `stopped after step ${steps[index]}` : `takes ${steps[index]} steps`;
    button.querySelectorAll(".steps i").forEach((block, step) => {
      block.classList.toggle("done", step < reached);
    });
  }

  function paintWords() {
    const values = weights();
    for (const side of ["keys", "queries"]) {
      byId(side).querySelectorAll("button").forEach((button, index) => {
        paintWord(side, button, index, values[index]);
      });
    }
    const word = wordsOf(state.side)[state.word];
    const names = wordsOf(other(state.side));
    const verb = state.side === "queries" ? "looks at" : "is looked at by";
    byId("chosen").textContent = `\u201c${word}\u201d ${verb}`;
    const order = values.map((weight, index) => [weight, index])
      .filter(([weight]) => weight > 0).sort((a, b) => b[0] - a[0]).slice(0, SHOWN);
    byId("strongest").replaceChildren(...order.map(([weight, index]) => {
      const row = make("tr");
      const bar = make("i");
      bar.style.width = `${(100 * weight) / Math.max(1, order[0][0])}%`;
      const last = make("td", { "aria-hidden": "true" });
      last.append(bar);
      row.append(make("td", { dir: "auto" }, names[index]), make("td", {}, number(weight, 3)), last);
      return row;
    }));
    const steps = stepsOf(state.side);
    const stopped = state.side === "queries" && steps && steps[state.word] <= state.round;
    const nothing = stopped ? `nothing more: it stopped after step ${steps[state.word]}` : "nothing";
    const said = order.slice(0, 3).map(([weight, index]) => `${names[index]} ${number(weight, 2)}`);
    byId("spoken").textContent = `${word} ${verb} ${said.join(", ") || nothing}`;
    if (!order.length) byId("chosen").textContent += ` ${nothing}`;
  }

  /** Arrow keys, Home and End move along a row of words; Escape lets a kept word go. */
  function moveAlong(event) {
    const button = event.target.closest("button[data-index]");
    if (!button) return;
    const side = event.currentTarget.id;
    const buttons = [...event.currentTarget.querySelectorAll("button")];
    const at = buttons.indexOf(button);
    const to = {
      ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1,
    }[event.key];
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const list = byId(event.key === "ArrowUp" ? "keys" : "queries");
      if (list.id !== side) (list.querySelector("[tabindex='0']") || list.querySelector("button")).focus();
    } else if (to !== undefined && buttons[to]) {
      buttons[to].focus();
    } else if (to === undefined) {
      return;
    }
    event.preventDefault();
  }

  // ---- the heat map --------------------------------------------------------------------------

  let cells = [];

  function buildMap() {
    const [keys, queries] = [wordsOf("keys"), wordsOf("queries")];
    const size = Math.max(13, Math.min(36, 520 / Math.max(keys.length, queries.length)));
    const font = Math.min(14, size * 0.78);
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `bold ${font}px system-ui, sans-serif`;
    const longest = (words) => Math.max(...words.map((word) => pen.measureText(word).width));
    const short = (word) => { // a very long word would leave no room for the map
      let text = word;
      while (text && pen.measureText(text + "\u2026").width > LABEL) text = text.slice(0, -1);
      return pen.measureText(word).width > LABEL ? text + "\u2026" : word;
    };
    const labels = { keys: keys.map(short), queries: queries.map(short) };
    const left = longest(labels.queries) + 34;
    const above = longest(labels.keys) + 34;
    const [width, height] = [keys.length * size, queries.length * size];
    const total = [Math.max(left + width, left + 130) + 4, above + height + 4];
    const svg = makeSvg("svg", { width: total[0], height: total[1], role: "img" });
    const pattern = makeSvg("pattern", {
      id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)",
    });
    pattern.append(
      makeSvg("rect", { width: 6, height: 6, class: "ground" }),
      makeSvg("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" }),
    );
    const definitions = makeSvg("defs");
    definitions.append(pattern);
    svg.append(definitions);
    svg.append(makeSvg("text", { x: left, y: 14, class: "side", "font-size": 13 }, "keys"));
    svg.append(makeSvg("text", {
      x: 0, y: 0, class: "side", "font-size": 13, "text-anchor": "end",
      transform: `translate(13 ${above}) rotate(-90)`,
    }, "queries"));
    labels.keys.forEach((word, k) => svg.append(makeSvg("text", {
      x: 0, y: 0, "font-size": font, "dominant-baseline": "central", "data-key": k,
      transform: `translate(${left + (k + 0.5) * size} ${above - 6}) rotate(-90)`,
    }, word)));
    labels.queries.forEach((word, q) => svg.append(makeSvg("text", {
      x: left - 6, y: above + (q + 0.5) * size, "font-size": font, "text-anchor": "end",
      "dominant-baseline": "central", "data-query": q,
    }, word)));
    cells = queries.map((_, q) => keys.map((__, k) => {
      const cell = makeSvg("rect", {
        x: left + k * size + 0.5, y: above + q * size + 0.5, width: size - 1, height: size - 1,
        "data-q": q, "data-k": k,
      });
      svg.append(cell);
      return cell;
    }));
    svg.append(makeSvg("rect", { class: "frame", id: "frame" }));
    Object.assign(svg.dataset, { left, above, size });
    svg.addEventListener("mouseover", (event) => {
      const { q, k } = event.target.dataset;
      if (q === undefined) return;
      const change = { cell: [Number(q), Number(k)] };
      if (!state.kept) Object.assign(change, { side: "queries", word: Number(q) });
      choose(change);
    });
    byId("map").replaceChildren(svg);
    // beside a map of many words there is no room for the words
    document.querySelector(".views").classList.toggle("stacked", total[0] > 640);
  }

  function paintMap() {
    const map = current();
    const most = top();
    cells.forEach((row, q) => row.forEach((cell, k) => {
      const weight = map[q][k];
      cell.setAttribute("fill", weight === 0 ? "url(#hatch)" : css(rgb(Math.min(1, weight / most))));
    }));
    byId("top").textContent = most.toFixed(3);
    const name = `${KINDS[state.kind].name}, ${roundLabel(state.round)}, ${headLabel(state.head)}`;
    byId("map-name").textContent = name;
    const ramp = byId("ramp").getContext("2d");
    for (let x = 0; x < 128; x += 1) {
      ramp.fillStyle = css(rgb(x / 127));
      ramp.fillRect(x, 0, 1, 1);
    }
    const svg = byId("map").firstChild;
    svg.setAttribute("aria-label", `heat map: ${name}; the words beside it give the same numbers`);
  }

  function paintChoice() {
    const svg = byId("map").firstChild;
    const [left, above, size] = ["left", "above", "size"].map((key) => Number(svg.dataset[key]));
    const row = state.side === "queries";
    const [across, down] = [wordsOf("keys").length * size, wordsOf("queries").length * size];
    const place = row
      ? { x: left, y: above + state.word * size, width: across, height: size }
      : { x: left + state.word * size, y: above, width: size, height: down };
    for (const [key, value] of Object.entries(place)) byId("frame").setAttribute(key, value);
    svg.querySelectorAll("text[data-query], text[data-key]").forEach((text) => {
      const own = row ? text.dataset.query : text.dataset.key;
      text.classList.toggle("chosen", own !== undefined && Number(own) === state.word);
    });
    if (!state.cell) {
      byId("cell").textContent = "Point at a cell to read its weight.";
      return;
    }
    const [q, k] = state.cell;
    const weight = current()[q][k];
    byId("cell").textContent = `\u201c${wordsOf("queries")[q]}\u201d looks at ` +
      `\u201c${wordsOf("keys")[k]}\u201d: ${weight === 0 ? "no edge" : number(weight, 4)}`;
  }

  function paintThumbnails() {
    const heads = rounds()[state.round];
    const most = top();
    document.querySelectorAll("#heads canvas").forEach((canvas) => {
      const map = canvas.dataset.head === MEAN ? meanOf(heads) : heads[Number(canvas.dataset.head)];
      [canvas.width, canvas.height] = [map[0].length, map.length];
      const pen = canvas.getContext("2d");
      map.forEach((row, q) => row.forEach((weight, k) => {
        pen.fillStyle = weight === 0 ? "#808080" : css(rgb(Math.min(1, weight / most)));
        pen.fillRect(k, q, 1, 1);
      }));
    });
  }

  // ---- the choice ----------------------------------------------------------------------------

  function buildHeads() {
    const heads = rounds()[0].map((_, head) => String(head));
    if (heads.length > 1) heads.push(MEAN);
    if (!heads.includes(state.head)) state.head = "0";
    radios(byId("heads"), "head", heads, (head) => (head === MEAN ? "mean" : head), true);
  }

  function buildKind() {
    state.round = Math.min(state.round, rounds().length - 1);
    Object.assign(state, { side: "queries", word: 0, kept: false, cell: null });
    Object.assign(byId("round"), { max: rounds().length - 1, value: state.round });
    byId("round").disabled = rounds().length === 1;
    byId("round-name").textContent = data.round;
    buildHeads();
    buildWords();
    buildMap();
  }

  function paint(all) {
    if (all) {
      const first = data.round === "step" ? 1 : 0;
      const label = `${roundLabel(state.round)} (${first} to ${first + rounds().length - 1})`;
      byId("round-value").textContent = label;
      byId("round").setAttribute("aria-valuetext", label);
      paintMap();
      paintThumbnails();
    }
    paintWords();
    paintChoice();
  }

  /** Change what is chosen and show it. */
  function choose(change) {
    Object.assign(state, change);
    if ("kind" in change) buildKind();
    paint("kind" in change || "round" in change || "head" in change);
  }

  byId("source").textContent = data.src.join(" ");
  byId("target").textContent = (data.out || data.tgt).join(" ");
  if (!data.out) byId("target-name").textContent = "target";
  radios(byId("kinds"), "kind", kinds, (kind) => KINDS[kind].name, false);
  byId("round").addEventListener("input", (event) => choose({ round: Number(event.target.value) }));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("keys").addEventListener("keydown", moveAlong);
  byId("queries").addEventListener("keydown", moveAlong);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.kept) choose({ kept: false });
  });
  dark.addEventListener("change", () => paint(true));
  choose({ kind: state.kind });
})();
