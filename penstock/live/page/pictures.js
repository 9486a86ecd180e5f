// The newest input and output: raw pixels, asked for again only when there is a newer frame.

class PictureView {
  constructor(id, name) {
    this.path = "/" + id;
    this.name = name;
    this.canvas = document.getElementById(id);
    this.note = document.getElementById(id + "-note");
    this.drawn = 0;
    this.tag = null;
  }

  async refresh(get) {
    const response = await get(this.path, this.tag ? {"If-None-Match": this.tag} : {});
    if (response.status !== 200) return;
    const number = (name) => Number(response.headers.get("Penstock-" + name));
    const width = number("Width"), height = number("Height"), channels = number("Channels");
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (!(width > 0 && height > 0) || bytes.length !== width * height * channels) return;
    this.tag = response.headers.get("ETag");
    this.show(width, height, channels, bytes);
    const frame = number("Frame");
    const size = `${width}\u00d7${height}`;
    this.note.textContent = frame >= 0 ? `frame ${frame}, ${size}` : size;
    this.canvas.setAttribute("aria-label", `${this.name}: ${this.note.textContent}`);
  }

  show(width, height, channels, bytes) {
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
    const pen = this.canvas.getContext("2d"), image = pen.createImageData(width, height);
    for (let k = 0, from = 0; k < image.data.length; k += 4, from += channels) {
      for (let c = 0; c < 3; ++c) image.data[k + c] = bytes[from + (channels === 3 ? c : 0)];
      image.data[k + 3] = 255;
    }
    pen.putImageData(image, 0, 0);
    ++this.drawn;
  }
}
