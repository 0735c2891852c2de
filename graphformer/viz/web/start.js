// Changing what is chosen; the start.

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
