function drawSchedule() {
  const rows = data.timeline.slots, left = 90, most = d3.max(rows, row => row.length);
  const cell = Math.max(3, Math.min(26, (width - left - 12) / most)), tall = 20;
  const height = 8 + rows.length * (tall + 3), svg = picture("schedule", height + 34);
  const whole = left + most * cell + 12;
  if (whole > width) // wider than the page: it scrolls
    svg.attr("viewBox", null).attr("width", whole).attr("height", height + 34);
  rows.forEach((row, place) => {
    const y = 6 + place * (tall + 3);
    svg.append("text").attr("x", 2).attr("y", y + 14).text(data.timeline.places[place].name);
    svg.append("g").selectAll("rect").data(row).join("rect").attr("class", "cell").attr("x", (_, i) => left + i * cell)
      .attr("y", y).attr("width", cell).attr("height", tall).attr("fill", slot => darker(slotKinds[slot[1]][1], slot[2]))
      .attr("stroke-width", cell < 4 ? 0 : 0.5)
      .on("mousemove", slot => tell("schedule", `${data.timeline.places[place].name}: ${slot[0]}, ${slotKinds[slot[1]][0]}` +
        (slot[1] === "O" ? "" : `, chunk ${slot[2]}, stage ${slot[4]}, micro-batch ${slot[3]}`) + `, ${secondsText(slot[6] - slot[5])}`));
    if (cell >= 14)
      svg.append("g").selectAll("text").data(row).join("text").attr("class", "inside").attr("text-anchor", "middle")
        .attr("x", (_, i) => left + (i + 0.5) * cell).attr("y", y + 14).style("font-size", "10px")
        .style("fill", slot => onColour(darker(slotKinds[slot[1]][1], slot[2]))).text(slot => slot[1] === "O" ? "O" : slot[3]);
  });
  const scale = d3.scaleLinear([0, most], [left, left + most * cell]);
  svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height})`).call(d3.axisBottom(scale).ticks(Math.min(most, Math.ceil(whole / 60))));
  axisLabel(svg, left + Math.min(most * cell, width - left) / 2, height + 31, "slots, in order");
  const kinds = new Set(rows.flat().map(slot => slot[1]));
  legend("#schedule .legend", Object.entries(slotKinds).filter(([kind]) => kinds.has(kind)).map(([kind, [name, colour]]) => [`${kind} ${name}`, colour]));
}
