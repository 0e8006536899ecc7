// Plays an episode: the terminal frame by frame, what the agent did, and the rewards that it received.
// Its data stand in the page as JSON; the frames are packed as `pack` in stages/evaluate/results.py describes.
for (const player of document.querySelectorAll(".player")) {
  const ROWS = 24, COLUMNS = 80, CELLS = ROWS * COLUMNS, ZOOMED = 44, SHOWN = 12;
  const WIDEST = 18, TALLEST = 480, DECODED = 60; // pixels of a character, and of a picture; pictures that are kept
  const COLORS = JSON.parse(document.getElementById("colours").textContent);
  const paid = (word, what) => (word === "learnt" ? `learnt ${what}` : `${what} by the ${word}`);
  const part = (name) => player.querySelector(`.${name}`);
  const [screen, line, choice, play, speed, zoom] = ["screen", "line", "choice", "play", "speed", "zoom"].map(part);
  const pen = screen.getContext("2d"), pencil = line.getContext("2d");
  let replay = null, at = 0, playing = false, last = 0, due = 0;

  const number = (value, digits = 2) => (Number.isNaN(value) ? "–" : value.toFixed(digits));
  const signed = (value, digits = 2) => (Number.isNaN(value) ? "–" : (value >= 0 ? "+" : "−") + Math.abs(value).toFixed(digits));
  const put = (name, text) => { part(name).textContent = text; };
  const sums = (values) => { let sum = 0; return values.map((value) => (sum += Number.isNaN(value) ? 0 : value)); };

  async function unpack(about) {
    const packed = Uint8Array.from(atob(about.packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    const frames = about.steps + 1;
    let place = 0;
    const take = (kind, count) => { const array = new kind(buffer, place, count); place += array.byteLength; return array; };
    const chars = take(Uint8Array, frames * CELLS), colors = take(Uint8Array, frames * CELLS);
    for (let cell = CELLS; cell < chars.length; cell++) { // each frame is what it changes of the one before
      chars[cell] ^= chars[cell - CELLS];
      colors[cell] ^= colors[cell - CELLS];
    }
    const found = { ...about, chars, colors };
    for (const name of ["reward", "z", "intrinsic", "value", "probability"]) found[name] = take(Float32Array, about.steps);
    found.odds = take(Float32Array, about.steps * about.known); // of all actions, step by step
    for (const name of ["count", "message"]) found[name] = take(Int32Array, frames);
    found.action = take(Int32Array, about.steps);
    found.chooser = about.choosers ? take(Int32Array, about.steps) : null;
    found.picture = take(Int32Array, frames);
    found.drawn = new Map(); // pictures by number, those that were shown last
    found.cursor = take(Uint8Array, 2 * frames);
    found.shownRewards = found.intrinsic.some((value) => value > 0) ? found.intrinsic : found.reward;
    found.gameSums = sums(Array.from(found.reward));
    found.learntSums = sums(Array.from(found.intrinsic));
    return found;
  }

  function fit(canvas, width, height) { // as many pixels as the screen has
    const ratio = window.devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== across || canvas.height !== down) { canvas.width = across; canvas.height = down; }
    return ratio;
  }

  function leftmost() { // of the columns that are shown: those around the hero, where the cursor is on the map
    if (zoom.getAttribute("aria-pressed") !== "true") return [0, COLUMNS];
    let step = at;
    while (step > 0 && (replay.cursor[2 * step] < 1 || replay.cursor[2 * step] > 21)) step--;
    const middle = replay.cursor[2 * step + 1];
    return [Math.min(Math.max(middle - ZOOMED / 2, 0), COLUMNS - ZOOMED), ZOOMED];
  }

  const starts = (y) => y === 0 || y >= ROWS - 2; // the message and the status begin at the left, whatever is zoomed

  function wrapped(frame, y) { // a row as lines of ZOOMED columns, divided between words: [row, from, to]
    const blank = (x) => replay.chars[frame * CELLS + y * COLUMNS + x] === 32, lines = [];
    let end = COLUMNS, from = 0;
    while (end > 0 && blank(end - 1)) end--;
    while (from < end) {
      let to = Math.min(from + ZOOMED, end);
      if (to < end) while (to > from && !blank(to)) to--;
      if (to === from) to = Math.min(from + ZOOMED, end); // a word that is longer than a line
      lines.push([y, from, to]);
      for (from = to; from < end && blank(from);) from++;
    }
    return lines;
  }

  function linesOf(y, left, shown) { // of a row of the screen, at least as many as any frame needs
    if (!starts(y) || replay.box[3] <= ZOOMED) return [[y, left, left + shown]];
    if (shown === COLUMNS) return [[y, 0, shown]];
    const lines = wrapped(at, y);
    while (lines.length < replay.lines[y]) lines.push([y, 0, 0]);
    return lines;
  }

  function countLines() { // so that the height is the same in all frames
    const most = Array(ROWS).fill(1);
    for (let y = 0; y < ROWS; y++)
      for (let frame = 0; starts(y) && frame <= replay.steps; frame++) most[y] = Math.max(most[y], wrapped(frame, y).length);
    return most;
  }

  async function drawPicture(wanted) { // decoded when it is first shown
    const number = wanted.picture[at], drawn = wanted.drawn;
    if (!drawn.has(number)) {
      const bytes = Uint8Array.from(atob(wanted.pictures[number]), (letter) => letter.charCodeAt(0));
      drawn.set(number, await createImageBitmap(new Blob([bytes], { type: "image/webp" })));
      if (drawn.size > DECODED) drawn.delete(drawn.keys().next().value);
      if (replay !== wanted || replay.picture[at] !== number) return; // another frame is shown by now
    }
    const bitmap = drawn.get(number), width = screen.clientWidth;
    const scale = Math.min(width / bitmap.width, TALLEST / bitmap.height), height = bitmap.height * scale;
    screen.style.height = `${height}px`;
    const ratio = fit(screen, width, height);
    pen.fillStyle = "#05070a";
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillRect(0, 0, screen.width, screen.height);
    pen.imageSmoothingEnabled = scale < 3; // large pixels stay sharp
    pen.drawImage(bitmap, ((width - bitmap.width * scale) / 2) * ratio, 0, bitmap.width * scale * ratio, height * ratio);
  }

  function drawScreen() {
    if (replay.picture[at] >= 0) return void drawPicture(replay);
    const whole = replay.box[3] > ZOOMED, [top, rows] = [replay.box[0], replay.box[2]];
    const [hero, shown] = whole ? leftmost() : [replay.box[1], replay.box[3]], width = screen.clientWidth;
    const lines = Array.from({ length: rows }, (_, row) => linesOf(top + row, hero, shown)).flat();
    const cell = Math.min(width / Math.max(shown, 1), whole ? width : WIDEST), height = cell * 2 * lines.length;
    screen.style.height = `${height}px`;
    const ratio = fit(screen, width, height), wide = cell * ratio, high = 2 * wide;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = "#05070a";
    pen.fillRect(0, 0, screen.width, screen.height);
    pen.setTransform(1, 0, 0, 1, ((width - cell * shown) / 2) * ratio, 0);
    pen.font = `${wide / 0.602}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const start = at * CELLS, [row, column] = [replay.cursor[2 * at], replay.cursor[2 * at + 1]];
    lines.forEach(([y, left, right], down) => {
      for (let x = left; x < right; x++) {
        const cell = start + y * COLUMNS + x, code = replay.chars[cell], kind = replay.colors[cell];
        const color = COLORS[kind & 15], turned = kind >= 16;
        const [from, to] = [Math.floor((x - left) * wide), Math.floor((x - left + 1) * wide)];
        const here = y === row && x === column;
        if (turned || here) {
          pen.fillStyle = turned ? color : "#3d4654";
          pen.fillRect(from, Math.floor(down * high), to - from, Math.ceil(high));
        }
        if (code === 32) continue;
        pen.fillStyle = turned ? "#05070a" : here && !(kind & 8) ? "#ffffff" : color;
        pen.fillText(String.fromCharCode(code), (x - left + 0.5) * wide, (down + 0.54) * high);
      }
    });
  }

  function drawLine() { // the learnt reward upwards, the game's below it; the root, so that small ones are seen
    const width = line.clientWidth, height = line.clientHeight, ratio = fit(line, width, height);
    pencil.setTransform(ratio, 0, 0, ratio, 0, 0);
    pencil.clearRect(0, 0, width, height);
    const root = (value) => Math.sqrt(Math.abs(value)), middle = height * 0.62;
    const most = (values) => values.reduce((top, value) => (Math.abs(value) > top ? Math.abs(value) : top), 1e-9);
    const bar = Math.max(1.5, width / replay.steps - 0.5);
    const rows = [[replay.intrinsic, "#f2a65a", -1, middle - 6], [replay.reward, "#6ea6f7", 1, height - middle - 4]];
    for (const [values, color, way, room] of rows) {
      const top = root(most(values));
      for (let step = 0; step < replay.steps; step++) {
        const value = values[step];
        if (Number.isNaN(value) || value === 0) continue;
        const tall = Math.max(1, (root(value) / top) * room);
        pencil.fillStyle = value < 0 ? "#e8615a" : color;
        pencil.globalAlpha = step < at ? 1 : 0.55;
        pencil.fillRect(((step + 0.5) / replay.steps) * width - bar / 2, way < 0 ? middle - tall : middle + 1, bar, tall);
      }
    }
    pencil.globalAlpha = 1;
    pencil.fillStyle = "#39424f";
    pencil.fillRect(0, middle, width, 1);
    pencil.fillStyle = "#ffffff";
    pencil.fillRect(Math.min((at / Math.max(replay.steps, 1)) * width, width - 2), 0, 2, height);
  }

  function describe() {
    const done = at - 1; // the action that led here
    put("step", String(at));
    put("steps", String(replay.steps));
    const text = replay.messages[replay.message[at]];
    put("message", text || "(no message)");
    part("message").classList.toggle("none", !text);
    const chance = at && !Number.isNaN(replay.probability[done]) ? ` (${Math.round(100 * replay.probability[done])} %)` : "";
    const chooser = at && replay.chooser ? ` (${replay.choosers[replay.chooser[done]] ?? `chooser ${replay.chooser[done]}`})` : "";
    put("action", at ? (replay.actions[replay.action[done]] ?? String(replay.action[done])) + chooser : "–");
    put("chance", chance);
    put("learnt", at ? signed(replay.intrinsic[done], 3) : "–");
    const seen = replay.count[at - (replay.late ?? 0)], times = seen > 1 ? `, seen ${seen} times` : "";
    put("worth", at && !Number.isNaN(replay.z[done]) ? `worth ${signed(replay.z[done])}${times}` : "");
    put("game", at ? signed(replay.reward[done]) : "–");
    put("learnt-sum", number(at ? replay.learntSums[done] : 0));
    put("game-sum", number(at ? replay.gameSums[done] : 0));
    put("value", at < replay.steps ? number(replay.value[at]) : "–");
    line.setAttribute("aria-valuenow", String(at));
    line.setAttribute("aria-valuemax", String(replay.steps));
    line.setAttribute("aria-valuetext", `step ${at} of ${replay.steps}: ${text || "no message"}`);
  }

  function listActions() { // a bar for each action, where all of their probabilities are known
    part("odds").hidden = !replay.known;
    part("odds").replaceChildren(...replay.actions.slice(0, replay.known).map((name) => {
      const item = document.createElement("li");
      for (const [kind, text] of [["span", name], ["i", ""], ["small", ""]]) {
        const cell = document.createElement(kind);
        cell.textContent = text;
        item.append(cell);
      }
      return item;
    }));
  }

  function listFacts() { // those that are known of at least one step
    const known = { learnt: replay.intrinsic, "learnt-sum": replay.intrinsic, value: replay.value };
    for (const [name, values] of Object.entries(known)) part(name).closest("div").hidden = values.every(Number.isNaN);
    part("up").hidden = replay.intrinsic.every(Number.isNaN);
    part("zooms").hidden = zoom.hidden;
    for (const name of ["earlier", "later", "jumps"]) part(name).hidden = !replay.shownRewards.some((value) => value > 0);
    for (const word of player.querySelectorAll(".paid")) word.textContent = paid(replay.paid ?? "learnt", "reward");
  }

  function drawOdds() { // of the action that is taken next
    Array.from(part("odds").children).forEach((item, action) => {
      const chance = at < replay.steps ? replay.odds[at * replay.known + action] : NaN;
      item.classList.toggle("taken", at < replay.steps && replay.action[at] === action);
      item.children[1].style.setProperty("--chance", Number.isNaN(chance) ? 0 : chance);
      item.children[2].textContent = Number.isNaN(chance) ? "" : `${Math.round(100 * chance)} %`;
    });
  }

  function show(step) {
    at = Math.min(Math.max(Math.round(step), 0), replay.steps);
    drawScreen(); drawLine(); describe(); drawOdds();
  }

  function run(wanted) {
    if (!replay) return;
    if (wanted && at >= replay.steps) at = 0;
    playing = wanted; last = 0; due = 0;
    play.textContent = playing ? "Pause" : "Play";
    if (playing) requestAnimationFrame(tick);
  }

  function tick(now) {
    if (!playing) return;
    if (last) due += ((now - last) / 1000) * Number(speed.value);
    last = now;
    const steps = Math.floor(due);
    due -= steps;
    if (steps) show(at + steps);
    if (at >= replay.steps) run(false); else requestAnimationFrame(tick);
  }

  function go(step) { run(false); show(step); }

  function rewarded(way) { // the next step with a reward (1), or the one before (-1): learnt, or the game's if there is none
    for (let step = at + way; step >= 1 && step <= replay.steps; step += way)
      if (replay.shownRewards[step - 1] > 0) return step;
    return at;
  }

  function faster(way) {
    speed.selectedIndex = Math.min(Math.max(speed.selectedIndex + way, 0), speed.options.length - 1);
  }

  function listMoments() {
    const values = replay.shownRewards, learnt = values === replay.intrinsic;
    const best = Array.from(values.keys()).filter((step) => values[step] > 0).sort((a, b) => values[b] - values[a] || a - b);
    part("highest").textContent = best.length ? `Highest ${learnt ? paid(replay.paid ?? "learnt", "rewards") : "rewards of the game"}` : "";
    part("moments").hidden = !best.length;
    part("moments").querySelector("ol").replaceChildren(...best.slice(0, SHOWN).map((step) => {
      const item = document.createElement("li"), button = document.createElement("button");
      const cells = [["b", signed(values[step])], ["span", String(step + 1)], ["span", replay.messages[replay.message[step + 1 - (learnt ? replay.late ?? 0 : 0)]] || "(no message)"]];
      for (const [kind, text] of cells) {
        const cell = document.createElement(kind);
        cell.textContent = text;
        button.append(cell);
      }
      button.type = "button";
      button.children[0].className = learnt ? "of-learnt" : "of-game";
      button.title = `step ${step + 1}: ${cells[2][1]}`;
      button.addEventListener("click", () => go(step + 1));
      item.append(button);
      return item;
    }));
    return best.length ? best[0] + 1 : 0;
  }

  async function open() {
    run(false);
    const wanted = choice.value;
    const found = await unpack(JSON.parse(document.getElementById(wanted).textContent));
    if (choice.value !== wanted) return; // another one was chosen meanwhile
    replay = found;
    zoom.hidden = replay.picture[0] >= 0 || replay.box[3] <= ZOOMED; // all of it is seen
    replay.lines = countLines();
    const best = listMoments();
    listActions(); listFacts();
    show(best); // a first screen that shows something
    player.dataset.ready = wanted;
  }

  const buttons = {
    play: () => run(!playing), back: () => go(at - 1), forward: () => go(at + 1),
    earlier: () => go(rewarded(-1)), later: () => go(rewarded(1)),
    zoom: () => { zoom.setAttribute("aria-pressed", String(zoom.getAttribute("aria-pressed") !== "true")); show(at); },
  };
  const keys = {
    " ": buttons.play, ArrowRight: buttons.forward, ArrowLeft: buttons.back, n: buttons.later, p: buttons.earlier,
    Home: () => go(0), End: () => go(replay.steps), PageDown: () => go(at + 50), PageUp: () => go(at - 50),
    ArrowUp: () => faster(1), ArrowDown: () => faster(-1), "+": () => faster(1), "-": () => faster(-1), z: buttons.zoom,
  };
  for (const [name, act] of Object.entries(buttons)) part(name).addEventListener("click", () => replay && act());
  screen.addEventListener("click", () => { player.focus({ preventScroll: true }); buttons.play(); });
  choice.addEventListener("change", open);
  player.addEventListener("keydown", (event) => {
    const act = keys[event.key], own = event.target.closest("select, button");
    if (!replay || !act || event.ctrlKey || event.metaKey || event.altKey) return;
    if (own && (own.tagName === "SELECT" || event.key === " ")) return; // that is what it does itself
    event.preventDefault();
    act();
  });
  const seek = (event) => {
    const box = line.getBoundingClientRect();
    go(((event.clientX - box.left) / box.width) * replay.steps);
  };
  line.addEventListener("pointerdown", (event) => { if (replay) { line.setPointerCapture(event.pointerId); seek(event); } });
  line.addEventListener("pointermove", (event) => { if (replay && line.hasPointerCapture(event.pointerId)) seek(event); });
  new ResizeObserver(() => replay && show(at)).observe(player);
  if (player.clientWidth < 540) zoom.setAttribute("aria-pressed", "true");
  if (typeof DecompressionStream === "undefined") part("message").textContent = "This browser is too old to unpack the replay.";
  else open();
}
