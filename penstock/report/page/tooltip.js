class Tooltip {
  constructor(element) { this.element = element; }
  // Lines: text for a heading, [name, value] for a row. Everything is set as text, nothing as
  // markup.
  show(event, lines) {
    const rows = lines.map((line) => {
      const row = document.createElement("div");
      if (typeof line === "string") {
        row.className = "heading";
        row.textContent = line;
      } else {
        for (const part of line) row.appendChild(document.createElement("span")).textContent = part;
      }
      return row;
    });
    this.element.replaceChildren(...rows);
    this.element.hidden = false;
    const {offsetWidth: width, offsetHeight: height} = this.element;
    const x = event.clientX + 16 + width > window.innerWidth ? event.clientX - width - 12 :
                                                               event.clientX + 16;
    const y = event.clientY + 16 + height > window.innerHeight ? event.clientY - height - 12 :
                                                                 event.clientY + 16;
    this.element.style.transform = `translate(${Math.max(4, x)}px,${Math.max(4, y)}px)`;
  }
  hide() { this.element.hidden = true; }
}
