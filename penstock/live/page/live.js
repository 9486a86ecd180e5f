// Asks the program for the stream's state, shows it, and says when there is none any more.

const kPollMs = 200;
const kRetryMs = 1000;
const kPatienceMs = 4000;
const kStepMs = 2000;  // of the timeline, with reduced motion

async function get(path, headers = {}) {
  const response =
      await fetch(path, {headers, cache: "no-store", signal: AbortSignal.timeout(kPatienceMs)});
  if (!response.ok && response.status !== 304) throw new Error(`${path}: ${response.status}`);
  return response;
}

class LivePage {
  constructor() {
    this.tooltip = new Tooltip(document.getElementById("tooltip"));
    this.view = new StreamView(this.tooltip);
    this.lanes =
        new StreamTimeline(document.getElementById("lanes"), document.getElementById("span"));
    this.pictures = [new PictureView("input", "Input"), new PictureView("output", "Output")];
    this.polls = 0;
    this.connection = "connecting";
    this.theme = new Theme(document.getElementById("theme"), () => this.recolour());
    this.recolour();
    this.controls();
    window.addEventListener("resize", () => this.redraw());
    document.addEventListener("visibilitychange", () => this.wake());
    this.wake();
  }

  controls() {
    const on = (id, action) => document.getElementById(id).addEventListener("click", action);
    on("pause", (event) => {
      this.lanes.paused = !this.lanes.paused;
      event.target.textContent = this.lanes.paused ? "Go on" : "Pause";
      event.target.setAttribute("aria-pressed", String(this.lanes.paused));
      this.animate();
    });
    on("longer", () => this.lanes.zoom(1));
    on("shorter", () => this.lanes.zoom(-1));
    this.lanes.reduced.addEventListener("change", () => this.animate());
  }

  // A hidden page asks nothing and draws nothing.
  wake() {
    if (document.hidden) return;
    if (!this.isPolling) this.poll();
    this.animate();
  }

  async poll() {
    this.isPolling = true;
    while (!document.hidden) {
      const isOver = await this.ask().catch(complain);
      const pause = isOver || this.connection === "lost" ? kRetryMs : kPollMs;
      await new Promise((done) => setTimeout(done, pause));
    }
    this.isPolling = false;
  }

  // Returns whether the stream has ended.
  async ask() {
    let state;
    try {
      const [response] = await Promise.all(
          [get("/state"), ...this.pictures.map((picture) => picture.refresh(get))]);
      state = await response.json();
    } catch (error) {
      this.lose();
      return false;
    }
    if (!state || typeof state !== "object") state = {};
    this.view.show(state);
    this.lanes.add(state.timeline, Array.isArray(state.stages) ? state.stages : []);
    ++this.polls;
    this.say(state.ended ? "ended" : "live", state.message ? String(state.message) : "");
    this.animate();
    this.mark();
    return Boolean(state.ended);
  }

  lose() {
    // An ended stream whose program ended, too, is no loss.
    if (this.connection === "ended") return;
    this.say("lost", "");
    this.mark();
  }

  // Sets texts only when they change: a screen reader says each change.
  say(connection, message) {
    if (connection === this.connection && message === this.message) return;
    this.connection = connection;
    this.message = message;
    const status = document.getElementById("status"), notice = document.getElementById("notice");
    const words = {live: "live", ended: "ended", lost: "connection lost"};
    status.textContent = words[connection];
    status.className = "status " + connection;
    notice.className = connection;
    notice.hidden = connection === "live" && !message;
    const time = new Date().toLocaleTimeString();
    notice.textContent = connection === "ended" ?
        `The stream has ended${message ? ": " + message : ""}. These are its last numbers.` :
        connection === "lost" ?
        `No answer from the program since ${time}. This is the last state that it sent; the page ` +
            "keeps trying." :
        message;
  }

  // Moves the timeline once per frame of the screen, or in steps for those who want less motion.
  animate() {
    const isMoving = () => !document.hidden && !this.lanes.paused && this.connection === "live" &&
        !this.lanes.reduced.matches;
    if (!isMoving()) {
      const now = performance.now();
      const isStepping = this.connection === "live" && now - this.stepped < kStepMs;
      if (this.lanes.paused || isStepping || this.lanes.newest === null) return;
      this.stepped = now;
      this.lanes.tick(false);
      return;
    }
    if (this.frame) return;
    const step = () => {
      this.frame = null;
      if (!isMoving()) return;
      this.lanes.tick(true);
      this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  redraw() {
    this.lanes.request();
    for (const chart of this.view.charts) chart.request();
  }

  recolour() {
    document.getElementById("theme").textContent =
        this.theme && this.theme.isDark() ? "Light" : "Dark";
    this.lanes.readColours();
    this.redraw();
  }

  // Left in the page for tests.
  mark() {
    const marks = {
      connection: this.connection,
      polls: this.polls,
      changes: this.view.changes,
      blocks: this.lanes.drawn,
      ticks: this.lanes.ticks,
      lanes: this.lanes.workers,
      curves: this.view.charts.map((chart) => chart.drawn).join(" "),
      pictures: this.pictures.map((picture) => picture.drawn).join(" "),
      errors: scriptErrors,
    };
    for (const [name, value] of Object.entries(marks))
      document.documentElement.dataset[name] = String(value);
  }
}

window.penstock = new LivePage();
