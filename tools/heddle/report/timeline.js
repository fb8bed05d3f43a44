// Bands of tracks, one band for each place; only what is in the window is drawn, and what is narrower than a
// pixel is drawn together with its neighbours.
const timelineMargin = {left: 160, right: 12, top: 22, bottom: 34};

function bandsOf(places) {
  const tall = {compute: 20, other: 9};
  let y = timelineMargin.top;
  const bands = places.map(place => {
    const top = y;
    const tracks = new Map(place.tracks.map(track => {
      const height = track === "compute" ? tall.compute : tall.other;
      const at = {y, height};
      y += height + 2;
      return [track, at];
    }));
    y += 8;
    return {name: place.name, top, tracks};
  });
  return {bands, height: y};
}

// All boxes, each with its track; tasks of slots only as shares until they can be seen.
function timelineBoxes(timeline, bands) {
  const tasksOf = new Map(timeline.tasks.map(of => [`${of.place} ${of.chunk} ${of.kind}`, of.tasks]));
  const boxes = [];
  timeline.slots.forEach((row, place) => row.forEach(([text, kind, chunk, batch, stage, start, end]) => {
    if (end <= start) return;
    // Two that run interleaved share the band.
    const before = boxes[boxes.length - 1];
    const isJoined = before !== undefined && before.place === place && before.start === start && before.end === end;
    if (isJoined) before.half = 0;
    boxes.push({half: isJoined ? 1 : undefined, place, track: "compute", type: "slot", text, start, end, kind, chunk, batch, stage,
                fill: darker(slotKinds[kind][1], chunk), tasks: tasksOf.get(`${place} ${chunk} ${kind}`) || []});
  }));
  timeline.transfers.forEach(([from, to, text, start, end]) =>
    boxes.push({place: from, track: `to rank ${to}`, type: "transfer", text, start, end, fill: streamColours.send}));
  timeline.ends.forEach((ends, place) => ends.forEach(([track, text, start, end]) =>
    boxes.push({place, track, type: "end", text, start, end,
                fill: track === "compute" ? streamColours.norm : streamColours[track]})));
  return boxes.filter(box => bands[box.place].tracks.has(box.track));
}

const kindColours = {products: ["products", okabe.sky], attention: ["attention", okabe.purple],
                     memory_bound: ["bound by memory", okabe.yellow], optimizer: ["optimizer", okabe.grey]};

function measuredBoxes(places, first) {
  return places.flatMap((place, i) => place.pieces.map(([track, text, kind, label, start, end]) =>
    ({place: first + i, track, type: "measured", text: `${text} (${label})`, start, end,
      fill: kindColours[kind] ? kindColours[kind][1] : streamColours[kind] || streamColours.send})));
}

// A slot's tasks at their places, or one box for each stream with how much of the slot it is used.
function insideOf(box, pixels) {
  const length = box.end - box.start, inside = [];
  if (pixels >= 60) {
    const dpEnd = box.start + length;
    for (const [track, text, start, end] of box.tasks)
      if (box.start + start < dpEnd)
        inside.push({place: box.place, track, type: "task", text: `${box.text}: ${text}`, start: box.start + start,
                     end: box.start + end, fill: streamColours[track] || box.fill, share: 1, ofCompute: track === "compute"});
    return inside;
  }
  const busy = new Map();
  for (const [track, , start, end] of box.tasks)
    if (track !== "compute") busy.set(track, (busy.get(track) || 0) + end - start);
  for (const [track, seconds] of busy)
    inside.push({place: box.place, track, type: "task", text: `${box.text}: ${track} ${percent(Math.min(1, seconds / length))} of it`,
                 start: box.start, end: box.end, fill: streamColours[track], share: Math.min(1, seconds / length)});
  return inside;
}

// Neighbours on a track that together are narrower than a pixel become one.
function merged(boxes, scale) {
  const lasts = new Map(), kept = [];
  for (const box of boxes) {
    const key = `${box.place} ${box.track} ${box.type}`, last = lasts.get(key);
    if (last && scale(box.end) - scale(last.start) < 1) {
      last.end = Math.max(last.end, box.end);
      last.text = "several";
    } else {
      const copy = scale(box.end) - scale(box.start) < 1 ? {...box} : box;
      lasts.set(key, copy);
      kept.push(copy);
    }
  }
  return kept;
}

function drawTimeline() {
  // Below the places of the estimate, ranks as they were measured.
  const timeline = data.timeline, measured = data.measured === null ? [] : data.measured.places;
  const places = [...timeline.places, ...measured], {bands, height} = bandsOf(places);
  const total = height + timelineMargin.bottom, right = width - timelineMargin.right;
  const svg = picture("timeline", total);
  const seconds = Math.max(timeline.seconds, data.measured === null ? 0 : data.measured.seconds);
  const full = d3.scaleLinear([0, seconds], [timelineMargin.left, right]);
  const boxes = [...timelineBoxes(timeline, bands), ...measuredBoxes(measured, timeline.places.length)];
  svg.append("clipPath").attr("id", "window").append("rect").attr("x", timelineMargin.left).attr("width", right - timelineMargin.left)
    .attr("height", total);
  for (const band of bands) {
    svg.append("text").attr("x", 2).attr("y", band.top + 14).text(band.name);
    for (const [name, at] of band.tracks)
      svg.append("text").attr("class", "track").attr("x", timelineMargin.left - 6).attr("text-anchor", "end")
        .attr("data-track", name).attr("y", at.y + at.height / 2 + 4).style("font-size", name === "compute" ? "11px" : "9px").text(name);
  }
  const content = svg.append("g").attr("clip-path", "url(#window)");
  const axis = svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height})`);
  const label = svg.append("text").attr("class", "label").attr("text-anchor", "middle").attr("x", (timelineMargin.left + right) / 2)
    .attr("y", total - 3);

  function draw(scale) {
    const [from, to] = scale.domain();
    const seen = boxes.filter(box => box.end > from && box.start < to);
    const inside = [];
    for (const box of seen)
      if (box.type === "slot") inside.push(...insideOf(box, scale(box.end) - scale(box.start)));
    const shown = merged(seen, scale), tasks = merged(inside.filter(box => box.end > from && box.start < to), scale);
    const at = box => bands[box.place].tracks.get(box.track);
    content.selectAll("rect.box").data([...shown, ...tasks]).join("rect")
      .attr("class", box => `box ${box.type}${box.ofCompute ? " inside" : ""}`)
      .attr("x", box => scale(box.start)).attr("width", box => Math.max(0.5, scale(box.end) - scale(box.start)))
      .attr("y", box => at(box).y + (box.ofCompute ? 15 : box.half ? at(box).height / 2 : 0))
      .attr("height", box => box.ofCompute ? 5 : at(box).height / (box.half === undefined ? 1 : 2))
      .attr("fill", box => box.ofCompute ? (box.text.includes("attention") ? okabe.purple : okabe.yellow) : box.fill)
      .attr("opacity", box => box.share === undefined ? 1 : 0.25 + 0.75 * box.share)
      .on("mousemove", box => tell("timeline", `${places[box.place].name}, ${box.track}: ${box.text}` +
        (box.stage === undefined ? "" : `, ${slotKinds[box.kind][0]}, stage ${box.stage}, micro-batch ${box.batch}`) +
        `, ${secondsText(box.end - box.start)} from ${secondsText(box.start)} to ${secondsText(box.end)}`));
    const wide = shown.filter(box => box.type === "slot" && scale(box.end) - scale(box.start) > 7 * box.text.length + 4);
    content.selectAll("text").data(wide).join("text").attr("class", "inside").attr("text-anchor", "middle")
      .attr("x", box => (Math.max(scale(box.start), timelineMargin.left) + Math.min(scale(box.end), right)) / 2)
      .attr("y", box => at(box).y + (box.half === undefined ? 12 : 9 + 10 * box.half)).style("fill", box => onColour(box.fill)).text(box => box.text);
    const [factor, unit] = timeUnit(to - from);
    axis.call(d3.axisBottom(scale.copy().domain([from * factor, to * factor])).ticks(10));
    label.text(`time from the beginning of the step (${unit})`);
    svg.attr("data-from", from).attr("data-to", to);
  }

  const zoom = d3.zoom().scaleExtent([1, 1e5]).translateExtent([[timelineMargin.left, 0], [right, total]])
    .extent([[timelineMargin.left, 0], [right, total]])
    .on("zoom", () => draw(d3.event.transform.rescaleX(full)));
  svg.call(zoom).on("dblclick.zoom", () => svg.call(zoom.transform, d3.zoomIdentity));
  const tools = d3.select("#timeline .tools");
  for (const [text, act] of [["+", () => svg.call(zoom.scaleBy, 2)], ["−", () => svg.call(zoom.scaleBy, 0.5)],
                             ["◂", () => svg.call(zoom.translateBy, 200 / d3.zoomTransform(svg.node()).k, 0)],
                             ["▸", () => svg.call(zoom.translateBy, -200 / d3.zoomTransform(svg.node()).k, 0)],
                             ["all", () => svg.call(zoom.transform, d3.zoomIdentity)]])
    tools.append("button").attr("data-act", text).text(text).on("click", act);
  const streams = new Set(timeline.places.flatMap(place => place.tracks));
  legend("#timeline .legend", [
    ...Object.entries(slotKinds).filter(([kind]) => timeline.slots.some(row => row.some(slot => slot[1] === kind)))
      .map(([kind, [name, colour]]) => [`${kind} ${name}`, colour]),
    ...["tp", "cp", "ep", "dp"].filter(axis => streams.has(axis)).map(axis => [`along ${axis}, paler: less of the slot`, streamColours[axis]]),
    ...(timeline.transfers.length ? [["between stages", streamColours.send]] : []),
    ...(measured.length ? Object.entries(kindColours).map(([kind, [name, colour]]) => [`measured: ${name}`, colour]) : []),
    ["norm of gradients", streamColours.norm], ["within slots: attention", okabe.purple], ["MLP and others", okabe.yellow]]);
  draw(full);
}
