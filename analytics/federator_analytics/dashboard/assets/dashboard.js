"use strict";
{
  const POLL_MS = 1000;
  const ANSWER_MS = 15000;
  const fresh = document.getElementById("fresh");
  const staleAfterMs = Number(fresh.dataset.staleAfter) * 1000;
  const places = new Map([...document.querySelectorAll("[data-live]")].map((el) => [el.dataset.live, el]));
  const shown = new Map();
  let version = "";
  let last = null; // the server's last answer, and when it came by this page's clock
  let failing = null;

  const age = (ms) => {
    const s = Math.max(0, Math.round(ms / 1000));
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${Math.floor(s / 60)} min`;
    if (s < 172800) return `${Math.floor(s / 3600)} h`;
    return `${Math.floor(s / 86400)} days`;
  };
  const say = (kind, text) => {
    fresh.className = `fresh ${kind}`;
    document.documentElement.classList.toggle("stale-data", kind !== "");
    if (fresh.textContent !== text) fresh.textContent = text;
  };
  const tell = () => {
    if (failing !== null) {
      say("gone", `The dashboard's server does not answer since ${age(Date.now() - failing)}.`);
      return;
    }
    if (last === null) return;
    const passed = performance.now() - last.came;
    if (last.newest_ms === null) {
      say("stale", last.trouble || "There are no tables yet, or no record in them.");
      return;
    }
    const old = last.now_ms - last.newest_ms + passed;
    const written = last.now_ms - last.written_ms + passed;
    const trouble = last.trouble ? ` What is on disk now cannot be read: ${last.trouble}.` : "";
    const text = `Newest record ${age(old)} old, tables written ${age(written)} ago.${trouble}`;
    say(old > staleAfterMs || trouble ? "stale" : "", old > staleAfterMs ? `Stale: ${text}` : text);
  };
  const put = (fragments) => {
    for (const [name, html] of Object.entries(fragments)) {
      const place = places.get(name);
      if (!place || shown.get(name) === html) continue;
      const open = [...place.querySelectorAll("details")].map((each) => each.open);
      place.innerHTML = html; // escaped by the server, which draws it; the policy forbids scripts
      place.querySelectorAll("details").forEach((each, n) => (each.open = open[n] ?? false));
      shown.set(name, html);
    }
  };
  const ask = async () => {
    try {
      const answer = await fetch(`/live?known=${version}`, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
      if (!answer.ok) throw new Error(String(answer.status));
      const live = await answer.json();
      if (live.fragments) put(live.fragments);
      version = live.version;
      last = { ...live, came: performance.now() };
      failing = null;
    } catch {
      failing ??= Date.now();
    }
    tell();
    setTimeout(ask, POLL_MS);
  };
  setInterval(tell, 1000);
  ask();
}
