// The page's own script: themes, sortable tables, charts, timelines. It computes
// no figure of a record. Numbers place marks, texts are shown as the data has
// them, and always set as text: names come from records. Timelines have too many
// spans for texts made before; their nanoseconds are written as tables write them.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const make = (tag, attributes = {}, text = "") => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    if (text !== "") e.textContent = text;
    return e;
  };

  // ---- themes

  // A colour of the style sheet as the theme in force has it. Custom properties
  // are not resolved by themselves, so an element wears it.
  const probe = document.body.appendChild(make("span", { hidden: "" }));
  const color = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const redraws = [];
  const redraw = () => redraws.forEach((f) => f());
  const store = {
    get: () => { try { return localStorage.getItem("trbench-theme"); } catch { return null; } },
    set: (v) => { try { localStorage.setItem("trbench-theme", v); } catch { /* a page from disk may have no store */ } },
  };
  const themes = document.querySelector(".themes");
  const choose = (theme) => {
    if (theme === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
    for (const b of themes.children) b.setAttribute("aria-pressed", String(b.dataset.themeChoice === theme));
    redraw();
  };
  themes.hidden = false;
  for (const b of themes.children) {
    b.addEventListener("click", () => { choose(b.dataset.themeChoice); store.set(b.dataset.themeChoice); });
  }
  const kept = store.get();
  choose(kept === "light" || kept === "dark" ? kept : "auto");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // ---- tables

  const compare = (a, b) => a.localeCompare(b, undefined, { numeric: true });
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const first = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((th, i) => {
      if (th.classList.contains("plain") || first.length < 2) return;
      const button = make("button", { type: "button", title: "Sort" }, th.textContent);
      th.replaceChildren(button);
      th.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" }[th.getAttribute("aria-sort")];
        heads.forEach((o) => o.hasAttribute("aria-sort") && o.setAttribute("aria-sort", "none"));
        th.setAttribute("aria-sort", next);
        if (next === "none") return body.append(...first);
        const sign = next === "ascending" ? 1 : -1;
        const numeric = first.some((r) => "key" in r.cells[i].dataset);
        const key = (r) => (numeric ? Number(r.cells[i].dataset.key ?? NaN) : r.cells[i].textContent);
        // What has no figure stands last either way; rows alike keep their order.
        body.append(...[...first].sort((a, b) => {
          const x = key(a), y = key(b);
          if (!numeric) return sign * compare(x, y);
          if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
          return sign * (x - y);
        }));
      });
    });
  }

  // ---- folds

  // What a link or the address leads to may lie in folds.
  const unfold = () => {
    const e = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (!e) return;
    for (let p = e; p; p = p.parentElement) if (p.tagName === "DETAILS") p.open = true;
    e.scrollIntoView();
    if (e.tagName === "DETAILS") e.querySelector("summary").focus({ preventScroll: true });
  };
  addEventListener("hashchange", unfold);
  for (const a of document.querySelectorAll('td a[href^="#"]')) {
    // The same place a second time changes no address.
    a.addEventListener("click", (e) => {
      if (location.hash !== a.getAttribute("href")) return;
      e.preventDefault();
      unfold();
    });
  }
  unfold();

  // ---- charts

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
  Chart.defaults.animation = false;
  Chart.defaults.plugins.colors.enabled = false;
  Chart.defaults.maintainAspectRatio = false;

  // How a line is told from others: by colour, dash and glyph each.
  const looks = [
    { dash: [], glyph: "circle", filled: true }, { dash: [7, 4], glyph: "circle", filled: false },
    { dash: [], glyph: "rect", filled: true }, { dash: [7, 4], glyph: "rect", filled: false },
    { dash: [10, 3, 2, 3], glyph: "triangle", filled: true }, { dash: [3, 3], glyph: "triangle", filled: false },
    { dash: [1, 4], glyph: "crossRot", filled: false }, { dash: [12, 4], glyph: "cross", filled: false },
  ];
  const reach = 4; // half a whisker's cap, in pixels

  // A line with a cap at an end that lies inside, and an arrow at one that does
  // not. Chart.js has no intervals; see the package's comment for what else was
  // looked at.
  const whisker = (ctx, across, from, to, lo, hi, place) => {
    const at = (along, side) => place(along, across + side);
    const cut = (v) => Math.min(Math.max(v, lo), hi);
    if (Math.max(from, to) < lo || Math.min(from, to) > hi) return;
    ctx.beginPath();
    ctx.moveTo(...at(cut(from), 0));
    ctx.lineTo(...at(cut(to), 0));
    for (const v of [from, to]) {
      const back = v < lo ? 5 : v > hi ? -5 : 0;
      ctx.moveTo(...at(cut(v) + back, -reach));
      if (back) ctx.lineTo(...at(cut(v), 0));
      ctx.lineTo(...at(cut(v) + back, reach));
    }
    ctx.stroke();
  };

  const lineMarks = {
    id: "lineMarks",
    afterDatasetsUpdate(chart) {
      chart.data.datasets.forEach((set, i) => chart.getDatasetMeta(i).data.forEach((e) => { e.x += set.shift; }));
    },
    beforeDatasetsDraw(chart, _, { rules, marks, bands, ink, ground, bad, raised }) {
      const { ctx, chartArea: a, scales: { x, y } } = chart;
      ctx.save();
      ctx.font = `11px ${Chart.defaults.font.family}`;
      for (const b of bands) {
        const from = Math.max(x.getPixelForValue(b.from), a.left), to = Math.min(x.getPixelForValue(b.to), a.right);
        if (to <= from) continue;
        ctx.fillStyle = raised;
        ctx.fillRect(from, a.top, to - from, a.bottom - a.top);
        ctx.fillStyle = ink;
        ctx.textAlign = "right";
        ctx.fillText(b.text, to - 3, a.bottom - 5);
      }
      // Words of marks that lie close stand below each other.
      let end = -Infinity, row = 0;
      for (const m of marks) {
        const at = x.getPixelForValue(m.x);
        if (at < a.left - 1 || at > a.right + 1) continue;
        ctx.strokeStyle = ctx.fillStyle = m.quiet ? ink : bad;
        ctx.setLineDash([4, 3]);
        ctx.beginPath();
        ctx.moveTo(at, a.top);
        ctx.lineTo(at, a.bottom);
        ctx.stroke();
        ctx.setLineDash([]);
        const width = ctx.measureText(m.text).width, left = at + 4 + width > a.right;
        ctx.textAlign = left ? "right" : "left";
        row = (left ? at - 4 - width : at) < end ? (row + 1) % 4 : 0;
        end = Math.max(end, left ? at : at + 8 + width);
        ctx.fillText(m.text, left ? at - 4 : at + 4, a.top + 11 + 13 * row);
      }
      ctx.textAlign = "left";
      for (const r of rules) {
        if (r.y < y.min || r.y > y.max) continue;
        const at = y.getPixelForValue(r.y);
        ctx.strokeStyle = ctx.fillStyle = ink;
        ctx.setLineDash([4, 3]);
        ctx.beginPath();
        ctx.moveTo(a.left, at);
        ctx.lineTo(a.right, at);
        ctx.stroke();
        ctx.setLineDash([]);
        ctx.font = `12px ${Chart.defaults.font.family}`;
        ctx.strokeStyle = ground;
        ctx.lineWidth = 4;
        const place = [r.text, a.left + 8, at + 15 > a.bottom ? at - 6 : at + 15];
        ctx.strokeText(...place);
        ctx.fillText(...place);
      }
      ctx.restore();
    },
    afterDatasetsDraw(chart) {
      const { ctx, chartArea: a } = chart;
      ctx.save();
      ctx.lineWidth = 1.3;
      chart.data.datasets.forEach((set, i) => {
        const meta = chart.getDatasetMeta(i);
        if (meta.hidden || set.bare) return;
        ctx.strokeStyle = set.borderColor;
        set.data.forEach((p, j) => {
          const x = meta.data[j].x;
          if (p.low === null || p.high === null || x < a.left - 1 || x > a.right + 1) return;
          // On a logarithmic axis, what is not above 0 has no place: it lies below.
          const px = (v) => (meta.yScale.type === "logarithmic" && v <= 0 ? a.bottom + 99 : meta.yScale.getPixelForValue(v));
          whisker(ctx, x, px(p.high), px(p.low), a.top, a.bottom, (along, across) => [across, along]);
        });
      });
      ctx.restore();
    },
  };

  const barMarks = {
    id: "barMarks",
    afterDatasetsDraw(chart, _, { bars, parts, remarks, ink, quiet, ground }) {
      const { ctx, chartArea: a, scales: { x } } = chart;
      const shown = parts.map((_, i) => chart.isDatasetVisible(i));
      ctx.save();
      ctx.font = `11px ${Chart.defaults.font.family}`;
      ctx.textBaseline = "middle";
      bars.forEach((bar, row) => {
        const mid = chart.scales.y.getPixelForValue(row);
        let end = 0, top = true;
        for (const s of bar.segments) {
          if (!shown[s.part] || !(s.value > 0)) continue;
          const from = x.getPixelForValue(end), to = x.getPixelForValue(end + s.value);
          const left = Math.max(from, a.left), right = Math.min(to, a.right);
          if (right - left >= 12 && parts.length > 1) {
            // The part's number, for readers to whom two colours look alike.
            ctx.fillStyle = ground;
            ctx.textAlign = "center";
            ctx.fillText(String(s.part + 1), (left + right) / 2, mid + 0.5);
          }
          if (s.low !== null && s.high !== null && right > left) {
            const lo = x.getPixelForValue(end + s.low), hi = x.getPixelForValue(end + s.high);
            if (hi - lo > 3 && to <= a.right + 1) {
              ctx.strokeStyle = ink;
              ctx.lineWidth = 1;
              whisker(ctx, mid + (top ? -6 : 6), lo, hi, a.left, a.right, (along, across) => [along, across]);
              top = !top;
            }
          }
          end += s.value;
        }
        if (x.getPixelForValue(end) > a.right + 1) {
          // It goes on: an arrow at the frame.
          ctx.fillStyle = ink;
          ctx.beginPath();
          ctx.moveTo(a.right - 7, mid - 6);
          ctx.lineTo(a.right, mid);
          ctx.lineTo(a.right - 7, mid + 6);
          ctx.fill();
        }
        if (bar.mark !== null && bar.mark >= x.min && bar.mark <= x.max) {
          const at = x.getPixelForValue(bar.mark);
          ctx.fillStyle = ink;
          ctx.fillRect(at - 1, mid - 11, 2, 22);
        }
        ctx.fillStyle = ink;
        remarks.forEach((col, i) => {
          ctx.textAlign = col.right ? "right" : "left";
          ctx.fillText(bar.remarks[i], a.right + col.at, mid);
        });
      });
      ctx.fillStyle = quiet;
      remarks.forEach((col, i) => {
        ctx.textAlign = col.right ? "right" : "left";
        ctx.fillText(col.title, a.right + col.at, a.top - 8);
      });
      ctx.restore();
    },
  };

  // An axis shows the round places that the data names, and finds its own when
  // a zoom leaves fewer than two of them.
  const ticksOf = (axis, always) => ({
    afterBuildTicks(scale) {
      const inside = axis.ticks.filter((t) => t.label !== "" && t.value >= scale.min * (1 - 1e-9) && t.value <= scale.max * (1 + 1e-9));
      scale.named = always || (inside.length > 1 && scale.type === (axis.log ? "logarithmic" : "linear"));
      if (scale.named) scale.ticks = inside.map((t) => ({ value: t.value, label: t.label }));
    },
    callback(v) {
      if (this.named) return axis.ticks.find((t) => t.value === v)?.label ?? "";
      return Number(v.toPrecision(6)).toString();
    },
  });

  const zoomOf = (mode) => ({
    zoom: {
      drag: { enabled: true, borderWidth: 1, threshold: 6 },
      wheel: { enabled: true, modifierKey: "ctrl", speed: 0.1 },
      mode,
    },
  });

  const tip = (c) => ({
    backgroundColor: c.ground, titleColor: c.ink, bodyColor: c.ink, borderColor: c.quiet, borderWidth: 1,
    cornerRadius: 4, padding: 9, boxPadding: 5, usePointStyle: true, titleFont: { weight: "600" }, caretSize: 0, caretPadding: 10,
  });

  const scaleColors = (scale, c) => {
    scale.grid.color = c.line;
    scale.border.color = c.quiet;
    scale.ticks.color = c.ink;
    scale.title.color = c.ink;
  };

  const colors = () => ({ ink: color("ink"), quiet: color("quiet"), line: color("line"), ground: color("ground"), focus: color("focus") });

  function lineConfig(l) {
    const axis = (a, title, always) => {
      const { afterBuildTicks, callback } = ticksOf(a, always);
      return {
        type: a.log ? "logarithmic" : "linear", min: a.low, max: a.high, afterBuildTicks,
        title: { display: title !== "", text: title }, grid: {}, border: {}, ticks: { callback, autoSkip: true, maxRotation: 0 },
      };
    };
    const x = axis(l.x, l.x_title, l.x.log), y = axis(l.y, "", false);
    return {
      type: "line",
      data: {
        datasets: l.series.map((s) => ({
          label: s.label, look: s.look, bare: s.bare, level: s.level, shift: s.shift, clip: 6,
          data: s.points, borderWidth: s.level ? 1.6 : s.bare || s.small ? 1 : 2, tension: 0,
          borderDash: s.level ? [] : s.bare ? [2, 3] : looks[s.look].dash,
          pointStyle: s.bare ? false : looks[s.look].glyph, pointRadius: s.small ? 1.5 : 4.5, pointHoverRadius: s.small ? 4 : 6, pointBorderWidth: 1.6,
        })),
      },
      options: {
        parsing: { xAxisKey: "x", yAxisKey: "y" },
        interaction: { mode: "x", intersect: false },
        scales: { x, y },
        plugins: {
          legend: { display: false }, zoom: zoomOf("xy"), lineMarks: { rules: l.rules ?? [], marks: l.marks ?? [], bands: l.bands ?? [] },
          tooltip: {
            // A level has no values of its own.
            filter: (item) => !item.dataset.level,
            callbacks: {
              title: (items) => (items.length ? `${l.x_title.split(" (")[0]} ${items[0].raw.x_text}` : ""),
              label: (item) => ` ${item.dataset.label}: ${item.raw.text}`,
            },
          },
        },
      },
      plugins: [lineMarks],
    };
  }

  function paintLines(chart) {
    const c = colors();
    for (const set of chart.data.datasets) {
      const own = set.bare && !set.level ? c.quiet : color(`look-${set.look}`);
      set.borderColor = set.pointBorderColor = own;
      set.backgroundColor = set.pointBackgroundColor = looks[set.look].filled ? own : c.ground;
    }
    Object.assign(chart.options.plugins.lineMarks, { ink: c.quiet, ground: c.ground, bad: color("bad"), raised: color("raised") });
    paint(chart, c);
  }

  function barConfig(b, panel) {
    const parts = b.parts;
    return {
      type: "bar",
      data: {
        labels: panel.bars.map((r) => r.label),
        datasets: parts.map((p, i) => ({
          label: p.name, part: p.look, stack: "all", maxBarThickness: 17, categoryPercentage: 0.86, barPercentage: 0.9,
          data: panel.bars.map((r) => r.segments.find((s) => s.part === i)?.value ?? null),
          borderWidth: { right: 1 }, borderSkipped: false,
        })),
      },
      options: {
        indexAxis: "y",
        layout: { padding: { top: 18, right: 8 } },
        interaction: { mode: "nearest", axis: "y", intersect: false },
        scales: {
          x: {
            type: "linear", stacked: true, min: 0, max: panel.high, grid: {}, border: {},
            title: {}, ticks: { maxRotation: 0, callback: (v) => (v === 0 ? "0" : `${Number(v.toPrecision(6))} ${panel.unit}`), includeBounds: false },
          },
          y: { type: "category", stacked: true, grid: { display: false }, border: {}, title: {}, ticks: { autoSkip: false, crossAlign: "far" } },
        },
        plugins: {
          legend: { display: false }, zoom: zoomOf("x"), barMarks: { bars: panel.bars, parts, remarks: [] },
          tooltip: {
            mode: "index",
            filter: (item) => panel.bars[item.dataIndex].segments.some((s) => s.part === item.datasetIndex),
            callbacks: {
              title: (items) => (items.length ? [panel.title, panel.bars[items[0].dataIndex].label].filter((t) => t !== "").join(", ") : ""),
              label: (item) => ` ${item.dataset.label}: ${panel.bars[item.dataIndex].segments.find((s) => s.part === item.datasetIndex).text}`,
              footer: (items) => (items.length ? (b.remarks ?? []).map((t, i) => `${t}: ${panel.bars[items[0].dataIndex].remarks[i]}`) : ""),
            },
          },
        },
      },
      plugins: [barMarks],
    };
  }

  // The words beside bars stand where there is room for them; a tooltip and the
  // table have them always.
  function placeRemarks(chart, b, panel) {
    const ctx = chart.ctx, cols = [];
    ctx.save();
    ctx.font = `11px ${Chart.defaults.font.family}`;
    let at = 14;
    (b.remarks ?? []).forEach((title, i) => {
      const texts = [title, ...panel.bars.map((r) => r.remarks[i])];
      const width = Math.max(...texts.map((t) => ctx.measureText(t).width));
      const right = title !== "repaid";
      cols.push({ title, right, at: right ? at + width : at });
      at += width + 14;
    });
    ctx.restore();
    const fits = chart.canvas.parentElement.clientWidth - at > 420;
    chart.options.layout.padding.right = fits ? at : 8;
    chart.options.plugins.barMarks.remarks = fits ? cols : [];
  }

  function paintBars(chart) {
    const c = colors();
    for (const set of chart.data.datasets) {
      set.backgroundColor = color(`part-${set.part}`);
      set.borderColor = c.ground;
    }
    Object.assign(chart.options.plugins.barMarks, { ink: c.ink, quiet: c.quiet, ground: c.ground });
    chart.options.plugins.tooltip.footerColor = c.ink;
    chart.options.plugins.tooltip.footerFont = { weight: "normal" };
    paint(chart, c);
  }

  function paint(chart, c) {
    for (const scale of Object.values(chart.options.scales)) scaleColors(scale, c);
    Object.assign(chart.options.plugins.tooltip, tip(c));
    Object.assign(chart.options.plugins.zoom.zoom.drag, { borderColor: c.focus, backgroundColor: c.focus.replace("rgb(", "rgba(").replace(")", ", 0.15)") });
    chart.update();
  }

  // A legend's key, as SVG so that it follows the theme by itself.
  const svg = (tag, attributes) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };
  function lineKey(s) {
    const look = looks[s.look], stroke = s.bare && !s.level ? "var(--quiet)" : `var(--look-${s.look})`;
    const out = svg("svg", { width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" });
    out.append(svg("line", { x1: 1, x2: 33, y1: 7, y2: 7, "stroke-width": s.bare ? 1 : 2, "stroke-dasharray": (s.level ? [] : s.bare ? [2, 3] : look.dash).join(" "), stroke }));
    if (!s.bare) {
      const shape = {
        circle: ["circle", { cx: 17, cy: 7, r: 4 }], rect: ["rect", { x: 13.5, y: 3.5, width: 7, height: 7 }],
        triangle: ["path", { d: "M17 2.5 L21.5 11 L12.5 11 Z" }], cross: ["path", { d: "M17 3 V11 M13 7 H21" }],
        crossRot: ["path", { d: "M14 4 L20 10 M20 4 L14 10" }],
      }[look.glyph];
      out.append(svg(shape[0], { ...shape[1], stroke, "stroke-width": 1.6, fill: look.filled ? stroke : "var(--ground)" }));
    }
    return out;
  }
  function partKey(p, i, many) {
    const out = svg("svg", { width: 18, height: 14, viewBox: "0 0 18 14", "aria-hidden": "true" });
    out.append(svg("rect", { x: 0, y: 0, width: 18, height: 14, fill: `var(--part-${p.look})` }));
    if (many) {
      const t = svg("text", { x: 9, y: 11, "text-anchor": "middle", "font-size": 11, fill: "var(--ground)" });
      t.textContent = String(i + 1);
      out.append(t);
    }
    return out;
  }

  const pressed = (b) => b.getAttribute("aria-pressed") === "true";

  // Reading by keyboard: the places of a chart in order, each with the points
  // that stand there.
  function stopsOf(chart) {
    const stops = new Map();
    chart.data.datasets.forEach((set, datasetIndex) => {
      if (!chart.isDatasetVisible(datasetIndex) || set.level) return;
      set.data.forEach((p, index) => {
        if (p === null) return;
        const at = typeof p === "number" ? index : p.x;
        if (!stops.has(at)) stops.set(at, []);
        stops.get(at).push({ datasetIndex, index });
      });
    });
    return [...stops.entries()].sort((a, b) => a[0] - b[0]).map((e) => e[1]);
  }

  const instances = [];
  const specs = new Map([...(data.charts ?? []), ...(data.trends ?? [])].map((c) => [c.name, c]));
  const build = (figure) => {
    const spec = specs.get(figure.dataset.chart);
    const plots = figure.querySelector(".plots"), tools = figure.querySelector(".tools");
    const legend = figure.querySelector(".legend"), readout = figure.querySelector(".readout");
    const reset = figure.querySelector('[data-do="reset"]'), log = figure.querySelector('[data-do="log"]');
    plots.hidden = tools.hidden = false;
    // The title of y stands above it, to be read without turning the head.
    if (spec.lines) plots.append(make("p", { class: "axis" }, spec.lines.y_title));
    const panels = spec.lines ? [null] : spec.bars.panels;
    const charts = panels.map((panel, i) => {
      const plot = plots.appendChild(make("div", {
        class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart",
        "aria-label": panel && panel.title !== "" ? `${spec.title} ${panel.title}` : spec.title, "aria-describedby": "keys",
      }));
      if (panel && panel.title !== "") plot.append(make("h4", {}, panel.title));
      const box = plot.appendChild(make("div", { class: "canvas" }));
      box.style.height = panel ? `${panel.bars.length * 24 + 48}px` : "380px";
      const canvas = box.appendChild(make("canvas", { "aria-hidden": "true" }));
      const config = panel ? barConfig(spec.bars, panel) : lineConfig(spec.lines);
      config.options.plugins.zoom.zoom.onZoomComplete = () => settle();
      const chart = new Chart(canvas, config);
      const first = Object.fromEntries(Object.entries(chart.scales).map(([k, s]) => [k, { min: s.options.min, max: s.options.max }]));
      const whole = () => {
        for (const [k, s] of Object.entries(first)) Object.assign(chart.options.scales[k], { min: s.min, max: s.max });
        if (log && !pressed(log)) chart.options.scales.y.min = spec.lines.rules?.length ? spec.lines.y.low : 0;
        chart.resetZoom("none");
        for (const [k, s] of Object.entries(first)) Object.assign(chart.options.scales[k], { min: s.min, max: s.max });
        if (log && !pressed(log)) chart.options.scales.y.min = spec.lines.rules?.length ? spec.lines.y.low : 0;
        chart.update();
      };
      canvas.addEventListener("dblclick", () => { whole(); settle(); });
      let stop = -1;
      const read = (to) => {
        const stops = stopsOf(chart);
        if (stops.length === 0) return;
        stop = Math.min(Math.max(to, 0), stops.length - 1);
        const active = stops[stop];
        const e = chart.getDatasetMeta(active[0].datasetIndex).data[active[0].index];
        chart.setActiveElements(active);
        chart.tooltip.setActiveElements(active, { x: e.x, y: e.y });
        chart.update();
        const t = chart.tooltip;
        readout.textContent = [...(t.title ?? []), ...(t.body ?? []).map((b) => b.lines.join(" ").trim()), ...(t.footer ?? [])].join("; ");
      };
      const leave = () => {
        stop = -1;
        readout.textContent = "";
        chart.setActiveElements([]);
        chart.tooltip.setActiveElements([], { x: 0, y: 0 });
        chart.update();
      };
      plot.addEventListener("blur", leave);
      plot.addEventListener("keydown", (e) => {
        if (e.ctrlKey || e.metaKey || e.altKey) return;
        const step = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[e.key];
        if (step && e.shiftKey) {
          chart.pan({ x: step[0], y: panel ? 0 : step[1] }, undefined, "none");
          settle();
        } else if (e.key === "ArrowRight" || (panel && e.key === "ArrowDown")) read(stop + 1);
        else if (e.key === "ArrowLeft" || (panel && e.key === "ArrowUp")) read(stop < 0 ? Infinity : stop - 1);
        else if (e.key === "Home") read(0);
        else if (e.key === "End") read(Infinity);
        else if (e.key === "+" || e.key === "=") { chart.zoom(1.25, "none"); settle(); }
        else if (e.key === "-") { chart.zoom(0.8, "none"); settle(); }
        else if (e.key === "0") { whole(); settle(); }
        else if (e.key === "Escape") leave();
        else if ((e.key === "l" || e.key === "L") && log) log.click();
        else return;
        e.preventDefault();
      });
      const draw = () => {
        if (panel) placeRemarks(chart, spec.bars, panel);
        (panel ? paintBars : paintLines)(chart);
      };
      chart.options.onResize = () => { if (panel) placeRemarks(chart, spec.bars, panel); };
      draw();
      redraws.push(draw);
      instances.push(chart);
      return { chart, whole };
    });
    if (spec.bars) plots.append(make("p", { class: "axis below" }, spec.bars.x_title));
    const settle = () => {
      reset.disabled = !charts.some(({ chart }) => chart.isZoomedOrPanned());
    };
    reset.addEventListener("click", () => { charts.forEach((c) => c.whole()); settle(); });
    if (log) {
      log.addEventListener("click", () => {
        log.setAttribute("aria-pressed", String(!pressed(log)));
        charts[0].chart.options.scales.y.type = pressed(log) ? "logarithmic" : "linear";
        charts[0].whole();
        settle();
      });
    }
    const entries = spec.lines ? spec.lines.series : spec.bars.parts;
    entries.forEach((s, i) => {
      const b = legend.appendChild(make("button", { type: "button", "aria-pressed": "true" }));
      b.append(spec.lines ? lineKey(s) : partKey(s, i, entries.length > 1), make("span", {}, spec.lines ? s.label : s.name));
      b.addEventListener("click", () => {
        b.setAttribute("aria-pressed", String(!pressed(b)));
        for (const { chart } of charts) chart.setDatasetVisibility(i, pressed(b)), chart.update();
      });
    });
    if (spec.bars && spec.bars.mark !== "") {
      const key = legend.appendChild(make("span", { class: "key" }));
      const mark = svg("svg", { width: 8, height: 14, viewBox: "0 0 8 14", "aria-hidden": "true" });
      mark.append(svg("rect", { x: 3, y: 0, width: 2, height: 14, fill: "var(--ink)" }));
      key.append(mark, make("span", {}, spec.bars.mark));
    }
  };
  for (const figure of document.querySelectorAll("figure.chart")) {
    // One in a fold has no width before it is unfolded.
    const fold = figure.closest("details");
    if (!fold || fold.open) build(figure);
    else fold.addEventListener("toggle", () => build(figure), { once: true });
  }

  // ---- timelines

  // Three significant digits with a unit, as the tables have them: half is
  // rounded to even, where toFixed rounds it up.
  const fixed = (v, places) => {
    const by = 10 ** places, twice = v * by * 2;
    if (Number.isInteger(v * 8) && Number.isInteger(twice) && twice % 2 !== 0) {
      const floor = Math.floor(v * by);
      return ((floor % 2 === 0 ? floor : floor + 1) / by).toFixed(places);
    }
    return v.toFixed(places);
  };
  const digits = (v) => {
    const a = Math.abs(v);
    return a === 0 ? "0" : fixed(v, a < 9.995 ? 2 : a < 99.95 ? 1 : 0);
  };
  const duration = (ns) => {
    const a = Math.abs(ns);
    const [by, unit] = a < 999.5 ? [1, "ns"] : a < 999.5e3 ? [1e3, "us"] : a < 999.5e6 ? [1e6, "ms"] : [1e9, "s"];
    return `${digits(ns / by)} ${unit}`;
  };
  // In full as well: who zooms to a gap wants its nanoseconds.
  const precisely = (ns) => (Math.abs(ns) < 999.5 ? `${ns} ns` : `${duration(ns)} (${ns} ns)`);

  // Labels of an axis: round places, all in one unit.
  const axisTicks = (from, to, room) => {
    const rough = (to - from) / room, power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough));
    const reach = Math.max(Math.abs(from), Math.abs(to));
    const [by, unit] = reach < 1e3 ? [1, "ns"] : reach < 1e6 ? [1e3, "us"] : reach < 1e9 ? [1e6, "ms"] : [1e9, "s"];
    const places = Math.max(0, Math.round(Math.log10(by)) - Math.floor(Math.log10(step) + 1e-9));
    const out = [];
    for (let i = Math.ceil(from / step); i * step <= to; i++) out.push({ at: i * step, label: `${((i * step) / by).toFixed(places)} ${unit}` });
    return out;
  };

  const gutter = 104, margin = 10, axisHeight = 20, rowGap = 4, minView = 20;
  // The device's lane is higher: its causes are to be read.
  const deviceHeight = 30, rowHeight = 17;

  // A lane's pieces lie in columns: start, end and part, a place among colours.
  // Items are what is read: spans as recorded, gaps with their parts.
  const prepare = (t) => {
    // Go writes a list that is empty as null.
    const lists = (of) => Object.fromEntries(Object.entries(of).map(([k, v]) => [k, v ?? []]));
    const lanes = (t.lanes ?? []).map(lists).map((l) => ({
      title: l.title, host: l.clock === "host", height: rowHeight, spans: l,
      start: l.start_ns, end: l.start_ns.map((s, i) => s + l.length_ns[i]), part: l.kind, count: l.start_ns.length,
    }));
    const g = lists(t.gaps), device = { title: t.host ? "device" : "GPU", height: deviceHeight, gaps: g, start: [], end: [], part: [], count: g.start_ns.length };
    device.first = g.start_ns;
    device.last = g.start_ns.map((s, i) => s + g.late_ns[i] + g.api_ns[i] + g.after_ns[i] + g.unlinked_ns[i]);
    let at = t.from_ns;
    const piece = (to, part) => {
      if (to > at) device.start.push(at), device.end.push(to), device.part.push(part);
      at = Math.max(at, to);
    };
    for (let i = 0; i < device.count; i++) {
      piece(g.start_ns[i], busyPart);
      [g.late_ns, g.api_ns, g.after_ns, g.unlinked_ns].forEach((ns, k) => piece(at + ns[i], firstCause + k));
    }
    piece(t.length_ns, busyPart);
    const hosts = lanes.filter((l) => l.host).length;
    lanes.splice(hosts, 0, device);
    let y = 6;
    for (const l of lanes) {
      l.y = y;
      y += l.height + rowGap;
      l.from = l.gaps ? l.first : l.start;
      l.to = l.gaps ? l.last : l.end;
    }
    return { t, lanes, height: y + axisHeight };
  };

  const kinds = data.span_kinds ?? [], causes = data.gap_causes ?? [];
  const firstCause = kinds.length, busyPart = 0;
  const partNames = [...kinds, ...causes];
  const partColor = (part) => (part < firstCause ? `span-${part}` : `gap-${part - firstCause}`);

  // The first place whose piece ends behind a time; pieces are in order.
  const firstAfter = (ends, ns) => {
    let lo = 0, hi = ends.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (ends[mid] <= ns) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  };

  const textOf = (lane, i) => {
    if (lane.spans) {
      const s = lane.spans;
      return (t) => [t.names[s.name[i]], `${precisely(s.length_ns[i])}, ${kinds[s.kind[i]]}`, `starts at ${precisely(s.start_ns[i])}`];
    }
    const g = lane.gaps;
    return (t) => {
      const lines = [`Gap of ${precisely(lane.last[i] - lane.first[i])}`, `starts at ${precisely(lane.first[i])}`];
      [g.late_ns, g.api_ns, g.after_ns, g.unlinked_ns].forEach((ns, k) => {
        if (ns[i] === 0) return;
        let line = `${causes[k]}: ${precisely(ns[i])}`;
        if (k === 0 && g.doing_ns[i] > 0) line += `, of it ${precisely(g.doing_ns[i])} in ${t.names[g.doing[i]]}`;
        if (k === 2 && g.in_graph[i]) line += ", inside a graph";
        lines.push(line);
      });
      lines.push(`after ${t.names[g.before[i]]}, before ${t.names[g.after[i]]}`);
      return lines;
    };
  };

  for (const figure of document.querySelectorAll("figure.timeline")) {
    const first = Number(figure.dataset.first);
    const boxes = [...figure.querySelectorAll(".lanes")];
    const tracks = boxes.map((_, i) => prepare(data.timelines[first + i]));
    const whole = {
      from: Math.min(...tracks.map(({ t }) => t.from_ns)),
      to: Math.max(...tracks.map(({ t }) => t.length_ns)),
    };
    const view = { ...whole };
    const tools = figure.querySelector(".tools"), reset = figure.querySelector('[data-do="reset"]');
    tools.hidden = false;

    const legend = figure.querySelector(".legend"), used = new Set(tracks.flatMap(({ lanes }) => lanes.flatMap((l) => l.part)));
    partNames.forEach((name, part) => {
      if (!used.has(part)) return;
      const key = legend.appendChild(make("span", { class: "key" }));
      const swatch = svg("svg", { width: 20, height: 14, viewBox: "0 0 20 14", "aria-hidden": "true" });
      const number = svg("text", { x: 10, y: 11, "text-anchor": "middle", "font-size": 11, fill: "var(--ground)" });
      number.textContent = String(part + 1);
      swatch.append(svg("rect", { x: 0, y: 0, width: 20, height: 14, fill: `var(--${partColor(part)})` }), number);
      key.append(swatch, make("span", {}, name));
    });

    let frame = 0;
    const drawAll = () => {
      frame = 0;
      plots.forEach((p) => p.draw());
      reset.disabled = view.from === whole.from && view.to === whole.to;
    };
    const soon = () => { if (frame === 0) frame = requestAnimationFrame(drawAll); };
    // A view lies inside the whole and is at least so many ns long.
    const show = (from, to) => {
      const length = Math.min(Math.max(to - from, minView), whole.to - whole.from);
      view.from = Math.min(Math.max(from, whole.from), whole.to - length);
      view.to = view.from + length;
      soon();
    };
    const zoom = (by, at = (view.from + view.to) / 2) => {
      const length = Math.max((view.to - view.from) / by, minView), share = (at - view.from) / (view.to - view.from);
      show(at - share * length, at - share * length + length);
    };
    const pan = (share) => {
      const by = share * (view.to - view.from);
      show(view.from + by, view.to + by);
    };

    const plots = tracks.map((track, n) => {
      const { t, lanes } = track, box = boxes[n], readout = box.nextElementSibling;
      box.hidden = false;
      for (const [k, v] of Object.entries({
        tabindex: "0", role: "group", "aria-roledescription": "timeline", "aria-label": `${t.cell}, ${t.configuration}: ${(t.facts ?? []).join("; ")}`, "aria-describedby": "timeline-keys",
      })) box.setAttribute(k, v);
      const canvas = box.appendChild(make("canvas", { "aria-hidden": "true" }));
      const tip = box.appendChild(make("div", { class: "tip", "aria-hidden": "true" }));
      tip.hidden = true;
      let read = null, drag = null; // what is read: a lane and a place in it
      canvas.style.height = `${track.height}px`;

      const width = () => Math.max(box.clientWidth - gutter - margin, 50);
      const xOf = (ns) => gutter + ((ns - view.from) / (view.to - view.from)) * width();
      const nsOf = (x) => view.from + ((x - gutter) / width()) * (view.to - view.from);

      const drawLane = (ctx, lane, colors, scale) => {
        const begin = firstAfter(lane.end, view.from), parts = partNames.length;
        // Where pieces are too many to be told apart, shares of a wider column are
        // read more easily.
        const crowded = firstAfter(lane.start, view.to) - begin > width() / 4;
        const per = crowded ? 1 / (lane.gaps ? 4 : 2) : scale, columns = Math.ceil(width() * per);
        const at = (ns) => ((ns - view.from) / (view.to - view.from)) * width() * per;
        const shares = new Map();
        // Wide pieces are rectangles, narrow ones shares of columns: a column of
        // eight kernels and their gaps says how much of it was busy.
        for (let i = begin; i < lane.start.length && lane.start[i] < view.to; i++) {
          const from = Math.max(at(lane.start[i]), 0), to = Math.min(at(lane.end[i]), width() * per);
          const rect = (a, b) => {
            ctx.fillStyle = colors.parts[lane.part[i]];
            ctx.fillRect(gutter + a / per, lane.y, (b - a) / per, lane.height);
          };
          if (!crowded && to - from >= 3) {
            rect(from, to);
            continue;
          }
          const head = Math.ceil(from), tail = Math.floor(to);
          if (tail > head) rect(head, tail);
          const add = (column, share) => {
            if (share <= 0) return;
            if (!shares.has(column)) shares.set(column, new Float64Array(parts));
            shares.get(column)[lane.part[i]] += share;
          };
          if (head > tail) add(tail, to - from);
          else add(head - 1, head - from), add(tail, to - tail);
        }
        for (const [column, share] of shares) {
          let y = lane.y + lane.height;
          share.forEach((v, part) => {
            if (v === 0) return;
            ctx.fillStyle = colors.parts[part];
            ctx.fillRect(gutter + column / per, y - v * lane.height, 1 / per, v * lane.height);
            y -= v * lane.height;
          });
        }
        ctx.font = `10px ${Chart.defaults.font.family}`;
        ctx.textAlign = "center";
        for (let i = begin; i < lane.start.length && lane.start[i] < view.to; i++) {
          const from = Math.max(xOf(lane.start[i]), gutter), to = Math.min(xOf(lane.end[i]), gutter + width());
          if (to - from < 4) continue;
          ctx.fillStyle = colors.ground;
          if (lane.start[i] > view.from) ctx.fillRect(from, lane.y, 1, lane.height);
          if (to - from >= 16) ctx.fillText(String(lane.part[i] + 1), (from + to) / 2, lane.y + lane.height / 2 + 0.5);
        }
      };

      const draw = () => {
        box.dataset.view = `${view.from} ${view.to}`;
        const scale = devicePixelRatio || 1, ctx = canvas.getContext("2d"), c = colors();
        const w = Math.round(box.clientWidth * scale), h = Math.round(track.height * scale);
        if (canvas.width !== w || canvas.height !== h) canvas.width = w, canvas.height = h;
        c.raised = color("raised");
        c.parts = partNames.map((_, part) => color(partColor(part)));
        ctx.setTransform(scale, 0, 0, scale, 0, 0);
        ctx.clearRect(0, 0, box.clientWidth, track.height);
        ctx.textBaseline = "middle";
        const bottom = track.height - axisHeight, right = gutter + width();
        // Before the step and behind it.
        ctx.fillStyle = c.raised;
        for (const [from, to] of [[-Infinity, Math.max(view.from, 0)], [t.length_ns, Infinity]]) {
          const a = Math.max(gutter, xOf(Math.max(from, view.from))), b = Math.min(right, xOf(Math.min(to, view.to)));
          if (b > a) ctx.fillRect(a, 0, b - a, bottom);
        }
        for (const tick of axisTicks(view.from, view.to, Math.max(3, Math.floor(width() / 110)))) {
          const x = xOf(tick.at);
          ctx.fillStyle = c.line;
          ctx.fillRect(Math.round(x), 0, 1, bottom + 3);
          ctx.fillStyle = c.ink;
          ctx.font = `11px ${Chart.defaults.font.family}`;
          ctx.textAlign = x > right - 30 ? "right" : x < gutter + 20 ? "left" : "center";
          ctx.fillText(tick.label, x, bottom + 12);
        }
        for (const lane of lanes) {
          ctx.font = `12px ${Chart.defaults.font.family}`;
          ctx.textAlign = "left";
          ctx.fillStyle = c.ink;
          let title = lane.title;
          while (title.length > 3 && ctx.measureText(title).width > gutter - 8) title = `${title.slice(0, -2)}…`;
          ctx.fillText(title, 0, lane.y + lane.height / 2 + 0.5);
          drawLane(ctx, lane, c, scale);
        }
        ctx.fillStyle = c.ink;
        for (const end of [0, t.length_ns]) {
          if (end >= view.from && end <= view.to) ctx.fillRect(Math.min(Math.round(xOf(end)), right - 1), 0, 1, bottom);
        }
        if (read) {
          const l = read.lane, a = Math.max(xOf(l.from[read.i]), gutter - 3), b = Math.min(xOf(l.to[read.i]), right + 3);
          if (b >= a) {
            ctx.strokeStyle = c.ink;
            ctx.lineWidth = 2;
            ctx.strokeRect(a - 1, l.y - 2, Math.max(b - a, 1) + 2, l.height + 4);
          }
        }
        if (drag && drag.moved) {
          ctx.fillStyle = c.focus.replace("rgb(", "rgba(").replace(")", ", 0.2)");
          ctx.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), bottom);
        }
      };

      const tell = (lane, i, x) => {
        const lines = textOf(lane, i)(t);
        tip.replaceChildren(...lines.map((line) => make("p", {}, line)));
        tip.hidden = false;
        const room = box.clientWidth - tip.offsetWidth;
        tip.style.left = `${Math.min(Math.max(x + 14, 0), Math.max(room, 0))}px`;
        tip.style.top = `${lane.y + lane.height + 8}px`;
        return lines;
      };
      const leave = () => {
        read = null;
        tip.hidden = true;
        readout.textContent = "";
        soon();
      };
      const choose = (lane, i) => {
        if (!lane || lane.count === 0) return;
        read = { lane, i: Math.min(Math.max(i, 0), lane.count - 1) };
        const from = lane.from[read.i], to = lane.to[read.i], length = view.to - view.from;
        // What is read is to be seen.
        if (to < view.from || from > view.to || (to - from < length && (from < view.from || to > view.to))) show((from + to) / 2 - length / 2, (from + to) / 2 + length / 2);
        readout.textContent = `${lane.title}: ${tell(lane, read.i, Math.min(xOf(to), gutter + width())).join("; ")}`;
        soon();
      };
      const zoomTo = () => {
        if (!read) return;
        const from = read.lane.from[read.i], to = read.lane.to[read.i], around = Math.max((to - from) * 0.4, 10);
        show(from - around, to + around);
        choose(read.lane, read.i);
      };
      // A lane's item nearest to a time.
      const nearest = (lane, ns) => {
        const i = Math.min(firstAfter(lane.to, ns), lane.count - 1);
        return i > 0 && lane.from[i] - ns > ns - lane.to[i - 1] ? i - 1 : i;
      };
      const device = lanes.find((l) => l.gaps);
      const usual = device.count ? device : (lanes.find((l) => l.count) ?? device);
      // Of the step itself, as in the table.
      const byLength = [...device.first.keys()].filter((i) => device.first[i] >= 0).sort((a, b) => device.last[b] - device.first[b] - (device.last[a] - device.first[a]) || a - b);
      const longest = () => {
        const at = read && read.lane === device ? byLength.indexOf(read.i) : -1;
        choose(device, byLength[(at + 1) % byLength.length]);
      };

      box.addEventListener("keydown", (e) => {
        if (e.ctrlKey || e.metaKey || e.altKey) return;
        const lane = read ? lanes.indexOf(read.lane) : -1;
        const along = { ArrowLeft: -1, ArrowRight: 1 }[e.key], across = { ArrowUp: -1, ArrowDown: 1 }[e.key];
        if (e.shiftKey && along) pan(0.2 * along);
        else if (e.shiftKey && across) return;
        else if (along) {
          if (read) choose(read.lane, read.i + along);
          else choose(usual, firstAfter(usual.from, view.from - 1));
        } else if (across) {
          const to = lanes[read ? lane + across : 0];
          if (to && to.count) choose(to, nearest(to, read ? (Math.max(read.lane.from[read.i], view.from) + Math.min(read.lane.to[read.i], view.to)) / 2 : view.from));
        } else if (e.key === "Home") choose(read ? read.lane : usual, 0);
        else if (e.key === "End") choose(read ? read.lane : usual, Infinity);
        else if (e.key === "g" || e.key === "G") { if (byLength.length) longest(); }
        else if (e.key === "Enter") zoomTo();
        else if (e.key === "+" || e.key === "=") zoom(1.5, read ? (read.lane.from[read.i] + read.lane.to[read.i]) / 2 : undefined);
        else if (e.key === "-") zoom(1 / 1.5);
        else if (e.key === "0") show(whole.from, whole.to);
        else if (e.key === "Escape") leave();
        else return;
        e.preventDefault();
      });
      box.addEventListener("blur", leave);

      const under = (e) => {
        const r = canvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
        const lane = lanes.find((l) => y >= l.y - 2 && y < l.y + l.height + 2);
        if (!lane || x < gutter || x > gutter + width() || lane.count === 0) return { x };
        const ns = nsOf(x), i = nearest(lane, ns), slack = (3 / width()) * (view.to - view.from);
        return lane.from[i] - slack <= ns && ns <= lane.to[i] + slack ? { x, lane, i } : { x };
      };
      const clamp = (x) => Math.min(Math.max(x, gutter), gutter + width());
      canvas.addEventListener("pointerdown", (e) => {
        if (e.button !== 0 || e.pointerType === "touch") return;
        canvas.setPointerCapture(e.pointerId);
        drag = { from: clamp(under(e).x), to: clamp(under(e).x), moved: false };
      });
      canvas.addEventListener("pointermove", (e) => {
        const { x, lane, i } = under(e);
        if (drag) {
          drag.to = clamp(x);
          drag.moved = drag.moved || Math.abs(drag.to - drag.from) > 5;
          tip.hidden = true;
          return soon();
        }
        if (lane) tell(lane, i, x);
        else tip.hidden = true;
      });
      canvas.addEventListener("pointerup", (e) => {
        const was = drag, { lane, i } = under(e);
        drag = null;
        if (was && was.moved) show(nsOf(Math.min(was.from, was.to)), nsOf(Math.max(was.from, was.to)));
        else if (lane) box.focus(), choose(lane, i);
        soon();
      });
      canvas.addEventListener("pointercancel", () => { drag = null; soon(); });
      canvas.addEventListener("pointerleave", () => { if (!drag) tip.hidden = true; });
      canvas.addEventListener("dblclick", () => show(whole.from, whole.to));
      // A wheel alone scrolls the page.
      canvas.addEventListener("wheel", (e) => {
        if (e.ctrlKey) zoom(Math.exp(-Math.max(-1, Math.min(1, e.deltaY / 100)) * 0.35), nsOf(clamp(under(e).x)));
        else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || e.deltaY) / 1000);
        else return;
        e.preventDefault();
      }, { passive: false });
      new ResizeObserver(soon).observe(box);
      return { draw, box, device, longest, byLength };
    });

    figure.querySelector('[data-do="longest"]').addEventListener("click", () => {
      let best = null;
      for (const p of plots) {
        const i = p.byLength[0];
        const ns = i === undefined ? -1 : p.device.last[i] - p.device.first[i];
        if (ns >= 0 && (!best || ns > best.ns)) best = { p, ns };
      }
      if (!best) return;
      best.p.box.focus();
      best.p.box.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
      best.p.longest();
      best.p.box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    });
    reset.addEventListener("click", () => show(whole.from, whole.to));
    drawAll();
    redraws.push(drawAll);
  }

  // Paper has a width of its own and a light ground.
  const resize = () => instances.forEach((c) => c.resize());
  addEventListener("beforeprint", () => { redraw(); resize(); });
  addEventListener("afterprint", () => { redraw(); resize(); });
  // beforeprint comes before the paper's colours are in force.
  matchMedia("print").addEventListener("change", () => { redraw(); resize(); });
})();
