"use strict";
/* The map: brokers and links as Cytoscape draws them. Names are only ever drawn as text. */
const FederationMap = (() => {
  const LABELLED_MAX = 80; // links whose load and delay are written beside them
  const SIMPLE_FROM = 400; // links from which on they are drawn the cheap way
  const place = document.getElementById("map");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const nodeOf = (id) => `b${id}`;
  const linkOf = (a, b) => (a < b ? `l${a}-${b}` : `l${b}-${a}`);
  let chosen = () => {};
  let arranging = false;

  const style = () => {
    const ink = colour("--ink"), card = colour("--card"), bad = colour("--bad"), look = colour("--look");
    const blue = colour("--blue"), faint = colour("--faint"), green = colour("--green"), orange = colour("--orange");
    const simple = cy ? cy.edges().length > SIMPLE_FROM : false;
    return [
      { selector: "node", style: { width: 26, height: 26, "background-color": card, "border-width": 3, "border-color": blue, label: "data(label)", color: ink, "font-size": 11, "text-valign": "bottom", "text-margin-y": 4, "min-zoomed-font-size": 7, "text-outline-width": 2, "text-outline-color": colour("--paper") } },
      { selector: "node.core", style: { shape: "diamond", width: 32, height: 32 } },
      { selector: "node.look", style: { "border-color": look, "border-style": "dashed" } },
      { selector: "node.bad", style: { "border-color": bad, "background-color": bad, shape: "star", width: 36, height: 36, color: bad, "font-weight": "bold" } },
      { selector: "edge", style: { width: "data(width)", "line-color": blue, opacity: simple ? 0.35 : 0.8, "curve-style": "haystack", "haystack-radius": 0 } },
      { selector: "edge[label]", style: { label: "data(label)", "font-size": 9, color: faint, "min-zoomed-font-size": 8, "text-background-color": colour("--paper"), "text-background-opacity": 0.85, "text-background-padding": 2 } },
      { selector: "edge.full", style: { "line-color": orange, opacity: 1 } },
      { selector: "edge.down", style: { "line-color": bad, "line-style": simple ? "solid" : "dashed", opacity: 1, width: 3 } },
      { selector: ".away", style: { opacity: 0.15 } },
      { selector: "edge.mesh", style: { "line-color": colour("--purple"), opacity: 1, width: 6 } },
      { selector: "node.member", style: { "background-color": colour("--purple") } },
      { selector: "edge.hop", style: { "line-color": green, opacity: 1, width: 7 } },
      { selector: "node.hop", style: { "background-color": green, "border-color": green } },
      { selector: ":selected", style: { "overlay-color": orange, "overlay-opacity": 0.35, "overlay-padding": 5 } },
    ];
  };
  let cy = null;
  cy = cytoscape({ container: place, style: [], boxSelectionEnabled: false, textureOnViewport: true, pixelRatio: 1, minZoom: 0.05, maxZoom: 4 });
  const restyle = () => cy.style(style());
  restyle();
  cy.on("tap", "node", (event) => chosen({ broker: event.target.data("broker") }));
  cy.on("tap", "edge", (event) => chosen({ link: event.target.id().slice(1) }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
  new MutationObserver(restyle).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  new ResizeObserver(() => { cy.resize(); if (arranging) cy.fit(undefined, 30); }).observe(place);

  place.addEventListener("keydown", (event) => {
    const step = 60;
    const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (moves[event.key]) cy.panBy({ x: moves[event.key][0], y: moves[event.key][1] });
    else if (event.key === "+" || event.key === "=") cy.zoom(cy.zoom() * 1.25);
    else if (event.key === "-") cy.zoom(cy.zoom() / 1.25);
    else if (event.key === "0") cy.fit(undefined, 30);
    else return;
    arranging = false;
    event.preventDefault();
  });
  cy.on("dragpan scrollzoom pinchzoom", () => (arranging = false));

  const arrange = () => {
    const nodes = cy.nodes();
    if (nodes.empty()) return;
    const many = nodes.length > 60;
    nodes.sort((a, b) => a.data("broker") - b.data("broker")).forEach((node, n) => {
      const angle = (2 * Math.PI * n) / nodes.length; // the same federation is drawn the same way
      node.position({ x: 400 + 300 * Math.cos(angle), y: 300 + 300 * Math.sin(angle) });
    });
    cy.layout({ name: "cose", randomize: false, animate: false, fit: false, numIter: many ? 150 : 1500, idealEdgeLength: () => (many ? 60 : 110), nodeRepulsion: () => (many ? 40000 : 200000), padding: 30 }).run();
    cy.fit(undefined, 30);
    arranging = true;
  };

  const BAD = new Set(["down", "silent"]);
  const LOOK = new Set(["unreached", "not_ready", "draining", "starting"]);
  const classesOf = (broker) => [broker.core_of ? "core" : "", BAD.has(broker.state) ? "bad" : "", LOOK.has(broker.state) ? "look" : ""];
  const keep = (element, names) => ["away", "mesh", "member", "hop"].filter((name) => element.hasClass(name)).concat(names.filter(Boolean)).join(" ");

  return {
    onChosen: (then) => (chosen = then),
    fit: () => { cy.fit(undefined, 30); arranging = true; },
    arrange,
    counts: () => ({ brokers: cy.nodes().length, links: cy.edges().length }),
    /* What a test asks: how something is drawn. */
    drawn: (id) => { const found = cy.getElementById(id); return found.empty() ? null : { classes: found.classes(), ...found.data(), ...(found.isNode() ? { at: found.renderedPosition() } : {}) }; },
    pan: (x, y) => cy.panBy({ x, y }),
    zoom: (factor) => cy.zoom(cy.zoom() * factor),
    show(brokers, links, nameOf, words) {
      let news = false;
      const before = cy.edges().length > SIMPLE_FROM;
      cy.batch(() => {
        const wanted = new Set();
        for (const broker of brokers.all.values()) {
          const id = nodeOf(broker.id);
          wanted.add(id);
          let node = cy.getElementById(id);
          if (node.empty()) {
            node = cy.add({ group: "nodes", data: { id, broker: broker.id, label: nameOf(broker.id) }, position: { x: 400, y: 300 } });
            news = true;
          } else if (!brokers.changed.has(broker.id)) continue;
          if (node.data("label") !== nameOf(broker.id)) node.data("label", nameOf(broker.id));
          const classes = keep(node, classesOf(broker));
          if (node.classes().join(" ") !== classes) node.classes(classes);
        }
        const few = links.all.size <= LABELLED_MAX;
        for (const [key, link] of links.all) {
          const id = `l${key}`;
          wanted.add(id);
          let edge = cy.getElementById(id);
          if (edge.empty()) {
            if (cy.getElementById(nodeOf(link.a)).empty() || cy.getElementById(nodeOf(link.b)).empty()) continue;
            edge = cy.add({ group: "edges", data: { id, source: nodeOf(link.a), target: nodeOf(link.b), width: 2 } });
            news = true;
          } else if (!links.changed.has(key)) continue;
          const width = 2 + Math.round(6 * Math.min(1, link.load || 0));
          if (edge.data("width") !== width) edge.data("width", width);
          const label = few ? words(link) : undefined;
          if (edge.data("label") !== label) label === undefined ? edge.removeData("label") : edge.data("label", label);
          const classes = keep(edge, [link.up ? "" : "down", link.up && link.load >= 0.8 ? "full" : ""]);
          if (edge.classes().join(" ") !== classes) edge.classes(classes);
        }
        cy.elements().forEach((element) => { if (!wanted.has(element.id())) element.remove(); });
      });
      if (before !== (cy.edges().length > SIMPLE_FROM)) restyle();
      if (news) arrange();
    },
    choose(id) {
      cy.elements(":selected").unselect();
      if (id) cy.getElementById(id).select();
    },
    clear() { cy.batch(() => cy.elements().removeClass("away mesh member hop")); },
    drawMesh(members, pairs) {
      this.clear();
      cy.batch(() => {
        cy.elements().addClass("away");
        for (const id of members) cy.getElementById(nodeOf(id)).removeClass("away").addClass("member");
        for (const [a, b] of pairs) cy.getElementById(linkOf(a, b)).removeClass("away").addClass("mesh");
      });
    },
    drawBrokers(ids) {
      this.clear();
      cy.batch(() => {
        cy.elements().addClass("away");
        for (const id of ids) cy.getElementById(nodeOf(id)).removeClass("away").addClass("member");
      });
    },
    light(from, to) {
      if (from !== null) cy.getElementById(linkOf(from, to)).removeClass("away").addClass("hop");
      cy.getElementById(nodeOf(to)).removeClass("away").addClass("hop");
    },
    fade() { this.clear(); cy.elements().addClass("away"); },
  };
})();
