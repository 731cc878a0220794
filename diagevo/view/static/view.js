// What a page does beyond showing itself: copy, sort, filter, the what-if sliders, and a run under way.
// Everything that comes from the log is set as text, never as HTML.
"use strict";

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "press Ctrl-C";
    }
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });
}

// A table as a file: what stands in its cells. In CSV an apostrophe stands before what a spreadsheet would run.
for (const table of document.querySelectorAll("main table:not(.sides):not(.responses)")) {
  if (!table.tHead || !table.tBodies[0]?.rows.length) continue;
  const cells = (row) => [...row.cells].map((cell) => cell.innerText.trim().replace(/\s+/g, " "));
  const rows = () => [...table.tBodies[0].rows].filter((row) => !row.hidden && !row.classList.contains("node"));
  const heads = () => cells(table.tHead.rows[table.tHead.rows.length - 1]);
  const quoted = (text) => {
    const safe = /^[\s\u200c\u200d\u2060]*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text) && !/^[+-]?\d+(\.\d+)?%?$/.test(text) ? `'${text}` : text;
    return /[",\n']/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  const written = {
    CSV: () => [heads(), ...rows().map(cells)].map((row) => row.map(quoted).join(",")).join("\n") + "\n",
    JSON: () => JSON.stringify(rows().map((row) => Object.fromEntries(
      cells(row).map((cell, place) => [heads()[place] || `column ${place + 1}`, cell]))), null, 1) + "\n",
  };
  const bar = document.createElement("p");
  bar.className = "note take";
  for (const [name, text] of Object.entries(written)) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = name;
    button.title = "what this table shows, as a file";
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text()], { type: name === "CSV" ? "text/csv" : "application/json" }));
      link.download = `${document.title.split(" · ")[0].replace(/[^\w.-]+/g, "-")}.${name.toLowerCase()}`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
    bar.append(button, " ");
  }
  (table.closest(".scroll") ?? table).after(bar);
}

// Sorting: a column is sorted by its numbers where all of its cells begin with one.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].textContent.trim();
      const number = (text) => Number.parseFloat(text.replace(/^[^\d.-]*/, "").replace(/,/g, ""));
      const rows = [...body.rows];
      const numbers = rows.every((row) => key(row) === "–" || !Number.isNaN(number(key(row))));
      rows.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "–" || y === "–") return (x === "–") - (y === "–");
        return (numbers ? number(x) - number(y) : x.localeCompare(y)) * (down ? -1 : 1);
      });
      body.append(...rows);
    });
  });
}

// Many runs: a box a run, and the curves of those that are chosen.
for (const box of document.querySelectorAll("input[data-run]")) {
  const show = () => {
    for (const one of document.querySelectorAll("[data-line]")) {
      if (one.dataset.line === box.dataset.run) one.classList.toggle("unseen", !box.checked);
    }
  };
  box.addEventListener("change", show);
  show(); // a browser that comes back has kept what was chosen
}

const matrix = document.getElementById("matrix");
if (matrix) {
  const body = matrix.tBodies[0];
  const nodes = new Map();
  let current = null;
  for (const row of [...body.rows]) {
    if (row.classList.contains("node")) nodes.set(current = row, []);
    else nodes.get(current).push(row);
  }
  const words = document.querySelector("[data-filter=matrix]");
  const state = document.querySelector("[data-state=matrix]");
  const order = document.querySelector("[data-order=matrix]");
  const show = () => {
    const wanted = words.value.toLowerCase();
    const flat = order !== null && order.value !== "node";  // an evaluation has words alone to filter by
    for (const [node, rows] of nodes) {
      let seen = 0;
      for (const row of rows) {
        const text = `${row.textContent} ${node.textContent}`.toLowerCase();
        row.hidden = !text.includes(wanted) || (state?.value && row.dataset.now !== state.value);
        seen += !row.hidden;
      }
      node.hidden = flat || seen === 0;
    }
    if (flat) {
      const by = { f: (row) => -row.dataset.f, id: (row) => +row.dataset.id }[order.value];
      body.append(...[...nodes.values()].flat().sort((a, b) => by(a) - by(b)));
    } else {
      for (const [node, rows] of nodes) body.append(node, ...rows);
    }
  };
  for (const input of [words, state, order]) input?.addEventListener("input", show);
}

// What if. Fractions are pairs of whole numbers, compared and put into the schedule of Equation 1 as such: exact.
// What the sliders move over is a script beside the page: that loads from a disk too, where nothing can be fetched.
const sliders = document.getElementById("sliders");
const asking = document.getElementById("asking");
if (sliders) {
  asking.textContent = "The log is being read for the sliders…";
  const script = document.createElement("script");
  script.addEventListener("load", () => { moveSliders(globalThis.diagevoWhatIf); });
  script.addEventListener("error", () => { asking.textContent = "What the sliders need cannot be read; load the page again."; });
  script.src = sliders.dataset.from;
  document.head.append(script);
}

function moveSliders(data) {
  asking.textContent = "";
  sliders.querySelector("fieldset").disabled = false;
  const big = ([n, d]) => [BigInt(n), BigInt(d)];
  const less = (a, b) => { const [p, q] = [big(a), big(b)]; return p[0] * q[1] < q[0] * p[1]; };
  const same = (a, b) => !less(a, b) && !less(b, a);
  const reduced = (n, d) => {
    let [a, b] = [n, d];
    while (b) [a, b] = [b, a % b];
    return [n / a, d / a];
  };
  const value = ([n, d]) => Number(n) / Number(d);
  const shown = (x) => value(x).toFixed(3);
  const exact = ([n, d]) => (BigInt(d) === 1n ? `${n}` : `${n}/${d}`);

  const outcomes = (rows) => rows.map(([F, F1, active, mastered, promoted, reactivated, alike, epsilon]) => (
    { F, F1, active, mastered, promoted, reactivated, alike, epsilon }));
  const recorded = outcomes(data.recorded);
  const inputs = Object.fromEntries([...sliders.querySelectorAll("input")].map((one) => [one.name, one]));
  const asRecorded = () => {
    for (const [name, input] of Object.entries(inputs)) input.value = data.own[name].at;
  };
  for (const [name, input] of Object.entries(inputs)) input.max = data.stops[name].length - 1;
  asRecorded();
  // What a policy of one's own makes of another k, only it can say, and no audit runs its code.
  inputs.k.disabled = data.rounds.some((round) => round.policy === "own");
  // Where the run stands itself, nothing is asked.
  const chosen = (name) => (+inputs[name].value === data.own[name].at ? null : data.stops[name][inputs[name].value]);

  // Equation 1: ε = 1 / (1 + (F / F₁) / k) = F₁·k / (F₁·k + F).
  const epsilon = (round, outcome, k) => {
    if (outcome.F === 0) return [1n, 1n];
    if (round.policy === "free") return [1n, 1n];
    if (round.policy === "targeted") return [0n, 1n];
    if (round.policy === "fixed") return big(round.fixed);
    if (round.policy === "own") return big(outcome.epsilon);
    const [n, d] = big(k ?? round.k);
    const top = BigInt(outcome.F1) * n;
    return reduced(top, top + BigInt(outcome.F) * d);
  };
  // Equation 3, on the votes.
  const kept = (vote, filter) => {
    const [first, second, responses, valid, rewards, wasKept] = vote;
    if (rewards) return wasKept; // no threshold decided
    if (!valid) return false;
    if (filter.variant === "none") return true;
    const [p1, p2] = [[first, responses], [second, responses]];
    if (less(p1, filter.p_low) || less(filter.p_high, p1)) return false;
    if (filter.variant !== "double") return true;
    const [t, p] = [big(filter.tau), big(p2)];
    return !less(p1, [t[0] * p[0], t[1] * p[1]]);
  };

  const cell = (row, text, kind = "") => {
    const made = row.insertCell();
    made.textContent = text;
    made.className = kind;
  };
  const told = (row, now, was) => {
    cell(row, now, now === was ? "n" : "n changed");
    cell(row, was, "n was");
  };

  const command = document.querySelector(".commands code");
  const copy = document.querySelector(".commands .copy");
  const plain = command.textContent;

  const show = () => {
    const [k, theta] = [chosen("k"), chosen("theta")];
    const changed = ["tau", "p_low", "p_high"].filter((name) => chosen(name));
    const answer = theta ? outcomes(data.theta[inputs.theta.value]) : recorded;
    for (const [name, input] of Object.entries(inputs)) {
      const at = chosen(name);
      const own = data.own[name].always ? `as recorded: ${shown(data.stops[name][data.own[name].at])}` : "as recorded";
      sliders.querySelector(`output[for=s-${name}]`).textContent = at ? `${exact(at)} = ${shown(at)}` : own;
    }
    const retention = document.querySelector("#retention tbody");
    retention.replaceChildren();
    let rerun = null;
    let crossed = null;
    for (const round of data.rounds) {
      const filter = { ...round.filter };
      for (const name of changed) filter[name] = chosen(name);
      if (less(filter.p_high, filter.p_low)) crossed = round.round;
      const count = { all: 0, now: 0, was: 0, both: 0, known: 0, true: 0 };
      for (const vote of round.votes) {
        const [wasKept, truth, number] = vote.slice(5);
        count.all += number;
        count.was += wasKept ? number : 0;
        if (!(changed.length ? kept(vote, filter) : wasKept)) continue;
        count.now += number;
        count.both += wasKept ? number : 0;
        count.known += truth === null ? 0 : number;
        count.true += truth ? number : 0;
      }
      if (rerun === null && !(count.now === count.was && count.was === count.both)) rerun = round.round;
      const row = retention.insertRow();
      cell(row, round.round);
      cell(row, count.all, "n");
      told(row, count.now, count.was);
      cell(row, count.all ? `${(100 * count.now / count.all).toFixed(1)}%` : "–", "n");
      cell(row, count.known ? `${(100 * count.true / count.known).toFixed(1)}%` : "–", "n");
    }
    const replay = document.querySelector("#replay tbody");
    replay.replaceChildren();
    let diverged = false;
    data.rounds.forEach((round, place) => {
      const [now, was] = [answer[place], recorded[place]];
      const [next, before] = [epsilon(round, now, k), epsilon(round, was, null)];
      const row = replay.insertRow();
      row.dataset.round = round.round;
      cell(row, round.round);
      if (crossed !== null || (rerun !== null && round.round >= rerun)) {
        cell(row, crossed !== null ? "p_low is above p_high" : "needs a rerun");
        for (const name of ["F", "epsilon", "active", "mastered"]) {
          cell(row, "", "n");
          cell(row, name === "epsilon" ? shown(before) : was[name], "n was");
        }
        cell(row, "", "n");
        cell(row, "", "n");
        return;
      }
      cell(row, diverged ? "open-loop" : "exact");
      told(row, now.F, was.F);
      told(row, shown(next), shown(before));
      row.cells[4].title = exact(next);
      told(row, now.active, was.active);
      told(row, now.mastered, was.mastered);
      cell(row, now.promoted, "n");
      cell(row, now.reactivated, "n");
      diverged ||= !now.alike || !same(next, before);
    });
    const names = { k: "--k", theta: "--theta-up", tau: "--tau", p_low: "--p-low", p_high: "--p-high" };
    const given = Object.keys(names).filter((name) => chosen(name)).map((name) => `${names[name]} ${exact(chosen(name))}`);
    command.textContent = copy.dataset.copy = [plain, ...given].join(" ");
  };
  sliders.addEventListener("input", show);
  document.getElementById("as-recorded").addEventListener("click", () => {
    asRecorded();
    show();
  });
  show();
}

// A run under way: asked for every two seconds while the page is seen; 304 where nothing is new.
const where = document.getElementById("where");
if (where) {
  let tag = "";
  const made = (name, text, parent) => {
    const one = document.createElement(name);
    if (text !== null) one.textContent = text;
    parent.append(one);
    return one;
  };
  // Mean rewards by step, between the lowest and the highest of them.
  const curve = (rewards) => {
    const drawn = (name, values, parent) => {
      const one = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(values)) one.setAttribute(key, value);
      parent?.append(one);
      return one;
    };
    const ys = rewards.map(([, reward]) => reward);
    const [low, high, first, last] = [Math.min(...ys), Math.max(...ys), rewards[0][0], rewards.at(-1)[0]];
    const said = `mean reward by step: ${low} to ${high}, the last ${ys.at(-1)}`;
    const svg = drawn("svg", { viewBox: "0 0 300 48", class: "curve", role: "img", "aria-label": said });
    const at = ([step, reward]) => [
      (4 + 292 * (step - first) / Math.max(1, last - first)).toFixed(1),
      (42 - 36 * (reward - low) / (high - low || 1)).toFixed(1)];
    drawn("polyline", { points: rewards.map((one) => at(one).join()).join(" ") }, svg);
    const [x, y] = at(rewards.at(-1));
    drawn("circle", { cx: x, cy: y, r: 3 }, svg);
    drawn("title", {}, svg).textContent = said;
    return svg;
  };
  const show = (now) => {
    document.querySelector("h1").textContent = now.ended ? "At rest" : "Under way";
    where.textContent = !now.rounds
      ? "The base model is being measured, before round 1."
      : now.ended
      ? `Round ${now.round} is committed.`
      : `Round ${now.round} of ${now.rounds}, ε = ${now.epsilon}${now.failures === null ? "" : `, F = ${now.failures}`}.`;
    const stages = document.getElementById("stages");
    stages.replaceChildren();
    for (const stage of now.stages) {
      const row = made("li", null, stages);
      made("span", stage.stage + (stage.attempt > 1 ? `, attempt ${stage.attempt}` : ""), row);
      const bar = made("progress", null, row);
      bar.setAttribute("aria-label", stage.stage);
      bar.max = stage.total || 1;
      if (stage.seconds !== null) bar.value = bar.max;
      else if (stage.total) bar.value = stage.done;
      const of = stage.total ? `${stage.done} of ${stage.total}` : `${stage.done}`;
      const spent = stage.seconds === null ? of : `${stage.seconds.toFixed(1)} s`;
      made("span", stage.detail ? `${spent}: ${stage.detail.replaceAll("_", " ")}` : spent, row);
      if (stage.rewards.length > 1) {
        const figure = made("div", null, row);
        figure.className = "rewards";
        figure.append(curve(stage.rewards));
        const ys = stage.rewards.map(([, reward]) => reward.toFixed(3));
        made("span", `mean reward ${ys[0]} → ${ys.at(-1)} over steps ${stage.rewards[0][0]} to ${stage.rewards.at(-1)[0]}`, figure).className = "note";
      }
    }
    const committed = document.getElementById("committed");
    committed.replaceChildren();
    if (now.last) {
      made("h2", "Last commit", committed);
      made("p", now.last, committed);
    }
    const told = document.getElementById("told");
    told.replaceChildren();
    for (const line of now.messages) made("li", line, told);
  };
  const look = async () => {
    if (document.visibilityState === "visible") {
      try {
        const answer = await fetch(where.dataset.progress, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          tag = answer.headers.get("ETag") ?? "";
          show(await answer.json());
        }
      } catch { /* the server is gone: the page stays as it is, and looks again */ }
    }
    setTimeout(look, 2000);
  };
  look();
}
