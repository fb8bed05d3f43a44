// Above: all places; below: one place, by reason.
// From below: what stays, then what comes and goes.
const memoryColours = {"parameters": okabe.blue, "gradients": okabe.sky, "optimizer": okabe.green, "workspaces of libraries": okabe.black,
  "inputs": "#bbbbbb", "passing between stages": "#7a4b00", "gathered parameters": okabe.purple, "saved for backward": okabe.orange,
  "temporaries of a block": okabe.yellow, "gradients on their way": "#666666", "logits and the head": okabe.vermillion};

function memoryFrame(svg, top, height, most, seconds) {
  const gib = 2 ** 30, left = 60, right = width - 12;
  const x = d3.scaleLinear([0, seconds], [left, right]), y = d3.scaleLinear([0, most * 1.08], [top + height, top]);
  const [factor, unit] = timeUnit(seconds);
  svg.append("g").attr("class", "axis").attr("transform", `translate(0,${top + height})`)
    .call(d3.axisBottom(x.copy().domain([0, seconds * factor])).ticks(10));
  const inUnit = most >= gib ? [gib, "GiB"] : [2 ** 20, "MiB"];
  svg.append("g").attr("class", "axis").attr("transform", `translate(${left},0)`)
    .call(d3.axisLeft(y.copy().domain([0, most * 1.08 / inUnit[0]])).ticks(6));
  axisLabel(svg, 14, top + height / 2, `bytes of a rank (${inUnit[1]})`, true);
  axisLabel(svg, (left + right) / 2, top + height + 31, `time (${unit})`);
  return {x, y, left, right};
}

function drawMemory() {
  const memory = data.memory, seconds = data.timeline.seconds, tall = 190;
  const svg = picture("memory", 2 * tall + 110), sum = point => d3.sum(point.slice(1));
  const most = Math.max(memory.capacity_bytes, d3.max(memory.places, place => place.peak_bytes));
  const isTight = d3.max(memory.places, place => place.peak_bytes) > most / 20;
  const top = isTight ? most : d3.max(memory.places, place => place.peak_bytes);
  const colours = i => d3.interpolateCividis(memory.places.length > 1 ? i / (memory.places.length - 1) : 0);
  const all = memoryFrame(svg, 16, tall, top, seconds);
  svg.append("text").attr("class", "label").attr("x", all.left + 6).attr("y", 12).text("all of a rank, each place over pp");
  memory.places.forEach((place, i) => svg.append("path").attr("class", "total").attr("data-place", i).attr("data-points", place.points.length)
    .attr("fill", "none").attr("stroke", colours(i)).attr("stroke-width", 1.5)
    .attr("d", d3.line().x(point => all.x(point[0])).y(point => all.y(sum(point)))(place.points)));
  if (isTight)
    svg.append("line").attr("class", "capacity").attr("x1", all.left).attr("x2", all.right).attr("y1", all.y(memory.capacity_bytes))
      .attr("y2", all.y(memory.capacity_bytes)).attr("stroke", "#222").attr("stroke-dasharray", "5 4").attr("stroke-width", 1.5);
  const below = svg.append("g");

  const order = Object.keys(memoryColours).map(reason => memory.reasons.indexOf(reason)).filter(index => index >= 0);

  function show(index) {
    const place = memory.places[index], offset = tall + 78;
    below.selectAll("*").remove();
    const frame = memoryFrame(below, offset, tall, place.peak_bytes, seconds);
    below.append("text").attr("class", "label").attr("x", frame.left + 6).attr("y", offset - 4)
      .text(`${data.timeline.places[index].name} by reason; at the peak ${bytesText(place.peak_bytes)}`);
    const stack = d3.stack().keys(order).value((point, key) => point[key + 1])(place.points);
    const shown = stack.filter(layer => memory.reasons[layer.key] in place.peak);
    below.selectAll("path.reason").data(shown).join("path").attr("class", "reason").attr("data-reason", layer => memory.reasons[layer.key])
      .attr("fill", layer => memoryColours[memory.reasons[layer.key]])
      .attr("d", d3.area().x((_, i) => frame.x(place.points[i][0])).y0(layer => frame.y(layer[0])).y1(layer => frame.y(layer[1])));
    const cursor = below.append("line").attr("stroke", "#222").attr("y1", offset).attr("y2", offset + tall).style("display", "none");
    below.append("rect").attr("class", "probe").attr("x", frame.left).attr("y", offset).attr("width", frame.right - frame.left)
      .attr("height", tall).attr("fill", "transparent").on("mousemove", function () {
        const time = frame.x.invert(d3.mouse(this)[0]);
        const at = Math.max(0, d3.bisector(point => point[0]).right(place.points, time) - 1);
        const a = place.points[at], b = place.points[Math.min(at + 1, place.points.length - 1)];
        const part = b[0] > a[0] ? (time - a[0]) / (b[0] - a[0]) : 0;
        const values = a.map((value, i) => value + part * (b[i] - value));
        cursor.attr("x1", frame.x(time)).attr("x2", frame.x(time)).style("display", null);
        tell("memory", `${secondsText(time)}: ${bytesText(sum(values))} = ` + memory.reasons.map((reason, i) => [reason, values[i + 1]])
          .filter(each => each[1] > 0).sort((one, other) => other[1] - one[1]).map(([reason, bytes]) => `${reason} ${bytesText(bytes)}`).join(" + "));
      });
    d3.selectAll("#memory .tools button").classed("on", (_, i) => i === index);
    svg.attr("data-shown", index);
  }

  d3.select("#memory .tools").selectAll("button").data(memory.places).join("button").text((_, i) => `place ${i}`)
    .style("border-bottom", (_, i) => `3px solid ${colours(i)}`).on("click", (_, i) => show(i));
  legend("#memory .legend", [...order.map(index => [memory.reasons[index], memoryColours[memory.reasons[index]]]),
    ...(isTight ? [[`memory for a plan, ${bytesText(memory.capacity_bytes)}`, "", "line"]]
                : [[`memory for a plan is ${bytesText(memory.capacity_bytes)}, far above`, "transparent"]])]);
  show(memory.places.findIndex(place => place.peak_bytes === d3.max(memory.places, each => each.peak_bytes)));
}
