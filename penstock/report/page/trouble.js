// Errors of the script are shown on the page, and counted for tests.
let scriptErrors = 0;
function complain(error) {
  ++scriptErrors;
  const note = document.getElementById("trouble");
  note.hidden = false;
  note.textContent = `This page's script failed: ${error && error.message || error}`;
  document.documentElement.dataset.errors = String(scriptErrors);
}
window.addEventListener("error", (event) => complain(event.error || event.message));
window.addEventListener("unhandledrejection", (event) => complain(event.reason));
