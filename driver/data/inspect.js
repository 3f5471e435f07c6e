"use strict";
(() => {
  const map = document.getElementById("map");
  const out = document.getElementById("out");
  const hover = document.getElementById("hover");
  // How many pixels a label needs, by what it names.
  const room = { file: [170, 130], image: [52, 24], code: [110, 90], leaf: [46, 46] };
  const boxes = [...map.querySelectorAll(".b")].map((node) => {
    const style = node.style;
    const value = (name) => Number(style.getPropertyValue(name));
    if (!node.firstChild) node.append(document.createElement("span"));
    const text = node.firstChild;
    if (!text.textContent) text.textContent = node.title.split("\n")[0];
    const role = [...node.classList].find((name) => name in room);
    return { node, role, depth: Number(node.dataset.d), x: value("--x"), y: value("--y"), w: value("--w"), h: value("--h") };
  });
  const whole = { x: 0, y: 0, w: 100, h: 100 };
  const path = [whole];

  // Labels that do not fit only hide the box.
  function label() {
    const top = path[path.length - 1];
    const width = map.clientWidth / top.w, height = map.clientHeight / top.h;
    for (const box of boxes) {
      const [least, lowest] = room[box.role];
      box.node.classList.toggle("tiny", box.w * width < least || box.h * height < lowest);
    }
  }

  function show() {
    const top = path[path.length - 1];
    map.style.setProperty("--ox", top.x);
    map.style.setProperty("--oy", top.y);
    map.style.setProperty("--sx", 100 / top.w);
    map.style.setProperty("--sy", 100 / top.h);
    out.hidden = path.length === 1;
    label();
  }

  const holds = (outer, inner) =>
    outer.x - 3e-4 <= inner.x && outer.y - 3e-4 <= inner.y &&
    inner.x + inner.w <= outer.x + outer.w + 3e-4 && inner.y + inner.h <= outer.y + outer.h + 3e-4;

  map.addEventListener("click", (event) => {
    const leaf = boxes.find((box) => box.node === event.target.closest(".b"));
    if (!leaf) return;
    const top = path[path.length - 1];
    const next = boxes
      .filter((box) => box.depth <= leaf.depth && holds(box, leaf) && holds(top, box) && box.w * box.h < top.w * top.h * 0.999)
      .sort((one, other) => other.w * other.h - one.w * one.h)[0];
    if (next) { path.push(next); show(); }
  });
  function back() { if (path.length > 1) { path.pop(); show(); } }
  out.addEventListener("click", back);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") back(); });
  map.addEventListener("mouseover", (event) => {
    const node = event.target.closest(".b");
    if (node) hover.textContent = node.title.replace("\n", ": ");
  });
  window.addEventListener("resize", label);
  show();

  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[column];
        return cell.dataset.v === "" ? cell.textContent || -1 : cell.dataset.v;
      };
      const text = new Intl.Collator("en", { numeric: true });
      const rows = [...body.rows].sort((one, other) => sign * (key(one) === undefined
        ? text.compare(one.cells[column].textContent, other.cells[column].textContent)
        : key(one) - key(other)));
      body.append(...rows);
    }));
    const search = table.closest("details").querySelector("input");
    if (search) search.addEventListener("input", () => {
      const wanted = search.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }
})();
