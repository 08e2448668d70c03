// The live page: replaces what the server sends anew, and turns times into "12 s ago". Works without: times stay absolute.
"use strict";

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function relative(seconds) {
  const ahead = seconds < 0;
  const rest = Math.abs(Math.round(seconds));
  if (rest < 2) return ahead ? "now" : "just now";
  const at = UNITS.findIndex(([, size]) => rest >= size);
  const [unit, size] = UNITS[at];
  const whole = Math.floor(rest / size);
  let text = `${whole} ${unit}`;
  if (unit === "h" && whole < 6) {
    const minutes = Math.floor((rest - whole * size) / 60);
    if (minutes) text += ` ${minutes} min`;
  }
  return ahead ? `in ${text}` : `${text} ago`;
}

function tellTimes(root) {
  const now = Date.now();
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    const seconds = (now - at) / 1000;
    const text = element.classList.contains("due") && seconds > -1 ? "due now" : relative(seconds);
    if (element.textContent !== text) element.textContent = text;
    if (!element.title) element.title = at.toLocaleString();
  }
}

function elementOf(html) {
  const template = document.createElement("template");
  template.innerHTML = html.trim();
  return template.content.firstElementChild;
}

class LivePage {
  constructor(url) {
    this.url = url;
    this.sign = document.getElementById("live");
    this.rows = document.getElementById("rows");
    this.isFirst = true;
    this.connect();
  }

  connect() {
    const source = new EventSource(this.url);
    source.addEventListener("open", () => this.say("on", "live"));
    source.addEventListener("patch", (event) => this.patch(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      this.say("lost", "connection lost, trying again");
      if (source.readyState === EventSource.CLOSED) {
        setTimeout(() => this.connect(), 3000 + Math.random() * 2000);
      }
    });
  }

  say(state, text) {
    this.sign.dataset.state = state;
    this.sign.querySelector(".text").textContent = text;
  }

  patch(change) {
    for (const [id, html] of Object.entries(change.parts || {})) {
      const place = document.getElementById(id);
      if (!place) continue;
      const log = place.querySelector(".log");
      const wasAtEnd = log && log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      const top = log ? log.scrollTop : 0;
      place.innerHTML = html;
      const after = place.querySelector(".log");
      if (after) after.scrollTop = wasAtEnd ? after.scrollHeight : top;
      tellTimes(place);
    }
    if (change.order && this.rows) this.arrange(change.order, change.rows || {});
    this.isFirst = false;
  }

  arrange(order, html) {
    const known = new Map(Array.from(this.rows.children, (row) => [row.id, row]));
    const focused = document.activeElement && document.activeElement.closest("tr");
    const wanted = order.map((id) => {
      const old = known.get(id);
      if (!(id in html)) return old;
      const row = elementOf(html[id]);
      if (!this.isFirst) row.classList.add("changed-now");
      tellTimes(row);
      return row;
    }).filter(Boolean);
    wanted.forEach((row, index) => {
      const present = this.rows.children[index];
      if (present === row) return;
      if (present && present.id === row.id) present.replaceWith(row);
      else this.rows.insertBefore(row, present || null);
    });
    while (this.rows.children.length > wanted.length) this.rows.lastElementChild.remove();
    if (focused && !focused.isConnected) {
      const again = document.getElementById(focused.id);
      if (again) again.querySelector("a").focus();
    }
  }
}

tellTimes(document);
setInterval(() => tellTimes(document), 1000);
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
if (document.body.dataset.live) new LivePage(document.body.dataset.live);
