// Runs runner.py inside pyodide: node pyodide_runner.mjs PYODIDE_FOLDER BUNDLE.zip
//
// The bundle is unpacked into the in-memory file system at /checkout; it holds the package, runner.py, jobs.json and
// the traces the jobs name. Outcomes go to standard output, everything else to standard error.

import { readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const PROGRAM = `
import json, sys
from pathlib import Path

sys.path.insert(0, "/checkout")
import runner

json.dumps(runner.run_jobs(json.loads(Path("/checkout/jobs.json").read_text(encoding="utf-8"))))
`;

async function run(folder, bundle) {
  const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")).href);
  const pyodide = await loadPyodide({ stdout: (text) => write(2, `${text}\n`), stderr: (text) => write(2, `${text}\n`) });
  pyodide.unpackArchive(new Uint8Array(readFileSync(bundle)), "zip", { extractDir: "/checkout" });
  return pyodide.runPython(PROGRAM);
}

function write(stream, text) {
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    rest = rest.subarray(writeSync(stream, rest));
  }
}

// Caught here: for an uncaught error, Node.js prints the line it happened in, and pyodide is one line of a megabyte.
try {
  write(1, await run(process.argv[2], process.argv[3]));
} catch (error) {
  write(2, `${error.stack ?? error}\n`);
  process.exitCode = 1;
}
