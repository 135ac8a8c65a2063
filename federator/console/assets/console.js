"use strict";
{
  const { at, make, put, write, short, bits, share, some, clock, facts, table, number, renew, ask, query } = Parts;
  const LINKS_SHOWN = 200, EVENTS_KEPT = 1500, EVENTS_SHOWN = 300, STALE_MS = 12000, LARGE = 400, SLOWLY_MS = 1500, LIT_MS = 350;
  const brokers = new Map(), links = new Map();
  const changed = { brokers: new Set(), links: new Set() };
  let events = [], me = {}, choice = null, told = null, came = 0, controller = null, takeovers = [], drawing = 0, whole = false, ordering = null, refusal = { broker: null, text: "" };

  const nameOf = (id) => { const name = brokers.get(id)?.name; return name ? `${name} (${id})` : `${id}`; };
  const STATES = { ready: "ready", not_ready: "not ready", draining: "draining", starting: "just asked", silent: "agent silent", unreached: "not reached from here", down: "down" };
  const linkState = (link) => (link.up ? (link.load >= 0.8 ? "full" : "up") : "down");
  const linkWords = (link) => (link.up ? [share(link.load), link.delay_ms === null ? "" : `${link.delay_ms} ms`].filter(Boolean).join(" \u00b7 ") || undefined : "down");
  const keyOf = (a, b) => (a < b ? `${a}-${b}` : `${b}-${a}`);
  const sorted = () => [...brokers.values()].sort((a, b) => a.id - b.id);

  const brokerButton = (id) => make("button", { type: "button", class: "name", onclick: () => choose({ broker: id }) }, nameOf(id));
  const listed = (ids) => ids.flatMap((id, n) => (n ? [", ", brokerButton(id)] : [brokerButton(id)]));
  const state = (kind, words) => make("span", { class: `state ${kind}` }, words);

  const linkWord = (link) => state(linkState(link), linkState(link));

  // -- what comes -----------------------------------------------------------------------------

  const take = (news) => {
    if (news.whole) { brokers.clear(); links.clear(); }
    for (const broker of news.brokers) { brokers.set(broker.id, broker); changed.brokers.add(broker.id); }
    for (const link of news.links) { const key = keyOf(link.a, link.b); links.set(key, link); changed.links.add(key); }
    if (news.events.length) {
      const newest = events.length ? events[events.length - 1].number : 0;
      if (news.events[0].number <= newest) events = []; // another console answers, or it began anew
      events = events.concat(news.events).slice(-EVENTS_KEPT);
    }
    ({ controller, takeovers } = news);
    told = news;
    came = performance.now();
    whole ||= news.whole;
    // A large map costs its browser more than a second of it is worth: then it is drawn less often.
    if (!drawing) drawing = setTimeout(() => requestAnimationFrame(draw), links.size > LARGE && !whole && !urgent(news) ? SLOWLY_MS : 0);
  };
  const urgent = (news) => news.events.some((each) => each.weight === "death" || each.weight === "bad");
  const listen = () => {
    const source = new EventSource("/live");
    source.onmessage = (message) => take(JSON.parse(message.data));
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000); };
  };
  const fresh = () => {
    let kind = "", text = "";
    if (!told) text = "Asking.";
    else if (performance.now() - came > STALE_MS) { kind = "gone"; text = `The console does not answer since ${Math.round((performance.now() - came) / 1000)} s.`; }
    else if (!told.ready) { kind = "stale"; text = `Nothing can be read: ${told.reason}`; }
    else text = `Live. ${told.left_out ? `${told.left_out} records found no room.` : ""}`;
    at("fresh").className = `fresh ${kind}`;
    document.documentElement.classList.toggle("stale-data", kind !== "");
    write("fresh", text);
  };

  // -- drawing --------------------------------------------------------------------------------

  const tile = (title, value, note, kind) => make("div", { class: `tile ${kind}` }, make("dt", {}, title), make("dd", { class: "value" }, value), make("dd", { class: "note" }, note));
  const tiles = () => {
    const all = [...brokers.values()], wires = [...links.values()];
    const bad = all.filter((each) => each.state === "down" || each.state === "silent");
    const down = wires.filter((each) => !each.up), full = wires.filter((each) => each.up && each.load >= 0.8);
    const known = wires.filter((each) => each.up && each.load !== null).sort((a, b) => b.load - a.load);
    const into = all.reduce((sum, each) => sum + (each.published || 0), 0), out = all.reduce((sum, each) => sum + (each.delivered || 0), 0);
    put(at("tiles"),
      tile("brokers up", `${all.length - bad.length} of ${all.length}`, bad.length ? bad.slice(0, 4).map((each) => nameOf(each.id)).join(", ") : "none is down", bad.length ? "bad" : "good"),
      tile("links up", `${wires.length - down.length} of ${wires.length}`, down.length ? `${down.length} down` : "all stand", down.length ? "bad" : "good"),
      tile("fullest link", known.length ? share(known[0].load) : "unknown", known.length ? `${nameOf(known[0].a)} \u2013 ${nameOf(known[0].b)}` : "no link has a capacity", full.length ? "look" : ""),
      tile("publications", `${short(into)}/s`, `${short(out)}/s delivered`, ""),
      tile("clients", `${all.reduce((sum, each) => sum + (each.clients || 0), 0)}`, "connected, as failover knows them", ""));
  };
  const marked = (row, is) => { if (is) row.classList.add("chosen"); return row; };
  const brokerRows = () => {
    const instead = new Map(takeovers.map((each) => [each.broker, each.substitute]));
    renew(at("broker-rows"), sorted().map((broker) => {
      const bad = broker.state === "down" || broker.state === "silent";
      const stand = instead.has(broker.id) ? [make("strong", {}, "now: "), brokerButton(instead.get(broker.id))] : listed(broker.substitutes);
      return marked(make("tr", { class: bad ? "down" : null, "data-broker": broker.id },
        make("td", {}, brokerButton(broker.id)), make("td", {}, state(broker.state, STATES[broker.state] ?? broker.state)),
        number(some(broker.clients)), number(some(broker.published)), number(some(broker.delivered)), make("td", {}, ...stand)), choice?.broker === broker.id);
    }));
    write("controller", controller === null ? "No guide was read yet." : `Controller: ${nameOf(controller)}. It names who steps in for whom, best first.`);
  };
  const linkRows = () => {
    const all = [...links.entries()].sort(([, a], [, b]) => a.up - b.up || (b.load ?? -1) - (a.load ?? -1) || a.a - b.a || a.b - b.b);
    write("links-note", all.length > LINKS_SHOWN ? `${LINKS_SHOWN} of ${all.length}: those that are down first, then the fullest.` : "Those that are down first, then the fullest.");
    renew(at("link-rows"), all.slice(0, LINKS_SHOWN).map(([key, link]) => marked(make("tr", { class: link.up ? null : "down", "data-link": key },
      make("td", {}, make("button", { type: "button", class: "name", onclick: () => choose({ link: key }) }, `${nameOf(link.a)} \u2013 ${nameOf(link.b)}`)),
      make("td", {}, linkWord(link)), number(share(link.load)),
      make("td", {}, link.rates.map((rate) => bits(rate) || "?").join(" / ")), number(bits(link.capacity)),
      number(link.delay_ms === null ? "" : `${link.delay_ms} ms`), make("td", {}, link.transport)), choice?.link === key)));
  };
  const eventText = (event) => { let n = 0; return event.text.replace(/\{\}/g, () => nameOf(event.brokers[n++])); };
  // Routine between two others is one line, so that deaths stand out.
  const eventItems = (shown) => {
    const rows = [];
    let run = [];
    const flush = () => {
      if (run.length > 2) rows.push({ weight: "routine", at_ms: run[0].at_ms, words: `${run.length} of routine, from ${clock(run[run.length - 1].at_ms)}: ${eventText(run[0])}, ...` });
      else rows.push(...run.map((each) => ({ ...each, words: eventText(each) })));
      run = [];
    };
    for (const event of shown.reverse()) {
      if (event.weight === "routine") { run.push(event); continue; }
      flush();
      rows.push({ ...event, words: eventText(event) });
      if (rows.length > EVENTS_SHOWN) break;
    }
    flush();
    if (!rows.length) return [make("li", { class: "none" }, make("span", { class: "empty" }, "Nothing happened."))];
    return rows.slice(0, EVENTS_SHOWN).map((each) => make("li", { class: each.weight }, make("time", {}, clock(each.at_ms)), make("span", { class: "dot", "aria-hidden": "true" }, each.weight === "death" ? "\u2715" : "\u25cf"), make("span", {}, each.weight === "death" ? "death: " : "", each.words)));
  };
  const eventRows = () => {
    const since = at("range").value ? (told?.now_ms ?? Date.now()) - 1000 * at("range").value : 0;
    const only = at("only").checked && choice?.broker !== undefined ? choice.broker : null;
    put(at("event-rows"), ...eventItems(events.filter((each) => each.at_ms >= since && (only === null || each.brokers.includes(only)) && (at("routine").checked || each.weight !== "routine"))));
  };
  const detail = () => {
    const broker = brokers.get(choice?.broker), link = links.get(choice?.link);
    if (broker) {
      write("detail-title", `Broker ${nameOf(broker.id)}`);
      const near = [...links.values()].filter((each) => each.a === broker.id || each.b === broker.id);
      const draining = broker.state === "draining";
      const body = [facts(["state", [state(broker.state, STATES[broker.state] ?? broker.state)]], ["why", broker.why], ["address", broker.address], ["agent", broker.release], ["stands", broker.standing], ["clients", broker.clients], ["core of", broker.core_of ? `${broker.core_of} meshes` : "no mesh"], ["filters", broker.filters], ["dropped", broker.dropped || ""], ["steps in", broker.substitutes.length ? listed(broker.substitutes) : ""], ["links", `${near.filter((each) => each.up).length} of ${near.length} up`])];
      if (me.operator) body.push(make("button", { type: "button", id: "drain", disabled: ordering === broker.id && "", onclick: () => drain(broker.id, !draining) }, draining ? "Undrain: let clients come back" : "Drain: move its clients away"));
      else if (me.may_sign_in) body.push(make("p", { class: "note" }, "Sign in to drain it."));
      body.push(make("p", {}, make("button", { type: "button", onclick: () => Closer.open("broker", broker.id) }, "Over time, clients, events")));
      body.push(make("p", { id: "drained", class: "refused", role: "alert" }, refusal.broker === broker.id ? refusal.text : ""));
      renew(at("detail-body"), body);
    } else if (link) {
      write("detail-title", `Link ${nameOf(link.a)} \u2013 ${nameOf(link.b)}`);
      renew(at("detail-body"), [facts(["ends", listed([link.a, link.b])], ["state", [linkWord(link)]], ["why", link.why], ["load", share(link.load)], ["capacity", bits(link.capacity)], [`from ${nameOf(link.a)}`, bits(link.rates[0])], [`from ${nameOf(link.b)}`, bits(link.rates[1])], ["round trip", link.delay_ms === null ? "" : `${link.delay_ms} ms`], ["transport", link.transport])]);
    }
  };
  let slow = 0;
  const draw = () => {
    drawing = 0;
    FederationMap.show(brokers, links, changed, whole, nameOf, linkWords);
    whole = false;
    changed.brokers.clear();
    changed.links.clear();
    fresh();
    if (slow) return; // tables once in half a second: of a large federation they are long
    slow = setTimeout(() => { slow = 0; tables(); }, links.size > LARGE ? SLOWLY_MS : 200);
  };
  const tables = () => { tiles(); brokerRows(); linkRows(); eventRows(); detail(); Closer.renewed(); };
  const mark = (wanted) => {
    choice = wanted;
    FederationMap.choose(wanted.broker !== undefined ? `b${wanted.broker}` : `l${wanted.link}`);
  };
  const choose = (wanted) => {
    mark(wanted);
    if (wanted.broker !== undefined) Closer.open("broker", wanted.broker, { focus: false });
    else Closer.open("link", wanted.link, { focus: false });
    tables();
  };
  const onFollowed = ({ kind, which }) => {
    if (kind === "broker" && /^\d+$/.test(which)) mark({ broker: Number(which) });
    else if (kind === "link") mark({ link: which });
  };

  // -- questions ------------------------------------------------------------------------------

  const post = (path, body) => ask(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Console-Token": me.token ?? "" }, body: JSON.stringify(body) });
  const open = (id, ...children) => { put(at(`${id}-body`), ...children); at(id).hidden = false; at(`${id}-title`).focus(); at(id).scrollIntoView({ block: "nearest" }); };
  const drawn = () => (at("plain").hidden = false);
  const failed = (id) => (error) => open(id, make("p", { class: "refused" }, error.message));
  const from = () => (choice?.broker !== undefined ? { broker: choice.broker } : {});
  const topicTools = (topic) => make("div", { class: "tools" },
    make("button", { type: "button", onclick: () => explain(topic) }, "Explain"),
    make("button", { type: "button", onclick: () => trace(topic) }, "Trace"),
    make("span", { class: "note" }, choice?.broker !== undefined ? `as published at ${nameOf(choice.broker)}` : "as published at the first broker; choose another one on the map"));

  const search = async (text) => {
    const found = await ask(query("/api/search", { text }));
    const where = [...new Set(found.rows.map((row) => row.broker))];
    if (where.length) { FederationMap.drawBrokers(where); drawn(); }
    write("found-title", `Topics and clients: ${text}`);
    const rows = found.rows.map((row) => make("tr", {},
      make("td", {}, Closer.clientButton(row.client)),
      make("td", {}, row.action === "sub" ? "subscribes" : "publishes"),
      make("td", {}, Closer.topicButton(row.topic)),
      make("td", {}, brokerButton(row.broker)), make("td", {}, row.on ? "connected" : row.keeps ? "away, session kept" : "away")));
    const shown = table("Clients", ["Client", "Does", "Topic", "Broker", "State"], rows, { id: "found-rows" });
    const plain = !/[+#]/.test(text);
    open("found",
      ...(plain ? [topicTools(text)] : []),
      make("p", {}, "Closer: ", Closer.topicButton(text), " as a topic, ", Closer.clientButton(text), " as a client."),
      make("p", { class: "note" }, !found.asked ? "No agent answers." : !found.reported ? "Agents report no clients: failover.enabled = false." : `${found.rows_total} rows of clients${found.rows.length < found.rows_total ? `, the first ${found.rows.length}` : ""}; ${found.filters_total} filters.${found.whole ? "" : " Some brokers have more than is looked at."}`),
      ...(rows.length ? [shown] : []),
      make("p", {}, ...found.filters.flatMap((filter) => [make("button", { type: "button", onclick: () => mesh(filter) }, `Mesh of ${filter}`), " "])));
  };
  const mesh = async (filter) => {
    try {
      const { parts } = await ask(query("/api/mesh", { filter }));
      const members = [], pairs = new Map(), cores = new Set(), wanting = [];
      for (const [id, part] of Object.entries(parts)) {
        if (part.core !== null && part.core !== undefined) cores.add(part.core);
        if (part.member) members.push(Number(id));
        if (part.local) wanting.push(Number(id));
      }
      const inside = new Set(members);
      for (const id of members) for (const hop of parts[id].next_hops ?? []) if (inside.has(hop)) pairs.set(keyOf(id, hop), [id, hop]);
      write("way-title", `Mesh of ${filter}`);
      if (!cores.size) return open("way", make("p", {}, "No agent knows a core of it: it goes over shortest paths, or nobody wants it."));
      FederationMap.drawMesh(members, pairs.values());
      drawn();
      open("way", facts(["core", listed([...cores])], ["clients at", listed(wanting)], ["carried by", listed(members)], ["links", `${pairs.size}`]));
    } catch (error) { failed("way")(error); }
  };
  const explain = async (topic) => {
    try {
      const told = await ask(query("/api/explain", { topic, ...from() }));
      write("way-title", `Explained: ${topic}`);
      const hops = told.next_hops ?? [];
      open("way", make("p", {}, hops.length ? "Goes to " : "Goes nowhere: ", ...listed(hops), hops.length ? `: ${told.why}` : told.why),
        make("ul", { class: "way" }, ...(told.filters ?? []).map((each) => make("li", {}, make("button", { type: "button", class: "name", onclick: () => mesh(each.filter) }, each.filter), `: ${each.why}`))),
        ...(told.groups ?? []).map((group) => make("p", {}, `$share/${group.group}/${group.filter}: to one member of the group`)));
    } catch (error) { failed("way")(error); }
  };
  const micros = (us) => `${(us / 1000).toFixed(1)} ms`;
  let tracing = 0;
  const trace = async (topic) => {
    const mine = ++tracing;
    try {
      write("way-title", `Trace: ${topic}`);
      open("way", make("p", { class: "note" }, "A probe is on its way; no subscriber gets anything."));
      const { start, hops, missing } = await ask(query("/api/trace", { topic, ...from() }));
      if (mine !== tracing) return;
      FederationMap.fade();
      drawn();
      FederationMap.light(null, start.path[0]);
      if (!start.next_hops.length) return open("way", make("p", {}, `Goes nowhere from ${nameOf(start.path[0])}: ${start.why}`));
      hops.sort((a, b) => a.path.length - b.path.length || a.times_us.at(-1) - b.times_us.at(-1));
      const list = make("ol", { class: "way" });
      open("way", make("p", {}, `From ${nameOf(start.path[0])}: ${start.why}`), list);
      for (const hop of hops) {
        await new Promise((then) => setTimeout(then, LIT_MS));
        if (mine !== tracing) return;
        const [one, other] = hop.path.slice(-2);
        FederationMap.light(one, other);
        const does = !hop.first ? "was here before: dropped" : hop.why || [hop.delivers ? "delivers" : "", hop.next_hops.length ? "passes on" : ""].filter(Boolean).join(", ");
        list.append(make("li", { class: hop.first ? "lit" : "" }, `${nameOf(one)} to ${nameOf(other)}: +${micros(hop.times_us.at(-1) - hop.times_us[0])}, told after ${micros(hop.back_us - hop.times_us[0])}: ${does}`));
      }
      for (const [one, other] of missing) list.append(make("li", { class: "lost" }, `${nameOf(one)} to ${nameOf(other)}: NO ANSWER`));
      list.append(make("li", { class: "done" }, "Told by the clocks of both ends: they may differ."));
    } catch (error) { failed("way")(error); }
  };
  at("search").addEventListener("submit", (event) => { event.preventDefault(); const text = at("text").value; if (text) search(text).catch(failed("found")); });
  at("fit").addEventListener("click", FederationMap.fit);
  at("arrange").addEventListener("click", FederationMap.arrange);
  at("plain").addEventListener("click", () => { tracing++; FederationMap.clear(); at("plain").hidden = true; });
  for (const id of ["range", "only", "routine"]) at(id).addEventListener("change", eventRows);
  FederationMap.onChosen(choose);
  write("legend", "A wider line is fuller; orange: over 80 %. Red, dashed: down. A star: down. A diamond: core of some mesh.");

  // -- operators ------------------------------------------------------------------------------

  const known = (told) => {
    me = told;
    write("title", `Federation ${me.federation}`);
    at("sign").hidden = !me.may_sign_in;
    write("sign", me.operator ? `Sign out ${me.operator}` : "Sign in");
    at("history").hidden = !me.history;
    if (me.history) at("history").href = me.history;
    if (told) tables();
  };
  const drain = async (broker, wanted) => {
    ordering = broker;
    refusal = { broker, text: "" };
    detail();
    try {
      await post("/api/drain", { broker, drain: wanted });
    } catch (error) {
      refusal = { broker, text: error.message };
    }
    ordering = null;
    detail();
  };
  at("sign").addEventListener("click", async () => {
    if (me.operator) return known(await post("/api/sign-out", {}));
    at("refused").textContent = "";
    at("signing").showModal();
  });
  at("cancel").addEventListener("click", () => at("signing").close());
  at("credentials").addEventListener("submit", async (event) => {
    event.preventDefault();
    at("refused").textContent = "";
    try {
      known(await post("/api/sign-in", { name: at("name").value, password: at("password").value }));
      at("signing").close();
    } catch (error) { at("refused").textContent = error.message; }
    at("password").value = "";
  });

  setInterval(fresh, 1000);
  const begin = () => Closer.begin({ brokers, links, nameOf, brokerButton, listed, eventItems, topicTools, mesh, onFollowed, events: () => events, me: () => me, now_ms: () => told?.now_ms ?? Date.now(), state: (broker) => state(broker.state, STATES[broker.state] ?? broker.state), linkState: linkWord });
  ask("/api/me").then(known).catch(() => {}).finally(begin);
  listen();
}
