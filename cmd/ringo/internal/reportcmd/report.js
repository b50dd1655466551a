// Draws the charts of a report from its data. A button saves each as a PNG file.
(function () {
  "use strict";
  const figures = JSON.parse(document.getElementById("data").textContent), all = [];
  for (const f of figures) {
    const box = document.createElement("figure"), v = { box, figures: f, body: plot.el("div"), title: plot.el("h2", "", f.title) };
    const save = plot.el("button", "", "Save as PNG");
    save.type = "button";
    save.addEventListener("click", () => store(v));
    document.getElementById("charts").append(box);
    if (f.kind === "heat" || f.kind === "cards") {
      box.append(v.title, v.body);
      plot[f.kind](v.body, f[f.kind]);
      continue;
    }
    box.append(v.title, v.body, save);
    plot.chart(v, f, f.kind);
    all.push(v);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all.forEach((v) => { v.shape = null; plot.chart(v, v.figures, v.figures.kind); }));

  // store saves a chart with its title and the names of its series, in the colours that are shown.
  function store(v) {
    const from = v.chart.ctx.canvas, scale = from.width / from.clientWidth, f = v.figures, line = 20 * scale;
    const canvas = document.createElement("canvas"), c = canvas.getContext("2d"), top = line * (f.labels.length + 2);
    canvas.width = from.width;
    canvas.height = from.height + top;
    c.fillStyle = plot.color("bg");
    c.fillRect(0, 0, canvas.width, canvas.height);
    c.font = 14 * scale + "px system-ui, sans-serif";
    [f.title, ...f.labels].forEach((text, i) => {
      c.fillStyle = i === 0 ? plot.color("fg") : plot.series(i - 1);
      c.fillText((i === 0 ? "" : "— ") + text, 8 * scale, line * (i + 1));
    });
    c.drawImage(from, 0, top);
    const a = plot.el("a");
    a.download = f.name + ".png";
    a.href = canvas.toDataURL("image/png");
    a.click();
  }
})();
