// The page of a job that goes on. The server sends whole panels as JSON whenever they have changed; this draws them. All text goes into
// the page as text, never as HTML: names of layers, files and hosts are strangers'.
"use strict";
(function () {
  const { el, color, series, number, chart } = plot;
  const byID = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map(); // by panel
  let job = null, clock = 0;

  function duration(ms) {
    const s = Math.max(0, Math.round(ms / 1000)), two = (n) => String(n).padStart(2, "0");
    return s < 3600 ? Math.floor(s / 60) + ":" + two(s % 60) : Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
  }

  // The head.
  function drawHead(h) {
    job = h;
    document.title = h.title + " – ringo";
    byID("title").textContent = h.title;
    byID("at").textContent = h.at;
    byID("facts").textContent = h.facts.join("; ");
    const share = Math.round(100 * h.share);
    byID("progress").firstElementChild.style.width = share + "%";
    byID("progress").setAttribute("aria-valuenow", share);
    byID("figures").replaceChildren(...h.figures.map(([name, value]) => el("div", "", null, el("dt", "", name), el("dd", "", value))));
    drawState();
  }
  function drawState() {
    if (!job) return;
    const s = byID("state"), gone = clock === 0;
    s.className = gone ? "lost" : job.state;
    s.textContent = gone ? "no connection: the job has ended, or its page cannot be reached; trying again" : job.state + ", " + duration(Date.now() - job.begun);
  }

  // Panels.
  function view(f) {
    let v = views.get(f.id);
    if (v) return v;
    const box = el("section", "panel");
    box.id = "panel-" + f.id;
    v = { box, title: el("h2"), note: el("p", "note"), marks: el("ul", "marks"), body: el("div", "body"), kind: "" };
    v.title.id = box.id + "-title";
    box.setAttribute("aria-labelledby", v.title.id);
    box.append(v.title, v.marks, v.body, v.note);
    byID("panels").append(box);
    views.set(f.id, v);
    return v;
  }

  function drawPanel(f) {
    const v = view(f);
    v.title.textContent = f.title;
    v.note.textContent = f.note && f.kind !== "none" ? f.note : "";
    v.note.hidden = !v.note.textContent;
    v.marks.replaceChildren(...(f.marks || []).map((m) => el("li", "", m)));
    if (f.kind !== v.kind) {
      if (v.chart) v.chart.destroy();
      if (v.watch) v.watch.disconnect();
      v.chart = v.watch = v.pictures = null;
      v.body.replaceChildren();
      v.kind = f.kind;
      v.box.classList.toggle("empty", f.kind === "none");
      v.box.classList.toggle("last", f.kind === "table");
    }
    v.box.hidden = f.kind === "none" && !f.why;
    v.figures = f;
    draw[f.kind](v, f);
  }

  const draw = {
    none(v, f) { v.body.replaceChildren(el("p", "why", "No figures: " + f.why + ".")); },
    lines(v, f) { chart(v, f, f.kind); },
    bands(v, f) { chart(v, f, f.kind); },
    heat(v, f) { plot.heat(v.body, f.heat); },
    cards(v, f) { v.box.classList.add("wide"); plot.cards(v.body, f.cards); },
    grids(v, f) {
      if (f.grids[0].columns.length > 16) v.box.classList.add("wide");
      while ((v.pictures || []).length > f.grids.length) v.pictures.pop().canvas.parentElement.remove();
      f.grids.forEach((g, i) => grid(v, f, g, i));
    },
    tracks(v, f) { v.box.classList.add("wide"); tracks(v, f); },
    table(v, f) {
      const at = v.body.firstElementChild ? v.body.firstElementChild.scrollTop : 0;
      const head = el("thead", "", null, el("tr", "", null, ...(f.head || []).map((t) => scoped(el("th", "", t)))));
      const rows = el("tbody", "", null, ...f.rows.map((r) => el("tr", "", null, ...r.map((t) => el("td", "", t)))));
      const box = el("div", "scroll" + ((f.head || []).length === 2 ? " two" : ""), null, el("table", "", null, head, rows));
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-labelledby", v.title.id);
      const had = v.body.contains(document.activeElement), open = v.body.querySelector("details")?.open;
      v.body.replaceChildren(box);
      if (f.folded) {
        const more = f.folded.map((r) => el("tr", "", null, ...r.map((t) => el("td", "", t))));
        const fold = el("details", "", null, el("summary", "", f.fold), el("div", "scroll two", null, el("table", "", null, el("tbody", "", null, ...more))));
        fold.open = open || false;
        v.body.append(fold);
      }
      box.scrollTop = at;
      if (had) box.focus({ preventScroll: true });
    },
    list(v, f) {
      v.box.classList.add("wide");
      v.body.replaceChildren(el("ul", "lines", null, ...f.rows.slice().reverse().map(([at, text]) => el("li", "", null, el("time", "", at), document.createTextNode(text)))));
    },
    ribbons(v, f) {
      v.box.classList.add("wide");
      const many = f.ribbons.length > 16;
      let most = 0;
      for (const r of f.ribbons) for (const s of r.steps) most = Math.max(most, s || 0);
      const rows = v.body.children;
      while (rows.length > f.ribbons.length) rows[rows.length - 1].remove();
      f.ribbons.forEach((r, i) => {
        if (i === rows.length) v.body.append(el("div", "ribbon", null, el("span"), document.createElement("canvas"), el("span")));
        const row = rows[i], last = r.steps[r.steps.length - 1];
        row.className = "ribbon" + (r.slow ? " slow" : "") + (many ? " many" : "");
        row.children[0].textContent = r.label + (r.slow ? " ◀" : "");
        row.children[2].textContent = r.silent ? "silent for " + r.silent + " s" : number(last) + " ms";
        paintRibbon(row.children[1], r, most);
      });
    },
  };
  // A picture is a canvas whose parts (x, y, w, h in px of the page, and a text) tell of themselves under the pointer, and by arrow keys.
  function picture(v, i, title, label) {
    v.pictures ??= [];
    let p = v.pictures[i];
    if (!p) {
      const canvas = document.createElement("canvas");
      p = v.pictures[i] = { canvas, told: el("p", "told"), title: el("h3", ""), parts: [], at: -1 };
      canvas.tabIndex = 0;
      canvas.setAttribute("role", "img");
      v.body.append(el("div", "picture", null, p.title, canvas, p.told));
      canvas.addEventListener("keydown", (e) => steer(p, e));
      const point = (e) => tellPart(p, p.parts.findIndex((r) => e.offsetX >= r.x && e.offsetX < r.x + r.w && e.offsetY >= r.y && e.offsetY < r.y + r.h));
      canvas.addEventListener("pointermove", point);
      canvas.addEventListener("pointerdown", point);
      for (const away of ["pointerleave", "blur"]) canvas.addEventListener(away, () => tellPart(p, -1));
    }
    p.title.textContent = title;
    p.label = label;
    return p;
  }
  function steer(p, e) {
    const n = p.parts.length, wide = p.columns || 1;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }[e.key];
    const to = e.key === "Home" ? 0 : e.key === "End" ? n - 1 : by === undefined ? undefined : p.at < 0 ? 0 : p.at + by;
    if (to === undefined || n === 0) return;
    e.preventDefault();
    if (to >= 0 && to < n) tellPart(p, to);
  }
  function tellPart(p, at) {
    if (at >= p.parts.length) at = -1;
    if (p.at === at) return;
    p.at = at;
    p.paint();
  }
  // ready sets a canvas to a height and returns what draws on it, in px of the page.
  function ready(canvas, height) {
    const scale = devicePixelRatio || 1, w = canvas.parentElement.clientWidth;
    canvas.style.height = height + "px";
    canvas.width = Math.round(w * scale);
    canvas.height = Math.round(height * scale);
    const c = canvas.getContext("2d");
    c.scale(scale, scale);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    return [c, w];
  }
  function finish(p, c) {
    const r = p.parts[p.at];
    if (r) {
      c.strokeStyle = color("fg");
      c.lineWidth = 2;
      c.strokeRect(r.x + 1, r.y + 1, Math.max(1, r.w - 2), Math.max(1, r.h - 2));
    }
    p.told.textContent = r ? r.text() : p.most;
    p.canvas.setAttribute("aria-label", p.label + ": " + p.told.textContent);
  }
  const clip = (c, text, room) => {
    if (c.measureText(text).width <= room) return text;
    while (text && c.measureText(text + "…").width > room) text = text.slice(0, -1);
    return text + "…";
  };

  // grid draws figures of rows and columns as shades.
  function grid(v, f, g, i) {
    const p = picture(v, i, g.title, f.title + ", " + g.title), unit = f.unit ? " " + f.unit : "";
    let most = 0, where = null;
    const square = g.rows_are === g.columns_are.split(" ").pop();
    let long = 0; // of the figures worth telling: of ranks not what they wait for themselves
    g.data.forEach((row, r) => row.forEach((y, k) => {
      most = Math.max(most, y || 0);
      if (y > long && !(square && r === k)) { long = y; where = [r, k]; }
    }));
    const tell = (r, k) => (g.rows_are + " " + g.rows[r] + ", " + g.columns_are + " " + g.columns[k] + ": ").trimStart() + number(g.data[r][k], g.percent) + (g.data[r][k] === null ? "" : unit);
    p.most = where ? "most: " + tell(...where) : "";
    p.columns = g.columns.length;
    p.paint = () => {
      const room = p.canvas.parentElement.clientWidth;
      const side = square ? Math.min(28, (room - 60) / g.columns.length) : 0;
      const high = square ? Math.max(4, side) : Math.max(10, Math.min(18, 700 / g.rows.length));
      const [c, w] = ready(p.canvas, high * g.rows.length + 18);
      const left = Math.min(w * 0.4, Math.max(...g.rows.map((r) => c.measureText(r).width)) + 8);
      const wide = square ? side : (w - left) / g.columns.length, each = Math.ceil(13 / high);
      const shade = color("s0"), empty = color("grid"), muted = color("muted");
      p.parts = [];
      g.rows.forEach((name, r) => {
        c.fillStyle = muted;
        c.textAlign = "right";
        if (r % each === 0) c.fillText(clip(c, name, left - 6), left - 6, (r + 0.5) * high);
        c.fillStyle = empty;
        c.globalAlpha = 0.35;
        c.fillRect(left, r * high, wide * g.columns.length, high - (high > 5 ? 1 : 0));
        c.fillStyle = shade;
        g.data[r].forEach((y, k) => {
          const x = left + k * wide;
          p.parts.push({ x, y: r * high, w: wide, h: high, text: () => tell(r, k) });
          if (!y || y <= 0) return;
          c.globalAlpha = Math.sqrt(y / most);
          c.fillRect(x, r * high, wide - (wide > 5 ? 1 : 0), high - (high > 5 ? 1 : 0));
        });
        c.globalAlpha = 1;
      });
      c.fillStyle = muted;
      c.textAlign = "center";
      const widest = Math.max(...g.columns.map((t) => c.measureText(t).width)) + 6, step = Math.max(1, Math.ceil(widest / wide));
      g.columns.forEach((name, k) => { if (k % step === 0) c.fillText(name, Math.min(w - widest / 2, left + (k + 0.5) * wide), high * g.rows.length + 10); });
      finish(p, c);
    };
    p.paint();
  }

  // tracks draws what happened when, a line for each kind.
  function tracks(v, f) {
    const p = picture(v, 0, "", f.title);
    const bars = f.tracks.flatMap((t) => t.bars), lo = Math.min(0, ...bars.map((b) => b.lead ?? b.from)), hi = Math.max(...bars.map((b) => b.to));
    p.most = "";
    p.paint = () => {
      const [c, w] = ready(p.canvas, f.tracks.length * 38 + 20), span = hi - lo || 1, at = (ms) => 1 + ((ms - lo) / span) * (w - 2);
      p.parts = [];
      f.tracks.forEach((t, i) => {
        const y = i * 38;
        c.textAlign = "left";
        c.fillStyle = color("muted");
        c.fillText(t.label, 1, y + 8);
        for (const b of t.bars) {
          const x = at(b.from), width = Math.max(1, at(b.to) - x);
          c.fillStyle = series(b.tone);
          if (b.lead !== undefined) {
            c.globalAlpha = 0.3;
            c.fillRect(at(b.lead), y + 24, x - at(b.lead), 4);
          }
          c.globalAlpha = 0.85;
          c.fillRect(x, y + 17, Math.max(1, width - (width > 3 ? 1 : 0)), 17);
          c.globalAlpha = 1;
          p.parts.push({ x, y: y + 17, w: width, h: 17, text: () => t.label + ", " + b.name + ": " + number(b.from) + " to " + number(b.to) + " " + f.unit + (b.lead === undefined ? "" : ", ready at " + number(b.lead) + " " + f.unit) });
        }
      });
      const y = f.tracks.length * 38;
      c.fillStyle = color("muted");
      c.textAlign = "left";
      c.fillText(number(lo) + " " + f.unit, 1, y + 10);
      c.textAlign = "right";
      c.fillText(number(hi) + " " + f.unit, w - 1, y + 10);
      finish(p, c);
    };
    p.paint();
  }

  const scoped = (th) => { th.scope = "col"; return th; };

  // paintRibbon draws a rank's steps as marks: the height is a step's time, the full colour its own part of it.
  function paintRibbon(canvas, r, most) {
    const scale = devicePixelRatio || 1, w = Math.round(canvas.clientWidth * scale), h = Math.round(canvas.clientHeight * scale);
    if (w === 0 || h === 0) return;
    canvas.width = w;
    canvas.height = h;
    const c = canvas.getContext("2d"), places = 120, each = w / places, from = places - r.steps.length;
    const own = r.slow ? color("s1") : color("s0");
    r.steps.forEach((s, i) => {
      if (s === null || most === 0) return;
      const x = (from + i) * each, width = Math.max(1, each - (each > 3 ? 1 : 0)), all = (s / most) * h, mine = Math.min(all, ((r.own[i] || 0) / most) * h);
      c.fillStyle = own;
      c.globalAlpha = 0.3;
      c.fillRect(x, h - all, width, all);
      c.globalAlpha = 1;
      c.fillRect(x, h - mine, width, mine);
    });
  }

  // The report takes the place of the page.
  function end(report) {
    if (!report) return;
    document.open();
    document.write(report);
    document.close();
  }

  function redraw() { for (const v of views.values()) { if (v.chart) v.chart.redraw(); if (v.figures) draw[v.figures.kind](v, v.figures); } }
  dark.addEventListener("change", redraw);
  addEventListener("resize", () => { for (const v of views.values()) if (v.kind === "ribbons" || v.pictures) draw[v.kind](v, v.figures); });

  const source = new EventSource("events");
  source.addEventListener("head", (e) => { clock = 1; drawHead(JSON.parse(e.data)); });
  source.addEventListener("panel", (e) => drawPanel(JSON.parse(e.data)));
  source.addEventListener("end", (e) => { source.close(); clearInterval(ticks); end(JSON.parse(e.data)); });
  source.addEventListener("open", () => { clock = 1; drawState(); });
  source.addEventListener("error", () => { clock = 0; drawState(); });
  const ticks = setInterval(drawState, 1000);
})();
