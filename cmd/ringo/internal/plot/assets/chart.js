// Charts of both pages: that of a job in progress (`--page`) and that of `ringo report`. All text goes into a page as text, never as
// HTML: names of layers, files and hosts are strangers'.
var plot = (function () {
  "use strict";

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
    if (percent) return trim((100 * v).toPrecision(4)) + "%";
    const a = Math.abs(v);
    if (a >= 1e9) return trim((v / 1e9).toPrecision(4)) + "G";
    if (a >= 1e6) return trim((v / 1e6).toPrecision(4)) + "M";
    if (a >= 1e5) return trim((v / 1e3).toPrecision(4)) + "k";
    if (a !== 0 && a < 1e-3) return v.toExponential(2);
    return trim(v.toPrecision(a >= 1000 ? Math.ceil(Math.log10(a + 1)) : 4));
  }
  const trim = (s) => (s.includes(".") && !s.includes("e") ? s.replace(/\.?0+$/, "") : s);

  // chart draws the figure f of a kind into v.body: lines, with the spread behind each where there is one; points; bands, which lie one
  // above the other; or bars of such parts, one for each of f.names.
  function chart(v, f, kind) {
    const data = columns(f, kind), shape = f.labels.join("\n");
    if (!v.chart || v.shape !== shape) {
      if (v.chart) v.chart.destroy();
      if (v.watch) v.watch.disconnect();
      v.shape = shape;
      v.legend = el("ul", "legend");
      v.plot = el("div", "chart");
      v.plot.tabIndex = 0;
      v.plot.setAttribute("role", "img");
      v.body.replaceChildren(v.legend, v.plot);
      v.chart = new uPlot(options(v, f, kind), data, v.plot);
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

  // columns are the data of uPlot. Bars are drawn one over the other, the highest first.
  function columns(f, kind) {
    if (kind === "bars") return [f.x, ...stacked(f.data).reverse()];
    return [f.x, ...(kind === "bands" ? stacked(f.data) : f.data), ...(f.low || []), ...(f.high || [])];
  }

  function options(v, f, kind) {
    const n = f.labels.length, bars = kind === "bars", stack = bars || kind === "bands", spread = f.low ? n : 0;
    const axis = (extra) => ({ stroke: () => color("muted"), grid: { stroke: () => color("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", ...extra });
    const one = (label, at, i) => ({
      label, spanGaps: true, width: kind === "points" ? 0 : stack ? 1 : 2, stroke: () => series(i), fill: stack ? () => series(i) + (bars ? "" : "cc") : undefined, dash: i < 8 ? undefined : [6, 4],
      paths: bars ? uPlot.paths.bars({ size: [0.6, 90] }) : undefined,
      points: { show: (u) => !bars && (kind === "points" || f.x.length < 2 || u.data[at + 1].filter((y) => y !== null).length < 20), size: 5, fill: () => series(i) },
    });
    const all = f.labels.map((label, i) => (bars ? one(f.labels[n - 1 - i], i, n - 1 - i) : one(label, i, i)));
    const edges = Array.from({ length: 2 * spread }, () => ({ width: 0, spanGaps: true, points: { show: false } }));
    // A band is filled down to the one below it, the lowest to zero; a spread from its greatest value to its least.
    const fills = kind === "bands" ? f.labels.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })) : f.labels.slice(0, spread).map((_, i) => ({ series: [2 * n + 1 + i, n + 1 + i], fill: () => series(i) + "2e" }));
    return {
      ...size(v.plot), legend: { show: false }, padding: [8, 8, 0, 0], cursor: { y: false, points: { size: 7 } },
      scales: { x: { time: false, distr: f.log ? 3 : 1, range: f.log ? undefined : bars || f.names ? [-0.5, f.x.length - 0.5] : f.from_zero ? (u, lo, hi) => [Math.min(0, lo), hi] : undefined }, y: { range: (u, lo, hi) => range(lo, hi, stack) } },
      axes: [axis({ size: 30, values: (u, all) => all.map((x) => (x === null ? "" : f.names ? clipped(f.names[x] || "", 18) : number(x))) }), axis({ size: 62, values: (u, all) => all.map((y) => number(y, f.percent)) })],
      series: [{}, ...all, ...edges],
      bands: fills.length ? fills : undefined,
      hooks: { setCursor: [() => legend(v)] },
    };
  }
  const clipped = (text, n) => (text.length > n ? text.slice(0, n - 1) + "…" : text);
  function range(lo, hi, zero) {
    if (lo === null || hi === null) return [0, 1];
    const room = (hi - lo) * 0.06 || Math.abs(hi) * 0.1 || 1;
    return [zero || (lo >= 0 && lo - room < 0) ? Math.min(0, lo) : lo - room, hi + room];
  }

  // legend tells the figures under the cursor, or the newest.
  function legend(v) {
    const f = v.figures, at = v.chart && v.chart.cursor.idx;
    const from = at === null || at === undefined || at >= f.x.length ? null : at;
    const items = f.labels.map((label, i) => {
      const swatch = el("i"), k = place(f, f.data[i], from), y = k < 0 ? null : f.data[i][k];
      swatch.style.background = series(i);
      return el("li", "", null, swatch, document.createTextNode(label + " "), el("b", "", number(y, f.percent) + (f.unit && y !== null ? " " + f.unit : "") + spread(f, i, k)));
    });
    const x = f.x[from === null ? f.x.length - 1 : from];
    items.push(el("li", "x", f.names ? f.names[x] : f.x_label + " " + number(x)));
    v.legend.replaceChildren(...items);
    v.plot.setAttribute("aria-label", f.title + ": " + items.map((i) => i.textContent).join(", "));
  }

  // place is the index of the value that a legend shows of a row, -1 without one: the newest where no cursor is; else that at the cursor
  // or, of runs whose times differ, the nearest within a twelfth of the axis.
  function place(f, row, at) {
    if (at === null) return row.findLastIndex((y) => y !== null);
    if (!f.low || row[at] !== null) return at;
    const away = (i) => Math.abs(f.x[i] - f.x[at]), reach = (f.x[f.x.length - 1] - f.x[0]) / 12;
    let best = -1;
    row.forEach((y, i) => { if (y !== null && away(i) <= reach && (best < 0 || away(i) < away(best))) best = i; });
    return best;
  }
  function spread(f, i, at) {
    if (!f.low || at < 0 || f.low[i][at] === f.high[i][at]) return "";
    return " (" + number(f.low[i][at], f.percent) + " to " + number(f.high[i][at], f.percent) + ")";
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

  // heat draws counts as a table of cells, each as dark as its share of the row.
  function heat(box, h) {
    const wide = h.columns.length > 12, head = el("tr", "", null, el("th", "", h.rows_are + " \\ " + h.columns_are), ...h.columns.map((t) => el("th", "", t)));
    const rows = h.counts.map((row, r) => {
      const sum = row.reduce((a, b) => a + b, 0);
      return el("tr", "", null, el("th", "", h.rows[r]), ...row.map((n, k) => {
        const cell = el("td", "", wide ? "" : String(n)), share = sum ? n / sum : 0;
        cell.title = h.rows_are + " " + h.rows[r] + ", " + h.columns_are + " " + h.columns[k] + ": " + n;
        cell.setAttribute("aria-label", cell.title);
        cell.style.background = "color-mix(in srgb, var(--s0) " + Math.round(70 * Math.sqrt(share)) + "%, transparent)";
        return cell;
      }));
    });
    const scroll = el("div", "heat" + (wide ? " small" : ""), null, el("table", "", null, el("thead", "", null, head), el("tbody", "", null, ...rows)));
    scroll.tabIndex = 0;
    box.replaceChildren(scroll);
  }

  // cards draws the columns of a table: name, kind, and bars of the values; or samples with their pictures.
  function cards(box, all) {
    box.replaceChildren(el("div", "cards", null, ...all.map((c) => {
      const counts = c.counts || [], most = Math.max(1, ...counts);
      const bars = counts.map((n, i) => {
        const bar = el("i");
        bar.style.height = Math.max(n ? 2 : 0, (100 * n) / most) + "%";
        const place = el("span", "", null, bar);
        place.title = c.labels[i] + ": " + n;
        return place;
      });
      const card = el("div", "card", null, el("b", "", c.name), el("p", "", c.text));
      if (bars.length) card.append(el("div", "bars", null, ...bars));
      if (c.image) {
        const picture = el("img");
        picture.src = c.image;
        picture.alt = c.name;
        card.prepend(picture);
      }
      if (c.missing) {
        const gap = el("i");
        gap.style.width = Math.max(1, 100 * c.missing) + "%";
        const line = el("div", "missing", null, gap);
        line.title = number(c.missing, true) + " of the rows have no value";
        card.append(line);
      }
      return card;
    })));
  }

  return { el, color, series, number, chart, heat, cards };
})();
