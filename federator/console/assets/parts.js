"use strict";
/* What every part of the page is made with. Everything that is shown of others goes through `make`, as text. */
const Parts = (() => {
  const FOCUSED = "button, summary";
  const at = (id) => document.getElementById(id);
  const make = (kind, attributes = {}, ...children) => {
    const element = document.createElement(kind);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  };
  const put = (place, ...children) => place.replaceChildren(...children);
  const write = (id, text) => { const place = at(id); if (place.textContent !== text) place.textContent = text; };
  const short = (x) => (x >= 100 ? Math.round(x) : Number(x.toPrecision(3)));
  const known = (x) => x !== null && x !== undefined;
  const bits = (x) => !known(x) ? "" : x >= 1e9 ? `${short(x / 1e9)} Gbit/s` : x >= 1e6 ? `${short(x / 1e6)} Mbit/s` : x >= 1e3 ? `${short(x / 1e3)} kbit/s` : `${short(x)} bit/s`;
  const share = (x) => (known(x) ? `${short(100 * x)} %` : "");
  const some = (x) => (known(x) ? `${short(x)}` : "");
  const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
  const hour = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false, hour: "2-digit", minute: "2-digit" });
  /* The time of a day, and the day where it is not this one. */
  const moment = (ms, now_ms) => (Math.abs(now_ms - ms) < 72_000_000 ? clock(ms) : `${new Date(ms).toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" })} ${clock(ms)}`);
  const age = (ms) => { const s = Math.max(0, Math.round(ms / 1000)); return s < 120 ? `${s} s` : s < 7200 ? `${Math.floor(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`; };
  const facts = (...pairs) => make("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== "" && known(value)).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, ...(Array.isArray(value) ? value : [`${value}`]))]));
  const table = (name, heads, rows, more = {}) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", more, ...rows)));
  const number = (text) => make("td", { class: "n" }, text);
  /* What has the keyboard's focus in a place keeps it when the place is filled anew. */
  const renew = (place, children) => {
    const focus = place.contains(document.activeElement) ? [...place.querySelectorAll(FOCUSED)].indexOf(document.activeElement) : -1;
    put(place, ...children);
    if (focus >= 0) place.querySelectorAll(FOCUSED)[focus]?.focus({ preventScroll: true });
  };
  const ask = async (path, options = {}) => {
    const answer = await fetch(path, { cache: "no-store", ...options });
    const body = await answer.json().catch(() => ({ error: `the console answers ${answer.status}` }));
    if (!answer.ok) throw new Error(body.error);
    return body;
  };
  const query = (path, values) => `${path}?${new URLSearchParams(values)}`;
  /* Whether a topic, or a filter that is the same, is taken by a filter. */
  const takes = (filter, topic) => {
    const plain = filter.startsWith("$share/") ? filter.split("/").slice(2).join("/") : filter;
    if (plain === topic) return true;
    if (/[+#]/.test(topic) || (topic[0] === "$" && "+#".includes(plain[0]))) return false;
    const ours = plain.split("/"), theirs = topic.split("/");
    for (let n = 0; n < ours.length; n++) {
      if (ours[n] === "#") return true;
      if (n >= theirs.length || (ours[n] !== "+" && ours[n] !== theirs[n])) return false;
    }
    return ours.length === theirs.length;
  };
  return { at, make, put, write, short, bits, share, some, clock, hour, moment, age, facts, table, number, renew, ask, query, takes };
})();
