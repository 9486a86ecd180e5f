// Pointer, wheel and keyboard of the timeline.

function attachTimelineInput(page) {
  const {timeline, view, tooltip} = page;
  const canvas = timeline.canvas;
  let drag = null;
  let pageScrolledAt = -1e9;
  window.addEventListener("scroll", () => pageScrolledAt = performance.now(), {passive: true});

  // A page that is being scrolled goes on scrolling when the timeline passes under the pointer.
  canvas.addEventListener("wheel", (event) => {
    if (performance.now() - pageScrolledAt < 200 && document.activeElement !== canvas) return;
    event.preventDefault();
    const size = event.deltaMode === 1 ? 30 : 1;
    const dx = event.deltaX * size, dy = event.deltaY * size;
    if (event.altKey) {
      page.scaleRows(Math.exp(-dy * 0.002), event.offsetY);
    } else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      view.pan((dx || dy) / timeline.box.width);
    } else if (event.offsetX < timeline.box.left) {
      timeline.scroll += dy;
      timeline.request();
    } else {
      view.zoom(
          Math.exp(Math.max(-400, Math.min(400, dy)) * 0.002), timeline.timeAt(event.offsetX));
    }
    hover(event);
  }, {passive: false});

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const bar = event.offsetY > timeline.box.height - kScrollBar - 3;
    drag = {
      x: event.offsetX,
      y: event.offsetY,
      from: view.from,
      to: view.to,
      scroll: timeline.scroll,
      moved: false,
      bar
    };
    if (bar) moveBar(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return hover(event);
    if (drag.bar) return moveBar(event);
    const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 3) drag.moved = true;
    if (!drag.moved) return;
    tooltip.hide();
    const shift = dx / (timeline.box.right - timeline.box.left) * (drag.to - drag.from);
    timeline.scroll = drag.scroll - dy;
    view.set(drag.from - shift, drag.to - shift);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved && !drag.bar) {
      const worker =
          Math.floor((event.offsetY - timeline.box.top + timeline.scroll) / timeline.box.group);
      if (event.offsetY > timeline.box.top && worker >= 0 && worker < page.model.workers)
        page.selectWorker(worker);
    }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => drag = null);
  canvas.addEventListener("pointerleave", () => {
    timeline.hover = null;
    timeline.request();
    tooltip.hide();
  });
  canvas.addEventListener("dblclick", (event) => view.zoom(0.4, timeline.timeAt(event.offsetX)));

  const middle = () => (view.from + view.to) / 2;
  const keys = {
    "+": () => view.zoom(0.5, middle()),
    "=": () => view.zoom(0.5, middle()),
    "-": () => view.zoom(2, middle()),
    ArrowLeft: () => view.pan(-0.1),
    ArrowRight: () => view.pan(0.1),
    PageUp: () => view.pan(-0.9),
    PageDown: () => view.pan(0.9),
    ArrowUp: () => scrollRows(-40),
    ArrowDown: () => scrollRows(40),
    Home: () => page.fit(),
    "0": () => page.fit(),
    "[": () => page.scaleRows(1 / 1.5),
    "]": () => page.scaleRows(1.5),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  function scrollRows(pixels) {
    timeline.scroll += pixels;
    timeline.request();
  }

  function moveBar(event) {
    const time =
        (event.offsetX - timeline.box.left) / (timeline.box.right - timeline.box.left) * view.span;
    const size = view.to - view.from;
    view.set(time - size / 2, time + size / 2);
  }

  function hover(event) {
    const found = timeline.find(event.offsetX, event.offsetY);
    timeline.hover = found;
    timeline.request();
    if (!found) return tooltip.hide();
    if (found.k >= 0) return tooltip.show(event, actionLines(page.model, found));
    const lane = page.model.lanes[found.lane];
    const time = timeline.timeAt(event.offsetX);
    tooltip.show(event, [
      time >= 0 && time <= lane.makespan ? `worker ${found.worker} is idle` :
                                           `worker ${found.worker}`,
      [lane.name, `at ${durationText(Math.max(0, time))}`]
    ]);
  }

  for (const chart of [page.memory, page.versions]) {
    chart.canvas.addEventListener("pointermove", (event) => {
      const lane = Number(document.getElementById("memory-lane").value) || 0;
      const course = timeline.selected >= 0 ? page.courses[lane][timeline.selected] : null;
      const time = timeline.timeAt(event.offsetX);
      if (!course || event.offsetX < timeline.box.left || time < 0) return tooltip.hide();
      tooltip.show(event, [
        `worker ${timeline.selected} at ${durationText(time)}`,
        ["activations", bytesText(valueAt(course, course.stash, time))],
        ["weights", bytesText(valueAt(course, course.weights, time))],
        ["gradients", bytesText(course.gradients)], ["optimiser state", bytesText(course.state)],
        ["weight versions", countText(valueAt(course, course.versions, time))]
      ]);
    });
    chart.canvas.addEventListener("pointerleave", () => tooltip.hide());
  }
}
