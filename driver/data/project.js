"use strict";
(() => {
  const time = document.getElementById("time"), view = document.getElementById("view");
  const hover = document.getElementById("hover"), table = document.getElementById("steps");
  const rows = [...table.tBodies[0].rows];
  const rowOf = new Map(rows.map((row) => [row.dataset.n, row]));

  document.getElementById("zoom").addEventListener("input", (event) => {
    const middle = (view.scrollLeft + view.clientWidth / 2) / time.clientWidth;
    time.style.setProperty("--zoom", 2 ** Number(event.target.value));
    view.scrollLeft = middle * time.clientWidth - view.clientWidth / 2;
  });

  time.addEventListener("mouseover", (event) => {
    const step = event.target.closest(".s");
    if (step) hover.textContent = step.title;
  });
  time.addEventListener("click", (event) => {
    const step = event.target.closest(".s");
    if (!step) return;
    for (const node of document.querySelectorAll(".chosen")) node.classList.remove("chosen");
    const row = rowOf.get(step.dataset.n);
    step.classList.add("chosen");
    row.classList.add("chosen");
    row.hidden = false;
    row.scrollIntoView({ block: "nearest" });
  });

  document.getElementById("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });

  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    let sign = -1;
    cell.firstChild.addEventListener("click", () => {
      sign = -sign;
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const isNumber = rows.length > 0 && "v" in rows[0].cells[column].dataset;
      rows.sort((one, other) => sign * (isNumber ? key(one) - key(other) : key(one).localeCompare(key(other))));
      table.tBodies[0].append(...rows);
    });
  });
})();
