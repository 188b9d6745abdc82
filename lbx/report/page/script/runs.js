// Runs: a box each, which hides it in every chart and table.
for (const item of all("ul.runs li")) {
  const onchange = (event) => {
    for (const node of all("main .r" + item.dataset.run)) node.classList.toggle("off", !event.target.checked);
    for (const draw of redraw) draw();
  };
  const box = made("input", { type: "checkbox", checked: true, onchange });
  item.append(made("label", {}, box, " ", ...item.childNodes));
}
