// What a page does beyond showing itself: copy, sort, filter, the what-if sliders, and a run under way.
// Everything that comes from the log is set as text, never as HTML.
"use strict";

for (const button of document.querySelectorAll("button.copy")) {
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
    const flat = order.value !== "node";
    for (const [node, rows] of nodes) {
      let seen = 0;
      for (const row of rows) {
        const text = `${row.textContent} ${node.textContent}`.toLowerCase();
        row.hidden = !text.includes(wanted) || (state.value && row.dataset.now !== state.value);
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
  for (const input of [words, state, order]) input.addEventListener("input", show);
}

// What if. Fractions are pairs of whole numbers, compared and put into the schedule of Equation 1 as such: exact.
const sliders = document.getElementById("sliders");
if (sliders) {
  const data = JSON.parse(document.getElementById("data").textContent);
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

  const stops = { ...data.stops, theta: data.theta.map((one) => one.theta) };
  const inputs = Object.fromEntries([...sliders.querySelectorAll("input")].map((one) => [one.name, one]));
  for (const [name, input] of Object.entries(inputs)) input.max = stops[name].length - 1;
  const chosen = (name) => (inputs[name].value < 0 ? null : stops[name][inputs[name].value]);

  // Equation 1: ε = 1 / (1 + (F / F₁) / k) = F₁·k / (F₁·k + F).
  const epsilon = (round, outcome, k) => {
    if (outcome.F === 0) return [1n, 1n];
    if (round.policy === "free") return [1n, 1n];
    if (round.policy === "targeted") return [0n, 1n];
    if (round.policy === "fixed") return big(round.fixed);
    const [n, d] = big(k ?? round.k);
    const top = BigInt(outcome.F1) * n;
    return reduced(top, top + BigInt(outcome.F) * d);
  };
  // Equation 3, on the votes.
  const kept = (vote, filter) => {
    if (vote.rewards) return vote.kept; // no threshold decided
    if (!vote.votes) return false;
    if (filter.variant === "none") return true;
    const [p1, p2] = [[vote.first, vote.responses], [vote.second, vote.responses]];
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
    cell(row, was, "n");
  };

  const show = () => {
    const [k, theta] = [chosen("k"), chosen("theta")];
    const changed = ["tau", "p_low", "p_high"].filter((name) => chosen(name));
    const answer = theta ? data.theta[inputs.theta.value] : data.recorded;
    for (const [name, input] of Object.entries(inputs)) {
      const at = chosen(name);
      sliders.querySelector(`output[for=s-${name}]`).textContent = at ? `${exact(at)} = ${shown(at)}` : "as recorded";
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
        count.all += vote.count;
        count.was += vote.kept ? vote.count : 0;
        if (!(changed.length ? kept(vote, filter) : vote.kept)) continue;
        count.now += vote.count;
        count.both += vote.kept ? vote.count : 0;
        count.known += vote.truth === null ? 0 : vote.count;
        count.true += vote.truth ? vote.count : 0;
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
      const [now, was] = [answer.rounds[place], data.recorded.rounds[place]];
      const next = epsilon(round, now, k);
      const row = replay.insertRow();
      row.dataset.round = round.round;
      cell(row, round.round);
      if (crossed !== null || (rerun !== null && round.round >= rerun)) {
        cell(row, crossed !== null ? "p_low is above p_high" : "needs a rerun");
        for (const name of ["F", "epsilon", "active", "mastered"]) {
          cell(row, "", "n");
          cell(row, name === "epsilon" ? shown(was.epsilon) : was[name], "n");
        }
        cell(row, "", "n");
        cell(row, "", "n");
        return;
      }
      cell(row, diverged ? "open-loop" : "exact");
      told(row, now.F, was.F);
      told(row, shown(next), shown(was.epsilon));
      row.cells[4].title = exact(next);
      told(row, now.active, was.active);
      told(row, now.mastered, was.mastered);
      cell(row, now.promoted, "n");
      cell(row, now.reactivated, "n");
      diverged ||= !now.alike || !same(next, was.epsilon);
    });
    const names = { k: "--k", theta: "--theta-up", tau: "--tau", p_low: "--p-low", p_high: "--p-high" };
    const run = document.getElementById("command").textContent.split(" ")[4];
    const given = Object.keys(names).filter((name) => chosen(name)).map((name) => `${names[name]} ${exact(chosen(name))}`);
    document.getElementById("command").textContent = ["diagevo memory what-if --run", run, ...given].join(" ");
  };
  sliders.addEventListener("input", show);
  document.getElementById("as-recorded").addEventListener("click", () => {
    for (const input of Object.values(inputs)) input.value = -1;
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
  const show = (now) => {
    where.textContent = now.ended
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
      made("span", stage.seconds === null ? `${of} ${stage.detail}` : `${stage.seconds.toFixed(1)} s ${stage.detail}`, row);
    }
    const committed = document.getElementById("committed");
    committed.replaceChildren();
    if (now.last) made("p", now.last, committed);
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
