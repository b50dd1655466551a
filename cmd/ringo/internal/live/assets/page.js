// The page of a job that goes on. The server sends whole panels as JSON whenever they have changed; this draws them. All text goes into
// the page as text, never as HTML: names of layers, files and hosts are strangers'.
"use strict";
(function () {
  const byID = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map(); // by panel
  let job = null, clock = 0;

  // el makes an element with text and children.
  function el(tag, kind, text, ...children) {
    const e = document.createElement(tag);
    if (kind) e.className = kind;
    if (text !== undefined && text !== null) e.textContent = text;
    e.append(...children);
    return e;
  }

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const series = (i) => color("s" + (i % 8));

  function number(v, percent) {
    if (v === null || v === undefined) return "–";
    if (percent) return trim((100 * v).toPrecision(4)) + " %";
    const a = Math.abs(v);
    if (a >= 1e9) return trim((v / 1e9).toPrecision(4)) + "G";
    if (a >= 1e6) return trim((v / 1e6).toPrecision(4)) + "M";
    if (a >= 1e5) return trim((v / 1e3).toPrecision(4)) + "k";
    if (a !== 0 && a < 1e-3) return v.toExponential(2);
    return trim(v.toPrecision(a >= 1000 ? Math.ceil(Math.log10(a + 1)) : 4));
  }
  const trim = (s) => (s.includes(".") && !s.includes("e") ? s.replace(/\.?0+$/, "") : s);

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
      v.chart = v.watch = null;
      v.body.replaceChildren();
      v.kind = f.kind;
      v.box.classList.toggle("empty", f.kind === "none");
      v.box.classList.toggle("last", f.kind === "table");
    }
    v.figures = f;
    draw[f.kind](v, f);
  }

  const draw = {
    none(v, f) { v.body.replaceChildren(el("p", "why", "No figures: " + f.why + ".")); },
    lines(v, f) { chart(v, f, false); },
    bands(v, f) { chart(v, f, true); },
    table(v, f) {
      const at = v.body.firstElementChild ? v.body.firstElementChild.scrollTop : 0;
      const head = el("thead", "", null, el("tr", "", null, ...(f.head || []).map((t) => scoped(el("th", "", t)))));
      const rows = el("tbody", "", null, ...f.rows.map((r) => el("tr", "", null, ...r.map((t) => el("td", "", t)))));
      const box = el("div", "scroll" + ((f.head || []).length === 2 ? " two" : ""), null, el("table", "", null, head, rows));
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-labelledby", v.title.id);
      const had = v.body.contains(document.activeElement);
      v.body.replaceChildren(box);
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

  // chart draws lines, or bands that lie one above the other.
  function chart(v, f, bands) {
    const data = [f.x, ...(bands ? stacked(f.data) : f.data)], shape = f.labels.join("\n");
    if (!v.chart || v.shape !== shape) {
      if (v.chart) v.chart.destroy();
      if (v.watch) v.watch.disconnect();
      v.shape = shape;
      v.legend = el("ul", "legend");
      v.plot = el("div", "chart");
      v.plot.tabIndex = 0;
      v.plot.setAttribute("role", "img");
      v.body.replaceChildren(v.legend, v.plot);
      v.chart = new uPlot(options(v, f, bands), data, v.plot);
      v.box.chart = v.chart;
      v.watch = new ResizeObserver(() => v.chart && v.chart.setSize(size(v.plot)));
      v.watch.observe(v.plot);
      v.plot.addEventListener("keydown", (e) => move(v, e));
    } else {
      v.chart.setData(data);
    }
    legend(v);
  }
  const size = (box) => ({ width: Math.max(200, Math.floor(box.clientWidth)), height: Math.round(Math.max(200, Math.min(420, box.clientWidth * 0.42))) });

  // stacked are sums from below; the last label lies on the top.
  function stacked(data) {
    const sum = data.length ? data[0].map(() => 0) : [];
    return data.map((row) => row.map((y, i) => (sum[i] += y || 0)));
  }

  function options(v, f, bands) {
    const axis = (extra) => ({ stroke: () => color("muted"), grid: { stroke: () => color("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", ...extra });
    const all = f.labels.map((label, i) => ({
      label, spanGaps: true, width: bands ? 1 : 2, stroke: () => series(i), points: { show: (u) => f.x.length < 2 || u.data[i + 1].filter((y) => y !== null).length < 20, size: 5, fill: () => series(i) },
      fill: bands ? () => series(i) + "cc" : undefined,
    }));
    return {
      ...size(v.plot), legend: { show: false }, padding: [8, 8, 0, 0], cursor: { y: false, points: { size: 7 } },
      scales: { x: { time: false }, y: { range: (u, lo, hi) => range(lo, hi, bands) } },
      axes: [axis({ size: 30, values: (u, all) => all.map((x) => number(x)) }), axis({ size: 62, values: (u, all) => all.map((y) => number(y, f.percent)) })],
      series: [{}, ...all],
      // A band is filled down to the one below it; the lowest to zero.
      bands: bands ? f.labels.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })) : undefined,
      hooks: { setCursor: [() => legend(v)] },
    };
  }
  function range(lo, hi, zero) {
    if (lo === null || hi === null) return [0, 1];
    const room = (hi - lo) * 0.06 || Math.abs(hi) * 0.1 || 1;
    return [zero || (lo >= 0 && lo - room < 0) ? Math.min(0, lo) : lo - room, hi + room];
  }

  // legend tells the figures under the cursor, or the newest.
  function legend(v) {
    const f = v.figures, at = v.chart && v.chart.cursor.idx;
    const from = at === null || at === undefined || at >= f.x.length ? null : at;
    const newest = (row) => { for (let i = row.length - 1; i >= 0; i--) if (row[i] !== null) return row[i]; return null; };
    const items = f.labels.map((label, i) => {
      const swatch = el("i"), y = from === null ? newest(f.data[i]) : f.data[i][from];
      swatch.style.background = series(i);
      return el("li", "", null, swatch, document.createTextNode(label + " "), el("b", "", number(y, f.percent) + (f.unit && y !== null ? " " + f.unit : "")));
    });
    items.push(el("li", "x", f.x_label + " " + number(f.x[from === null ? f.x.length - 1 : from])));
    v.legend.replaceChildren(...items);
    v.plot.setAttribute("aria-label", f.title + ": " + items.map((i) => i.textContent).join(", "));
  }

  // move moves the cursor by keys.
  function move(v, e) {
    const n = v.figures.x.length, at = v.chart.cursor.idx ?? n - 1, step = Math.max(1, Math.round(n / 100));
    const to = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: n - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const i = Math.min(n - 1, Math.max(0, to));
    v.chart.setCursor({ left: v.chart.valToPos(v.figures.x[i], "x"), top: 10 });
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
  addEventListener("resize", () => { for (const v of views.values()) if (v.kind === "ribbons") draw.ribbons(v, v.figures); });

  const source = new EventSource("events");
  source.addEventListener("head", (e) => { clock = 1; drawHead(JSON.parse(e.data)); });
  source.addEventListener("panel", (e) => drawPanel(JSON.parse(e.data)));
  source.addEventListener("end", (e) => { source.close(); clearInterval(ticks); end(JSON.parse(e.data)); });
  source.addEventListener("open", () => { clock = 1; drawState(); });
  source.addEventListener("error", () => { clock = 0; drawState(); });
  const ticks = setInterval(drawState, 1000);
})();
