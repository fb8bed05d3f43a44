function drawSummary() {
  const e = data.estimate, axes = Object.entries(e.communication);
  document.title = `${data.model}: ${data.plan}`;
  d3.select("#title").text(`${data.model} on ${data.devices} × ${data.device} (${data.cluster})`);
  d3.select("#subtitle").text(`${data.plan}; ${count(data.parameters)} parameters, ${data.global_batch} sequences of ` +
    `${data.sequence_length} tokens a step; ${data.is_given ? "the plan was given" : "the best plan that was found"}` +
    (data.not_compiled_yet.length ? `; planned, not compiled yet: ${data.not_compiled_yet.join(", ")}` : ""));
  const peak = d3.max(e.memory.peak_bytes);
  const cards = [
    ["a step", secondsText(e.step_seconds)],
    ["tokens/s of a device", count(Math.round(e.tokens_per_second_per_device))],
    [`MFU of ${count(e.peak_flops_per_second / 1e12)} TFLOP/s`, percent(e.mfu)],
    ["HFU of the same", percent(e.hfu)],
    ["ranks of pp idle", percent(e.bubble_fraction)],
    [`of ${bytesText(e.memory.capacity_bytes)} at the peak`, bytesText(peak), !e.fits],
    [`checkpoint, ${e.checkpoint.bytes_per_parameter} B a parameter`, bytesText(e.checkpoint.bytes)]];
  if (e.checkpoint.interval_seconds !== null)
    cards.push([`wasted by a pause every ${count(e.checkpoint.interval_seconds / 60)} min`,
                percent(e.checkpoint.waste_fraction)]);
  if (e.training !== null)
    cards.push([`for ${count(e.training.tokens)} tokens: ${count(e.training.device_hours)} device hours`,
                `${count(e.training.seconds / 86400)} days`]);
  const boxes = d3.select("#summary .cards").selectAll("div").data(cards).join("div")
    .attr("class", card => card[2] ? "card bad" : "card");
  boxes.append("b").text(card => card[1]);
  boxes.append("span").text(card => card[0]);
  table("#summary .communication", ["axis", "sent", "seconds", "exposed", "ideal", "slowest link"],
    axes.map(([axis, of]) => [axis, [bytesText(of.bytes_per_rank)], [secondsText(of.seconds)],
                              [secondsText(of.exposed_seconds)], [secondsText(of.seconds_ideal)], of.link]));
  const seconds = e.compute.seconds;
  table("#summary .compute", [`place ${e.compute.place}`, "seconds", "of the step"],
    [["matrix products", seconds.products], ["attention", seconds.attention], ["bound by memory", seconds.memory_bound],
     ["optimizer", seconds.optimizer]].map(([name, s]) => [name, [secondsText(s)], [percent(s / e.step_seconds)]]));
  drawMeasured();
  const decisions = e.decisions.map(d => [d.key, d.choice, d.runner_up === null ? "nothing else fits" : d.runner_up,
    [d.runner_up === null ? "" : (d.cost_seconds < 0 ? "" : "+") + secondsText(d.cost_seconds)],
    [d.runner_up === null ? "" : (d.cost_bytes < 0 ? "" : "+") + bytesText(d.cost_bytes)], d.runner_up_plan || ""]);
  if (e.decisions.some(d => d.cost_seconds < 0))
    d3.select("#decisions .note").text("Each choice, and what the best plan with another one costs; below zero: that plan is faster than this one.");
  table("#decisions table", ["choice", "chosen", "runner-up", "step", "peak memory", "the plan with it"], decisions);
}

// The estimate's error, by what takes the time. Without a measured step there is no table.
function drawMeasured() {
  if (data.measured === null) {
    d3.select("#summary div.measured").remove();
    return;
  }
  const names = {products: "matrix products", memory_bound: "bound by memory", step: "the step"};
  table("#summary table.measured", [`${data.measured.ranks} ranks`, "predicted", "measured", "error"],
    data.measured.kinds.map(kind => [names[kind.name] || kind.name,
      [kind.predicted_seconds === null ? "" : secondsText(kind.predicted_seconds)], [secondsText(kind.measured_seconds)],
      [kind.error === null ? "" : (kind.error < 0 ? "" : "+") + percent(kind.error)]]));
}
