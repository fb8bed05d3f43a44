// Step time against memory that is left free; colour: how much slower with a tenth less on the outermost link.
function drawFront() {
  const found = data.found, search = found.search, chosen = data.estimate;
  const note = d3.select("#front .note");
  const free = chosen.memory.capacity_bytes - d3.max(chosen.memory.peak_bytes);
  const points = [...found.front.map(plan => ({...plan, type: "front"})),
                  ...found.plans.filter(plan => !found.front.some(each => each.text === plan.text)).map(plan => ({...plan, type: "best"}))];
  if (!points.length) { note.text("No plan fits, so that there is no front."); return; }
  note.text(`${count(search.evaluations)} plans were simulated of ${search.meshes} meshes; ` +
    (search.is_exact ? "no plan of the space is faster by this model. " : `the search stopped within ${percent(search.gap)} of the best possible. `) +
    "Circles: not beaten in step time, free memory and sensitivity to the slowest link at once; squares: other plans among the fastest; " +
    "cross: the plan of this page.");
  const [factor, unit] = timeUnit(d3.max(points, point => point.step_seconds));
  const height = 330, left = 70, right = width - 20, top = 12, bottom = height - 44;
  const svg = picture("front", height), here = {step_seconds: chosen.step_seconds, head_room_bytes: free};
  const pad = ([low, high]) => { const by = (high - low || high || 1) * 0.07; return [low - by, high + by]; };
  const x = d3.scaleLinear(pad(d3.extent([...points, here], point => point.step_seconds * factor)), [left, right]);
  const inUnit = d3.max(points, point => point.head_room_bytes) >= 2 ** 30 ? [2 ** 30, "GiB"] : [2 ** 20, "MiB"];
  const y = d3.scaleLinear(pad(d3.extent([...points, here], point => point.head_room_bytes / inUnit[0])), [bottom, top]);
  svg.append("g").attr("class", "grid").attr("transform", `translate(0,${bottom})`).call(d3.axisBottom(x).ticks(10).tickSize(top - bottom).tickFormat(""));
  svg.append("g").attr("class", "grid").attr("transform", `translate(${left},0)`).call(d3.axisLeft(y).ticks(6).tickSize(left - right).tickFormat(""));
  svg.append("g").attr("class", "axis").attr("transform", `translate(0,${bottom})`).call(d3.axisBottom(x).ticks(10));
  svg.append("g").attr("class", "axis").attr("transform", `translate(${left},0)`).call(d3.axisLeft(y).ticks(6));
  axisLabel(svg, (left + right) / 2, height - 6, `time of a step (${unit})`);
  axisLabel(svg, 16, (top + bottom) / 2, `memory left free at the peak (${inUnit[1]})`, true);
  const slower = point => point.slow_link_step_seconds > 0 ? point.slow_link_step_seconds / point.step_seconds - 1 : 0;
  const most = d3.max(points, slower) || 1e-9, colour = d3.scaleSequential(d3.interpolateCividis).domain([most, 0]);
  const shape = point => d3.symbol().size(90).type(point.type === "front" ? d3.symbolCircle : d3.symbolSquare)();
  svg.append("g").selectAll("path").data(points).join("path").attr("class", point => `point ${point.type}`).attr("d", shape)
    .attr("transform", point => `translate(${x(point.step_seconds * factor)},${y(point.head_room_bytes / inUnit[0])})`)
    .attr("fill", point => colour(slower(point))).attr("stroke", "#222").attr("stroke-width", 0.7)
    .on("mousemove", point => tell("front", `${point.text}: ${secondsText(point.step_seconds)} a step, ${bytesText(point.head_room_bytes)} free, ` +
      `${(100 * slower(point)).toFixed(2)} % slower with a tenth less on the outermost link`));
  svg.append("path").attr("class", "chosen").attr("d", d3.symbol().type(d3.symbolCross).size(160)()).attr("fill", "none")
    .attr("stroke", okabe.vermillion).attr("stroke-width", 2).style("pointer-events", "none")
    .attr("transform", `translate(${x(here.step_seconds * factor)},${y(free / inUnit[0])}) rotate(45)`);
  legend("#front .legend", [[`not slower with a tenth less on the outermost link`, colour(0), "round"],
    [`${(100 * most / 2).toFixed(2)} % slower`, colour(most / 2), "round"], [`${(100 * most).toFixed(2)} % slower`, colour(most), "round"]]);
}
