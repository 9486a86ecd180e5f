// Auto follows the viewer's system. The page's and the picture's dark styles are media rules: they
// are switched on and off as a whole.
class Theme {
  constructor(button, changed) {
    this.changed = changed;
    this.rules = [...document.styleSheets]
                     .flatMap((sheet) => [...sheet.cssRules])
                     .filter(
                         (rule) => rule instanceof CSSMediaRule &&
                             rule.media.mediaText.includes("prefers-color-scheme"));
    button.addEventListener("click", () => this.set(this.isDark() ? "light" : "dark"));
    window.matchMedia("(prefers-color-scheme: dark)")
        .addEventListener("change", () => this.changed());
    let saved = null;
    try {
      saved = localStorage.getItem("penstock-theme");
    } catch (error) {
      // A page from a file may be denied storage: then the system's preference is used.
    }
    const asked = new URLSearchParams(location.search).get("theme") || saved;
    if (asked === "light" || asked === "dark") this.apply(asked);
  }
  isDark() {
    return this.name ? this.name === "dark" :
                       window.matchMedia("(prefers-color-scheme: dark)").matches;
  }
  apply(name) {
    this.name = name;
    document.documentElement.style.colorScheme = name;
    for (const rule of this.rules) rule.media.mediaText = name === "dark" ? "all" : "not all";
  }
  set(name) {
    this.apply(name);
    try {
      localStorage.setItem("penstock-theme", name);
    } catch (error) {
      // See above.
    }
    this.changed();
  }
}
