// Numbers as text.

function durationText(ns) {
  const size = Math.abs(ns);
  const [unit, name] = size >= 1e9 ? [1e9, "s"] :
      size >= 1e6                  ? [1e6, "ms"] :
      size >= 1e3                  ? [1e3, "\u00b5s"] :
                                     [1, "ns"];
  const value = ns / unit;
  return value.toFixed(
             unit === 1 || Math.abs(value) >= 99.95 ? 0 :
                 Math.abs(value) >= 9.995           ? 1 :
                                                      2) +
      " " + name;
}

function bytesText(bytes) {
  for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (bytes >= unit) return (bytes / unit).toPrecision(3) + " " + name;
  }
  return bytes.toFixed(0) + " B";
}
