// Draws the list of a version's lineage as a graph. The list stays for those who have no script.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const LONGEST = 30;
  const HEIGHT = 44;

  function add(parent, name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  function cut(text) {
    return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
  }

  function laidOut(items) {
    const isNarrow = matchMedia("(max-width: 40rem)").matches;
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: isNarrow ? "TB" : "LR", nodesep: 16, ranksep: isNarrow ? 40 : 72, marginx: 4, marginy: 4 });
    for (const item of items) {
      const width = Math.max(cut(item.dataset.label).length * 7.6, item.dataset.kind.length * 7) + 28;
      graph.setNode(item.dataset.value, { item, width, height: HEIGHT });
    }
    for (const item of items) {
      for (const edge of item.dataset.edges.split(" ").filter(Boolean)) {
        const at = edge.lastIndexOf("=");
        graph.setEdge(edge.slice(0, at), item.dataset.value, {
          role: edge.slice(at + 1), width: 56, height: 14, labelpos: "c",
        });
      }
    }
    dagre.layout(graph);
    return graph;
  }

  // Through the middles of a line's inner pieces, so that it has no corners.
  function curve(points) {
    const end = points.at(-1);
    let path = `M${points[0].x},${points[0].y}`;
    for (let i = 1; i < points.length - 1; i += 1) {
      const to = i === points.length - 2 ? end : { x: (points[i].x + points[i + 1].x) / 2, y: (points[i].y + points[i + 1].y) / 2 };
      path += `Q${points[i].x},${points[i].y} ${to.x},${to.y}`;
    }
    return points.length > 2 ? path : `${path}L${end.x},${end.y}`;
  }

  function drawEdge(svg, edge) {
    add(svg, "path", { d: curve(edge.points), class: "edge", "marker-end": "url(#arrow)" });
    add(svg, "text", { x: edge.x, y: edge.y - 5, class: "role" }, edge.role);
  }

  function drawNode(svg, node, root) {
    const { item, width, x, y } = node;
    const isRoot = item.dataset.value === root;
    const attributes = { transform: `translate(${x - width / 2},${y - HEIGHT / 2})`, class: isRoot ? "node root" : "node" };
    const link = item.dataset.link && !isRoot;
    const group = add(svg, link ? "a" : "g", link ? { ...attributes, href: item.dataset.link, id: `node-${item.dataset.value}` } : attributes);
    add(group, "title", {}, item.dataset.label);
    add(group, "rect", { width, height: HEIGHT, rx: 8 });
    add(group, "text", { x: 14, y: 19, class: "label" }, cut(item.dataset.label));
    add(group, "text", { x: 14, y: 34, class: "kind" }, item.dataset.kind);
  }

  function draw(list) {
    const items = [...list.children];
    if (items.length < 2) return;
    const graph = laidOut(items);
    const { width, height } = graph.graph();
    const holder = document.createElement("div");
    holder.className = "graph";
    const svg = add(holder, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Lineage graph" });
    const marker = add(add(svg, "defs", {}), "marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" });
    add(marker, "path", { d: "M0,0L8,4L0,8z", class: "arrow" });
    for (const edge of graph.edges()) drawEdge(svg, graph.edge(edge));
    for (const name of graph.nodes()) drawNode(svg, graph.node(name), list.dataset.root);
    list.after(holder);
    list.hidden = true;
    holder.scrollLeft = graph.node(list.dataset.root).x - holder.clientWidth / 2;
  }

  function drawAll() {
    for (const list of document.querySelectorAll("ol.lineage:not([hidden])")) draw(list);
  }

  drawAll();
  document.body.addEventListener("htmx:afterSwap", drawAll);
})();
