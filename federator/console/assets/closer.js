"use strict";
/* A closer look at one broker, link, topic or client, over a range of time. The address says which: it can be kept. */
const Closer = (() => {
  const { at, make, put, write, share, some, clock, moment, age, facts, table, number, renew, ask, query, takes } = Parts;
  const PAST_MS = 60000, MESHES_SHOWN = 3, EVENTS_SHOWN = 100, LINKS_SHOWN = 50, KINDS = ["broker", "link", "topic", "client"];
  let page = null; // what console.js lends us
  let now = null; // what is looked at: its kind and which one
  let turn = 0; // answers to what was looked at before are thrown away
  let pasting = 0, told = "";

  const span = () => Number(at("span").value);
  const address = () => (now === null ? " " : `#${new URLSearchParams({ [now.kind]: now.which, span: `${span()}` })}`);
  const wanted = () => {
    const given = new URLSearchParams(location.hash.slice(1)), kind = KINDS.find((each) => given.get(each));
    if ([...at("span").options].some((each) => each.value === given.get("span"))) at("span").value = given.get("span");
    return kind ? { kind, which: given.get(kind) } : null;
  };
  const width = () => { const whole = at("closer-past-part").clientWidth; return whole < 700 ? whole : whole / 2 - 10; };
  const part = (name) => at(`closer-${name}`);
  const fail = (place, error) => put(place, make("p", { class: "note" }, error.message));
  const near = (broker) => [...page.links.values()].filter((link) => link.a === broker || link.b === broker);
  const told_by = (row) => `${row.on ? "connected" : row.keeps ? "away, session kept" : "away"}${row.gateway ? ", behind a gateway" : ""}`;
  const button = (words, then) => make("button", { type: "button", class: "name", onclick: then }, words);
  const clientButton = (client) => button(client, () => open("client", client));
  const topicButton = (topic) => button(topic, () => open("topic", topic));
  const again = () => make("button", { type: "button", onclick: questions }, "Ask again");
  const asked = (found, what) => [
    make("p", { class: "note" }, !found.asked ? "No agent answers." : !found.reported ? "Agents report no clients here: failover.enabled = false." : what,
      found.whole && found.rows_total <= found.rows.length ? "" : ` Of ${found.rows_total} rows not all were told: what is missing here may still be there.`, ` Asked at ${clock(Date.now())}. `), again()];

  // -- what changes by itself: facts, events ----------------------------------------------------

  const eventsOf = () => {
    const since = page.now_ms() - 1000 * span();
    const is = {
      broker: (each) => each.brokers.includes(Number(now.which)),
      link: (each) => now.which.split("-").every((end) => each.brokers.includes(Number(end))),
      topic: (each) => each.filter !== undefined && takes(each.filter, now.which),
      client: (each) => now.brokers.some((broker) => each.brokers.includes(broker)),
    }[now.kind];
    return page.events().filter((each) => each.at_ms >= since && is(each)).slice(-EVENTS_SHOWN);
  };
  const renewed = () => {
    if (now === null) return;
    const id = Number(now.which), broker = now.kind === "broker" ? page.brokers.get(id) : undefined, link = now.kind === "link" ? page.links.get(now.which) : undefined;
    const words = { broker: () => `Broker ${page.nameOf(id)}`, link: () => (link ? `Link ${page.nameOf(link.a)} \u2013 ${page.nameOf(link.b)}` : `Link ${now.which}`), topic: () => `Topic ${now.which}`, client: () => `Client ${now.which}` };
    write("closer-title", words[now.kind]());
    if (broker) {
      const wires = near(id);
      renew(part("facts"), [
        make("p", {}, page.state(broker), broker.why ? `: ${broker.why}` : ""),
        table("Links of this broker", ["Link to", "State", "Load", "Round trip"], wires.slice(0, LINKS_SHOWN).map((each) => make("tr", { class: each.up ? null : "down" },
          make("td", {}, page.brokerButton(each.a === id ? each.b : each.a)), make("td", {}, page.linkState(each)), number(share(each.load)), number(each.delay_ms === null ? "" : `${each.delay_ms} ms`))))]);
    } else if (link) {
      renew(part("facts"), [facts(["ends", [page.brokerButton(link.a), ", ", page.brokerButton(link.b)]], ["state", [page.linkState(link)]], ["why", link.why], ["load", share(link.load)])]);
    } else if (now.kind === "broker" || now.kind === "link") {
      put(part("facts"), make("p", { class: "note" }, `No such ${now.kind} is known here.`));
    }
    const events = eventsOf(), key = `${events.length} ${events.at(-1)?.number} ${span()} ${events[0]?.number}`;
    if (key === told) return;
    told = key;
    put(part("events"), ...page.eventItems([...events]));
  };

  // -- what is asked for ------------------------------------------------------------------------

  const mine = (number) => number === turn && now !== null;
  const clientsOf = async (number) => {
    const found = await ask(query("/api/clients", { broker: now.which }));
    if (!mine(number)) return;
    const rows = found.rows.map((row) => make("tr", {}, make("td", {}, clientButton(row.client)), make("td", {}, row.action === "sub" ? "subscribes" : "publishes"), make("td", {}, topicButton(row.topic)), make("td", {}, told_by(row))));
    put(part("answers"), make("h3", {}, "Clients that its agent knows"),
      ...asked(found, `${found.rows_total} rows. A broker's log names clients that subscribe; of those that only publish, its agent knows none but those behind gateways.`),
      ...(rows.length ? [table("Clients of this broker", ["Client", "Does", "Topic", "State"], rows)] : []));
  };
  const topicOf = async (number) => {
    const topic = now.which, found = await ask(query("/api/search", { text: topic }));
    if (!mine(number)) return;
    const its = (row) => (row.action === "sub" ? takes(row.topic, topic) : row.topic === topic || takes(topic, row.topic));
    const rows = found.rows.filter(its).map((row) => make("tr", {}, make("td", {}, clientButton(row.client)), make("td", {}, row.action === "sub" ? "subscribes" : "publishes"), make("td", {}, row.topic), make("td", {}, page.brokerButton(row.broker)), make("td", {}, told_by(row))));
    const filters = found.filters.filter((each) => takes(each, topic)), meshes = make("div", {});
    put(part("answers"),
      ...(/[+#]/.test(topic) ? [] : [page.topicTools(topic)]),
      make("h3", {}, "Who subscribes, and who publishes where that is known"),
      ...asked(found, "Publishers are known where they connect through a gateway; a broker's log does not name the others."),
      ...(rows.length ? [table("Clients of this topic", ["Client", "Does", "By", "Broker", "State"], rows)] : [make("p", { class: "empty" }, "No client of it is known.")]),
      make("h3", {}, "Cores and meshes"), meshes);
    if (!filters.length) put(meshes, make("p", { class: "empty" }, "No filter that takes it is wanted anywhere: nothing is carried."));
    for (const filter of filters) {
      const place = make("p", {}, make("button", { type: "button", onclick: () => page.mesh(filter) }, `Mesh of ${filter}`));
      meshes.append(place);
      if (meshes.children.length > MESHES_SHOWN) continue;
      const { parts } = await ask(query("/api/mesh", { filter }));
      if (!mine(number)) return;
      const told = Object.entries(parts), cores = [...new Set(told.map(([, each]) => each.core).filter((core) => core !== null))];
      place.append(" core ", ...(cores.length ? page.listed(cores) : ["none: over shortest paths"]), "; clients at ", ...page.listed(told.filter(([, each]) => each.local).map(([id]) => Number(id))), "; carried by ", ...page.listed(told.filter(([, each]) => each.member).map(([id]) => Number(id))));
    }
  };
  const clientOf = async (number) => {
    const client = now.which, found = await ask(query("/api/search", { text: client }));
    if (!mine(number)) return;
    const its = found.rows.filter((row) => row.client === client);
    now.brokers = [...new Set(its.map((row) => row.broker))];
    told = "";
    renewed();
    const rows = its.map((row) => make("tr", {}, make("td", {}, row.action === "sub" ? "subscribes" : "publishes"), make("td", {}, topicButton(row.topic)), make("td", {}, page.brokerButton(row.broker)), make("td", {}, told_by(row))));
    const where = now.brokers.flatMap((id) => [make("dt", {}, "at"), make("dd", {}, page.brokerButton(id), ": ", page.brokers.has(id) ? page.state(page.brokers.get(id)) : "", "; steps in: ", ...(page.brokers.get(id)?.substitutes.length ? page.listed(page.brokers.get(id).substitutes) : ["nobody is named"]))]);
    put(part("facts"), make("dl", { class: "facts" }, ...where));
    put(part("answers"), make("h3", {}, "What it does"),
      ...asked(found, its.length ? "" : "No agent knows it. A broker's log names clients that subscribe; those that only publish are known behind gateways alone."),
      ...(rows.length ? [table("What this client does", ["Does", "Topic", "Broker", "State"], rows)] : []),
      make("p", { class: "note" }, "Nobody counts what one client sends or gets: rates are of its broker. Events below are those of its brokers."));
  };
  const questions = () => {
    const number = turn, ask_of = { broker: clientsOf, topic: topicOf, client: clientOf }[now.kind];
    if (!ask_of) return;
    ask_of(number).catch((error) => { if (mine(number)) put(part("answers"), make("h3", {}, "Not answered"), make("p", {}, error.message), again()); });
  };

  const past = async () => {
    clearTimeout(pasting);
    const about = now?.kind === "broker" || now?.kind === "topic";
    at("closer-past-part").hidden = !about;
    if (!about) return;
    const place = part("past"), number = turn;
    if (!page.me().past) return put(place, make("p", { class: "note" }, "No dashboard of analytics is named (history in the configuration): what was before is not known here."));
    try {
      const found = await ask(query("/api/past", { [now.kind]: now.which, span: span() }));
      if (!mine(number)) return;
      const end_ms = found.newest_ms, rows = found.events.map((each) => make("li", { class: each.routine ? "routine" : "" }, make("time", {}, moment(each.at_ms, page.now_ms())), make("span", { class: "dot", "aria-hidden": "true" }, "\u25cf"), make("span", {}, `${page.nameOf(each.broker)}: ${each.text}`)));
      const body = [make("p", { class: "note" }, end_ms === null ? "The tables hold no record yet." : `Until the newest record of the tables, ${age(page.now_ms() - end_ms)} ago (${moment(end_ms, page.now_ms())}).${found.trouble ? ` ${found.trouble}.` : ""}${found.cut ? " The tables are longer than is read." : ""}`)];
      if (now.kind === "broker" && end_ms !== null) {
        const clocks = { step_ms: found.step_ms, end_ms, width: width() };
        body.push(make("div", { class: "charts" },
          TimeChart.draw("Carried", "/s", [{ name: "from here", values: found.series.sent ?? [] }, { name: "to here", values: found.series.received ?? [] }], clocks),
          TimeChart.draw("Delay, p99 of the slowest way", " ms", [{ name: "delay", values: found.series.delay_ms_p99 ?? [] }], clocks)),
          facts(["starts again", found.facts.restarts], ["dropped", found.facts.dropped], ["busy at a time", found.facts.loop_lag_us_max === null || found.facts.loop_lag_us_max === undefined ? "" : `${some(found.facts.loop_lag_us_max / 1000)} ms at most`]));
      }
      if (found.flows.length) body.push(table("What was carried", ["Filter", "From", "To", "Publications", "Per second", "Missing"], found.flows.map((each) => make("tr", {}, make("td", {}, each.filter), make("td", {}, page.nameOf(each.origin)), make("td", {}, page.nameOf(each.destination)), number(`${each.publications}`), number(some(each.rate_per_s)), number(each.missing ? `${each.missing}` : "")))), make("p", { class: "note" }, `${found.flows_total} ways in all, over the whole span of the tables.`));
      else if (now.kind === "topic" && end_ms !== null) body.push(make("p", { class: "empty" }, "The tables tell of nothing carried for it."));
      if (rows.length) body.push(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Events of the tables" }, make("ul", { class: "events" }, ...rows)));
      put(place, ...body);
    } catch (error) { if (mine(number)) fail(place, error); }
    if (mine(number)) pasting = setTimeout(past, PAST_MS);
  };

  // -- what is looked at ------------------------------------------------------------------------

  const show = (kind, which) => {
    const same = now?.kind === kind && now?.which === which;
    now = { kind, which, brokers: same ? now.brokers : [] };
    turn++;
    told = "";
    at("closer").hidden = false;
    for (const name of ["facts", "answers", "events", "past"]) if (!same) put(part(name));
    renewed();
    past();
    if (!same) questions();
  };
  /* Look at something, and say so in the address. */
  const open = (kind, which, { focus = true } = {}) => {
    const same = now?.kind === kind && now?.which === `${which}`;
    show(kind, `${which}`);
    if (location.hash !== address()) history[same ? "replaceState" : "pushState"](null, "", address());
    if (focus) { at("closer-title").focus({ preventScroll: true }); at("closer").scrollIntoView({ block: "start" }); }
  };
  const shut = () => {
    now = null;
    turn++;
    at("closer").hidden = true;
    history.pushState(null, "", location.pathname);
    at("map").focus({ preventScroll: true });
  };
  /* Look at what the address says, if at anything. */
  const follow = () => {
    const found = wanted();
    if (found === null) { now = null; turn++; at("closer").hidden = true; return; }
    show(found.kind, found.which);
    page.onFollowed(found);
  };
  const begin = (lent) => {
    page = lent;
    at("span").addEventListener("change", () => { if (now !== null) open(now.kind, now.which, { focus: false }); });
    at("closer-shut").addEventListener("click", shut);
    addEventListener("popstate", follow);
    follow();
  };
  return { begin, open, renewed, clientButton, topicButton };
})();
