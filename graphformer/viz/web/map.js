// The heat map of the chosen head, and the small one on each head's button.

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
