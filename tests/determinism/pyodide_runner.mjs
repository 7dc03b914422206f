// Runs Python inside pyodide: node pyodide_runner.mjs PYODIDE_FOLDER BUNDLE.zip PROGRAM.py
//
// The bundle is unpacked into the in-memory file system at /checkout, where Python imports from. What the program's last
// expression comes to goes to standard output, everything else to standard error.

import { readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

async function run(folder, bundle, program) {
  const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")).href);
  const pyodide = await loadPyodide({ stdout: (text) => write(2, `${text}\n`), stderr: (text) => write(2, `${text}\n`) });
  pyodide.unpackArchive(new Uint8Array(readFileSync(bundle)), "zip", { extractDir: "/checkout" });
  pyodide.runPython('import sys; sys.path.insert(0, "/checkout")');
  return pyodide.runPython(readFileSync(program, "utf-8"));
}

function write(stream, text) {
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    rest = rest.subarray(writeSync(stream, rest));
  }
}

// Caught here: for an uncaught error, Node.js prints the line it happened in, and pyodide is one line of a megabyte.
try {
  write(1, await run(process.argv[2], process.argv[3], process.argv[4]));
} catch (error) {
  write(2, `${error.stack ?? error}\n`);
  process.exitCode = 1;
}
