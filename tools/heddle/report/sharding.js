// A strip of layers by place, then each tensor as a rectangle with its cuts.
const mostCells = 16;
const axisSize = axis => (data.sharding.axes.find(each => each[0] === axis) || [axis, 1])[1];
const placeColour = place => d3.interpolateCividis(data.timeline.places.length > 1 ? place / (data.timeline.places.length - 1) : 0.3);

function drawLayers(choose) {
  const layers = data.sharding.layers, left = 80, cell = Math.min(40, (width - left - 10) / layers.length);
  const svg = d3.select("#sharding .layers").append("svg").attr("viewBox", [0, 0, width, 74]).attr("width", "100%");
  const hatch = svg.append("pattern").attr("id", "again").attr("width", 6).attr("height", 6).attr("patternUnits", "userSpaceOnUse");
  hatch.append("path").attr("d", "M0,6 L6,0").attr("stroke", "#fff").attr("stroke-width", 1.5);
  svg.append("text").attr("x", 2).attr("y", 26).text("layers");
  const boxes = svg.selectAll("g.layer").data(layers).join("g").attr("class", "layer").attr("transform", (_, i) => `translate(${left + i * cell},10)`)
    .on("mousemove", (layer, i) => tell("sharding", `layer ${i}: place ${layer.place} over pp, chunk ${layer.chunk}` +
      `${layer.experts ? ", experts" : ""}${layer.computed_again ? ", computed again in backward" : ""}`))
    .on("click", (layer, i) => choose(layer.experts, i));
  boxes.append("rect").attr("class", "cell").attr("width", cell).attr("height", 26).attr("fill", layer => placeColour(layer.place));
  boxes.filter(layer => layer.computed_again).append("rect").attr("class", "again inside").attr("width", cell).attr("height", 26).attr("fill", "url(#again)");
  if (cell >= 14)
    boxes.append("text").attr("class", "inside").attr("x", cell / 2).attr("y", 17).attr("text-anchor", "middle").style("font-size", "10px")
      .style("fill", layer => onColour(placeColour(layer.place))).text(layer => layer.place);
  const scale = d3.scaleLinear([0, layers.length], [left, left + cell * layers.length]);
  svg.append("g").attr("class", "axis").attr("transform", "translate(0,38)").call(d3.axisBottom(scale).ticks(Math.min(layers.length, 16)).tickFormat(d3.format("d")));
  svg.append("text").attr("class", "label").attr("x", left).attr("y", 70)
    .text("layer; number and colour: place over pp; hatched: computed again in backward");
}

// As a matrix that is as square as can be: the first dimensions go down, the others to the right.
const product = numbers => numbers.reduce((all, each) => all * each, 1);
function turnOf(shape) {
  const narrow = turn => Math.abs(Math.log(product(shape.slice(0, turn)) / product(shape.slice(turn))));
  return shape.length === 1 ? 1 : d3.range(1, shape.length).reduce((best, turn) => narrow(turn) < narrow(best) ? turn : best, 1);
}
function cutsOf(tensor, turn) {
  const parts = dims => d3.merge(dims).map(axis => [axis, axisSize(axis)]);
  const down = parts(tensor.dims.slice(0, turn)), along = parts(tensor.dims.slice(turn));
  return {down, along, rows: product(down.map(axis => axis[1])), columns: product(along.map(axis => axis[1]))};
}
function drawTensor(box, tensor) {
  const turn = turnOf(tensor.shape), {down, along, rows, columns} = cutsOf(tensor, turn);
  const isVector = tensor.shape.length === 1;
  const vertical = product(tensor.shape.slice(0, turn)), horizontal = product(tensor.shape.slice(turn));
  const longest = Math.max(vertical, horizontal), side = n => Math.max(14, 150 * Math.sqrt(n / longest));
  const high = side(vertical), wide = isVector ? 14 : side(horizontal);
  const svg = box.append("svg").attr("width", wide + 8).attr("height", high + 16).append("g").attr("transform", "translate(4,2)");
  const shownRows = Math.min(rows, mostCells), shownColumns = Math.min(columns, mostCells);
  for (let row = 0; row < shownRows; ++row)
    for (let column = 0; column < shownColumns; ++column) {
      const part = row * shownColumns + column, all = shownRows * shownColumns;
      const fill = all > 1 ? d3.interpolateCividis(0.25 + 0.7 * part / (all - 1)) : "#d5d8dc";
      const cell = svg.append("rect").attr("class", "cell part").attr("x", column * wide / shownColumns).attr("y", row * high / shownRows)
        .attr("width", wide / shownColumns).attr("height", high / shownRows).attr("fill", fill).attr("stroke", "#fff");
      cell.on("mousemove", () => tell("sharding", `${tensor.name}: part ${row}${columns > 1 ? `, ${column}` : ""} of ${rows * columns}` +
        `${rows > shownRows || columns > shownColumns ? ` (${mostCells} are drawn)` : ""}`));
      if (all > 1 && high / shownRows > 11 && wide / shownColumns > 12)
        svg.append("text").attr("class", "inside").attr("text-anchor", "middle").attr("x", (column + 0.5) * wide / shownColumns)
          .attr("y", (row + 0.5) * high / shownRows + 4).style("font-size", "10px").style("fill", onColour(fill)).text(part);
    }
  if (tensor.runs > 1) { // states are cut again, into runs of elements
    const runs = Math.min(tensor.runs, 32);
    svg.append("g").selectAll("rect").data(d3.range(runs)).join("rect").attr("class", "run").attr("x", run => run * wide / runs).attr("y", high + 3)
      .attr("width", wide / runs).attr("height", 6).attr("fill", run => run % 2 ? okabe.sky : okabe.blue);
  }
  const axes = list => list.map(([axis, ranks]) => `${axis} (${ranks})`).join(" × ");
  const lines = [tensor.letters.map((letter, i) => `${letter} ${tensor.shape[i]}`).join(" × ")];
  lines.push(down.length + along.length ? `cut over ${axes([...down, ...along])}` : "whole on every rank");
  lines.push(`a rank has ${tensor.local_shape.join(" × ")}: ${bytesText(tensor.bytes)}`);
  if (tensor.runs > 1) lines.push(`${data.sharding.zero.stage >= 3 ? "it and its states" : "its states"} in ${tensor.runs} runs` +
    `${data.sharding.zero.axes.length ? ` over ${data.sharding.zero.axes.join(", ")}` : ""}`);
  box.selectAll("p").data(lines).join("p").text(line => line);
}

function drawSharding() {
  const sharding = data.sharding;
  d3.select("#sharding .note").text(`Mesh ${sharding.axes.map(([axis, size]) => `${axis} ${size}`).join(" × ")}, outermost first. ` +
    "Each rectangle is a tensor, its first dimensions downwards and the others to the right; numbers are parts, each on other ranks" +
    (sharding.zero.stage ? `; the strip below: runs in which ZeRO-${sharding.zero.stage} stores states` : "") + ". " +
    sharding.values.map(value => `${value.name} (${value.letters.join(" ")}) is cut ` + value.dims.map((axes, i) => axes.length ?
      `along ${value.letters[i]} over ${axes.join(", ")}` : "").filter(text => text).join("; ")).join(". "));
  const hasName = {true: /expert|router|gate\.weight$/, false: /mlp|ffn/};
  function choose(experts, layer) {
    const tensors = sharding.parameters.filter(each => each.segment !== "block" || !hasBoth || !hasName[!experts].test(each.name));
    const boxes = d3.select("#sharding .tensors").html("").selectAll("div").data(tensors).join("div").attr("class", "tensor").attr("data-name", each => each.name);
    boxes.append("b").text(each => each.segment === "block" && layer >= 0 ? each.name.replace("{}", layer) : each.name);
    boxes.each(function (tensor) { drawTensor(d3.select(this), tensor); });
    d3.selectAll("#sharding g.layer rect.cell").attr("stroke", (_, i) => i === layer ? okabe.vermillion : "#fff").attr("stroke-width", (_, i) => i === layer ? 2.5 : 0.5);
  }
  const hasBoth = sharding.layers.some(each => each.experts) && sharding.layers.some(each => !each.experts);
  drawLayers(choose);
  choose(sharding.layers[0].experts, 0);
}
