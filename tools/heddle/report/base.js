"use strict";
// Shared: data, colours (Okabe and Ito's, apart for all kinds of colour vision), numbers with units.
const data = JSON.parse(document.getElementById("data").textContent);
const faults = [];
window.addEventListener("error", event => faults.push(String(event.message)));
document.addEventListener("securitypolicyviolation", event => faults.push("refused: " + event.blockedURI));

const okabe = {black: "#000000", orange: "#E69F00", sky: "#56B4E9", green: "#009E73", yellow: "#F0E442",
               blue: "#0072B2", vermillion: "#D55E00", purple: "#CC79A7", grey: "#999999"};
const slotKinds = {F: ["forward", okabe.sky], D: ["backward", okabe.orange], B: ["backward of inputs", okabe.yellow],
                   W: ["backward of weights", okabe.green], O: ["optimizer", okabe.grey]};
const streamColours = {tp: okabe.vermillion, cp: okabe.yellow, ep: okabe.green, dp: okabe.blue, norm: okabe.black,
                       send: okabe.purple};
const width = 1200;

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const sign = bytes < 0 ? "−" : "";
  let size = Math.abs(bytes), unit = 0;
  while (size >= 1024 && unit < 4) { size /= 1024; ++unit; }
  return `${sign}${size >= 100 || unit === 0 ? size.toFixed(0) : size.toPrecision(3)} ${units[unit]}`;
}
function secondsText(seconds) {
  const size = Math.abs(seconds);
  const [scale, unit] = size >= 1 || size === 0 ? [1, "s"] : size >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${(seconds * scale).toPrecision(4).replace("-", "−")} ${unit}`;
}
const percent = share => `${(100 * share).toFixed(1)} %`;
// 10,450, or 8.03G where there are millions.
const count = number => d3.format(Math.abs(number) < 1e6 ? ",.4~r" : ".4~s")(number);

// The unit in which all ticks of a time axis are written.
function timeUnit(seconds) {
  return seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
}
function darker(colour, chunk) {
  return chunk ? d3.color(colour).darker(Math.min(0.45 * chunk, 2)).toString() : colour;
}
function table(into, heads, rows) {
  const root = d3.select(into);
  root.append("tr").selectAll("th").data(heads).join("th").attr("class", (_, i) => typeof (rows[0] || [])[i] === "object"
    ? "number" : null).text(head => head);
  root.selectAll("tr.row").data(rows).join("tr").attr("class", "row").selectAll("td").data(row => row).join("td")
    .attr("class", cell => typeof cell === "object" ? "number" : null).text(cell => typeof cell === "object" ? cell[0] : cell);
}
function legend(into, entries) {
  const items = d3.select(into).selectAll("span").data(entries).join("span");
  items.append("i").attr("class", entry => entry[2] || null)
    .style("background", entry => entry[2] === "line" ? null : entry[1]);
  items.append("span").text(entry => entry[0]);
}
function picture(section, height) {
  return d3.select(`#${section} .picture`).append("svg").attr("viewBox", [0, 0, width, height])
    .attr("width", "100%").attr("role", "img").attr("aria-label", section);
}
function axisLabel(svg, x, y, text, turned) {
  svg.append("text").attr("class", "label").attr("text-anchor", "middle")
    .attr("transform", `translate(${x},${y})${turned ? " rotate(-90)" : ""}`).text(text);
}
function tell(section, text) { d3.select(`#${section} .detail`).text(text || "\u00a0"); }
// Text colour that can be read on a colour.
function onColour(colour) {
  const {r, g, b} = d3.rgb(colour);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
}
