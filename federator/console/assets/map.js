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
    const small = place.clientWidth < 500; // on a phone all of it is drawn smaller
    const simple = cy ? cy.edges().length > SIMPLE_FROM : false;
    return [
      { selector: "node", style: { width: 26, height: 26, "background-color": card, "border-width": 3, "border-color": blue, label: "data(label)", color: ink, "font-size": small ? 19 : 11, "text-valign": "bottom", "text-margin-y": 4, "min-zoomed-font-size": 7, "text-outline-width": small ? 3 : 2, "text-outline-color": colour("--paper") } },
      { selector: "node.core", style: { shape: "diamond", width: 32, height: 32 } },
      { selector: "node.look", style: { "border-color": look, "border-style": "dashed" } },
      { selector: "node.bad", style: { "border-color": bad, "background-color": bad, shape: "star", width: 36, height: 36, color: bad, "font-weight": "bold" } },
      { selector: "edge", style: { width: "data(width)", "line-color": blue, opacity: simple ? 0.35 : 0.8, "curve-style": "haystack", "haystack-radius": 0 } },
      { selector: "edge[label]", style: { label: "data(label)", "font-size": small ? 14 : 9, color: faint, "min-zoomed-font-size": 8, "text-background-color": colour("--paper"), "text-background-opacity": 1, "text-background-padding": 2 } },
      { selector: "edge.full", style: { "line-color": orange, opacity: 1 } },
      { selector: "edge.down", style: { "line-color": bad, "line-style": simple ? "solid" : "dashed", opacity: 1, width: 3 } },
      { selector: ".away", style: { opacity: 0.15 } },
      { selector: "edge.mesh", style: { "line-color": colour("--purple"), opacity: 1, width: 6 } },
      { selector: "node.member", style: { "background-color": colour("--purple") } },
      { selector: "edge.hop", style: { "line-color": green, opacity: 1, width: 7 } },
      { selector: "node.hop", style: { "background-color": green, "border-color": green } },
      { selector: ":selected", style: { "underlay-color": orange, "underlay-opacity": 0.5, "underlay-padding": 7 } },
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
  const STATE_CLASSES = ["core", "bad", "look", "down", "full"];
  const draw = (element, names) => { for (const name of STATE_CLASSES) if (element.hasClass(name) !== names.includes(name)) element.toggleClass(name, names.includes(name)); };

  return {
    onChosen: (then) => (chosen = then),
    fit: () => { cy.fit(undefined, 30); arranging = true; },
    arrange,
    counts: () => ({ brokers: cy.nodes().length, links: cy.edges().length }),
    /* What a test asks: how something is drawn. */
    drawn: (id) => { const found = cy.getElementById(id); return found.empty() ? null : { classes: found.classes(), ...found.data(), ...(found.isNode() ? { at: found.renderedPosition() } : {}) }; },
    pan: (x, y) => cy.panBy({ x, y }),
    zoom: (factor) => cy.zoom(cy.zoom() * factor),
    /* Draw what changed: ids of brokers, keys of links; all of them, and no others, if whole. */
    show(brokers, links, changed, whole, nameOf, words) {
      let news = false;
      const before = cy.edges().length > SIMPLE_FROM;
      const few = links.size <= LABELLED_MAX;
      cy.batch(() => {
        if (whole) cy.elements().filter((each) => !(each.isNode() ? brokers.has(each.data("broker")) : links.has(each.id().slice(1)))).remove();
        for (const number of changed.brokers) {
          const broker = brokers.get(number), label = nameOf(number);
          let node = cy.getElementById(nodeOf(number));
          if (node.empty()) {
            node = cy.add({ group: "nodes", data: { id: nodeOf(number), broker: number, label }, position: { x: 400, y: 300 } });
            news = true;
          }
          if (node.data("label") !== label) node.data("label", label);
          draw(node, classesOf(broker));
        }
        for (const key of changed.links) {
          const link = links.get(key), width = 2 + Math.round(6 * Math.min(1, link.load || 0));
          let edge = cy.getElementById(`l${key}`);
          if (edge.empty()) {
            edge = cy.add({ group: "edges", data: { id: `l${key}`, source: nodeOf(link.a), target: nodeOf(link.b), width } });
            news = true;
          }
          if (edge.data("width") !== width) edge.data("width", width);
          const label = few ? words(link) : undefined;
          if (edge.data("label") !== label) label === undefined ? edge.removeData("label") : edge.data("label", label);
          draw(edge, [link.up ? "" : "down", link.up && link.load >= 0.8 ? "full" : ""]);
        }
      });
      if (before !== cy.edges().length > SIMPLE_FROM) restyle();
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
