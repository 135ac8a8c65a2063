"use strict";
/* Small line charts over time, as SVG. Where nothing is known the line has a gap. */
const TimeChart = (() => {
  const { make, number, short, clock, hour } = Parts;
  const H = 140, WIDE_MIN = 260, WIDE_MAX = 900, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 20, NUMBERS_SHOWN = 60;
  const svg = (kind, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  /* The next of 1, 2, 5, 10, 20, ... that is not below. */
  const roof = (x) => {
    if (!(x > 0)) return 1;
    const power = 10 ** Math.floor(Math.log10(x));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= x * 0.999);
  };
  const amount = (x) => (x >= 1e6 ? `${short(x / 1e6)}M` : x >= 1e4 ? `${short(x / 1e3)}k` : `${short(x)}`);
  const path = (values, x, y) => {
    let d = "", dots = [], open = false;
    values.forEach((value, n) => {
      if (value === null) { open = false; return; }
      const lone = !open && (values[n + 1] ?? null) === null;
      if (lone) dots.push([x(n), y(value)]);
      else d += `${open ? "L" : "M"}${x(n).toFixed(1)} ${y(value).toFixed(1)}`;
      open = true;
    });
    return { d, dots };
  };
  const spoken = (line, unit) => {
    const found = line.values.filter((value) => value !== null);
    if (!found.length) return `${line.name}: nothing known`;
    return `${line.name}: last ${amount(found.at(-1))}${unit}, least ${amount(Math.min(...found))}${unit}, most ${amount(Math.max(...found))}${unit}`;
  };

  /* A figure. `lines`: name and values, the oldest first; each is one of at most two.
     `width`: in pixels, about. */
  const draw = (title, unit, lines, { step_ms, end_ms, width }) => {
    const W = Math.min(WIDE_MAX, Math.max(WIDE_MIN, width));
    const points = Math.max(0, ...lines.map((line) => line.values.length));
    const all = lines.flatMap((line) => line.values).filter((value) => value !== null);
    const begin_ms = end_ms - points * step_ms, top = roof(Math.max(0, ...all));
    const head = make("figcaption", {}, make("strong", {}, title), ...lines.flatMap((line, n) => {
      const last = line.values.at(-1) ?? undefined; // an older one is not what is now
      return [" ", make("span", { class: `key line-${n}` }, lines.length > 1 ? `${line.name} ` : "", last === undefined ? "not known now" : `${amount(last)}${unit}`)];
    }));
    if (!all.length) return make("figure", { class: "chart" }, head, make("p", { class: "empty" }, "Nothing is known in this time."));
    const x = (n) => LEFT + ((n + 0.5) / points) * (W - LEFT - RIGHT);
    const y = (value) => H - BOTTOM - (Math.min(value, top) / top) * (H - TOP - BOTTOM);
    const words = `${title}, ${clock(begin_ms)} to ${clock(end_ms)}. ${lines.map((line) => spoken(line, unit)).join("; ")}.`;
    const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": words });
    for (const value of [0, top / 2, top]) {
      drawing.append(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value) }));
      drawing.append(svg("text", { class: "axis", x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, amount(value)));
    }
    const near = points * step_ms < 900_000 ? clock : hour;
    for (const [share, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
      drawing.append(svg("text", { class: "axis", x: LEFT + share * (W - LEFT - RIGHT), y: H - 4, "text-anchor": anchor }, near(begin_ms + share * points * step_ms)));
    }
    lines.forEach((line, n) => {
      const { d, dots } = path(line.values, x, y);
      drawing.append(svg("path", { class: `line line-${n}`, d }));
      for (const [cx, cy] of dots) drawing.append(svg("circle", { class: `dot line-${n}`, cx, cy, r: 2 }));
    });
    const every = Math.ceil(points / NUMBERS_SHOWN), rows = [];
    for (let n = points - 1; n >= 0; n -= every) {
      rows.push(make("tr", {}, number(clock(begin_ms + (n + 1) * step_ms)), ...lines.map((line) => number(line.values[n] === null || line.values[n] === undefined ? "" : `${short(line.values[n])}`))));
    }
    const numbers = make("details", {}, make("summary", {}, "Numbers"), Parts.table(`Numbers: ${title}`, ["Until", ...lines.map((line) => line.name)], rows));
    return make("figure", { class: "chart" }, head, drawing, numbers);
  };
  return { draw };
})();
