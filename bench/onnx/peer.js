// The other side of bench/onnx: ONNX Runtime, asked by lines of JSON on standard input, one answer a line.
//
//   node peer.js FOLDER    FOLDER/node_modules has onnxruntime-node
"use strict";
const { createRequire } = require("module");
const path = require("path");
const fs = require("fs");

const from = createRequire(path.resolve(process.argv[2], "x.js"));
const { Tensor } = from("onnxruntime-common");
// The native session itself: its promise of the public interface costs as much as a small model.
const { binding, initOrt } = require(path.join(path.dirname(from.resolve("onnxruntime-node")), "binding.js"));
initOrt();

let session, feeds, fetches;

function tensor(input) {
  const bytes = fs.readFileSync(input.file);
  const memory = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  const data = input.type === "int64" ? new BigInt64Array(memory) : new Float32Array(memory);
  return new Tensor(input.type, data, input.dims);
}

const answers = {
  version: () => ({ version: from("onnxruntime-node/package.json").version }),
  load: (ask) => {
    session = new binding.InferenceSession();
    session.loadModel(ask.path, { intraOpNumThreads: 1, interOpNumThreads: 1, executionMode: "sequential", graphOptimizationLevel: "all", executionProviders: ["cpu"] });
    return {};
  },
  feed: (ask) => {
    feeds = {};
    for (const input of ask.inputs) feeds[input.name] = tensor(input);
    fetches = {};
    for (const name of ask.outputs) fetches[name] = null;
    return {};
  },
  run: (ask) => {
    const out = session.run(feeds, fetches, {});
    const dims = {};
    for (const name of Object.keys(fetches)) {
      const data = out[name].data;
      fs.writeFileSync(path.join(ask.folder, name), Buffer.from(data.buffer, data.byteOffset, data.byteLength));
      dims[name] = out[name].dims;
    }
    return { dims };
  },
  time: (ask) => {
    const begin = process.hrtime.bigint();
    let calls = 0, spent = 0;
    do {
      session.run(feeds, fetches, {});
      calls++;
      spent = Number(process.hrtime.bigint() - begin);
    } while (spent < ask.nanoseconds);
    return { nanoseconds: spent / calls };
  },
};

let rest = "";
process.stdin.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    let answer;
    try {
      const ask = JSON.parse(line);
      answer = answers[ask.ask](ask);
    } catch (e) {
      answer = { error: String(e && e.message || e) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
});
