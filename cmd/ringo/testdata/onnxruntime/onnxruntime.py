"""The part of Python's onnxruntime that examples/onnx/predict.py uses, computed by onnxruntime-node of the current folder.

Debian has no onnxruntime for Python; the runtime below both packages is the same library.
"""
import json
import math
import subprocess
from collections import namedtuple

NODE = """
const ort = require(require.resolve("onnxruntime-node", { paths: [process.cwd()] }));
const ask = JSON.parse(require("fs").readFileSync(0));
ort.InferenceSession.create(ask.path).then(async (session) => {
  const ports = (all) => all.map(({ name, type }) => ({ name, type: `tensor(${type.replace("float64", "double")})` }));
  const answer = { inputs: ports(session.inputMetadata), outputs: ports(session.outputMetadata), values: {} };
  if (ask.feeds) {
    const feeds = {};
    for (const [name, values] of Object.entries(ask.feeds)) {
      const words = typeof values[0] === "string";
      feeds[name] = words ? new ort.Tensor("string", values, [values.length]) : new ort.Tensor("float64", Float64Array.from(values, (v) => v === null ? NaN : v), [values.length]);
    }
    for (const [name, tensor] of Object.entries(await session.run(feeds))) answer.values[name] = Array.from(tensor.data);
  }
  console.log(JSON.stringify(answer));
});
"""
Port = namedtuple("Port", "name type")


class InferenceSession:
    def __init__(self, path):
        self.path = path
        self.answer = self.ask(None)

    def ask(self, feeds):
        text = json.dumps({"path": self.path, "feeds": feeds})
        return json.loads(subprocess.run(["node", "-e", NODE], input=text, capture_output=True, text=True, check=True).stdout)

    def get_inputs(self):
        return [Port(**p) for p in self.answer["inputs"]]

    def get_outputs(self):
        return [Port(**p) for p in self.answer["outputs"]]

    def run(self, names, feeds):
        plain = {name: [None if isinstance(v, float) and math.isnan(v) else v for v in values.tolist()] for name, values in feeds.items()}
        values = self.ask(plain)["values"]
        return [values[name] for name in names]
