// A picture that fails leaves the others, and is told at the top.
for (const draw of [drawSummary, drawTimeline, drawSchedule, drawMemory, drawFront, drawSharding])
  try { draw(); } catch (fault) { faults.push(`${draw.name}: ${fault.message}`); }
if (faults.length)
  d3.select("header").append("p").attr("class", "fault").text(faults.join("; "));
document.documentElement.setAttribute("data-faults", faults.length);
