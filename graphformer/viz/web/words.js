// The two rows of words, and the table of the strongest weights.

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
