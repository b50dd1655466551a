// Prints the probability of a click for each line of a file, by ONNX Runtime and a bundle of `ringo export --format bundle`.
//
//   npm install --ignore-scripts onnxruntime-node && node predict.js BUNDLE FILE
const fs = require("fs"), path = require("path"), ort = require(require.resolve("onnxruntime-node", { paths: [process.cwd()] }));
const [dir, data] = process.argv.slice(2), d = JSON.parse(fs.readFileSync(path.join(dir, "bundle.json")));
const u64 = (x) => BigInt.asUintN(64, x), golden = 0x9e3779b97f4a7c15n, top = (x, n) => (x * BigInt(n)) >> 64n;
const mix = (z) => { z = u64(z + golden); z = u64((z ^ z >> 30n) * 0xbf58476d1ce4e5b9n); z = u64((z ^ z >> 27n) * 0x94d049bb133111ebn); return z ^ z >> 31n; };
const textKey = (base, b) => { let h = mix(base ^ BigInt(b.length)); for (let i = 0; i <= b.length; i += 8) h = mix(h ^ Buffer.concat([b.subarray(i), Buffer.alloc(8)]).readBigUInt64LE()); return h; };
const hexKey = (base, v) => base << 56n | (v >> 56n ? mix(v) & (1n << 56n) - 1n : v);
const keyOf = (c, s) => c.values == "text" ? textKey(BigInt(c.base), Buffer.from(s)) : c.values == "hex" ? hexKey(BigInt(c.base), BigInt("0x" + s)) : BigInt(s);
const at = { key: (t, c, s) => keyOf(c, s), hash: (t, c, s) => top(mix(keyOf(c, s)), t.buckets), "slot-hash": (t, c, s) => 1n + top(mix(u64(BigInt("0x" + s) + BigInt(c.base) * 0xd1342543de82ef95n)), t.buckets - 1) };
for (const t of d.tables) { // a file: 16 bytes, rows of a key and dim floats, 12 bytes
  const b = fs.readFileSync(path.join(dir, t.file)), size = 8 + 4 * t.dim, rows = new Map();
  for (let i = 0; i < t.rows; i++) rows.set(b.readBigUInt64LE(16 + i * size), 24 + i * size);
  t.row = (key) => Array.from({ length: t.dim }, (_, i) => rows.has(key) ? b.readFloatLE(rows.get(key) + 4 * i) : t.initial.name != "uniform" ? t.initial.value || 0 :
    (Number(mix(mix((BigInt(t.initial.stream) ^ mix(key)) - golden) + BigInt(i) * golden) >> 40n) / (1 << 23) - 1) * Math.fround(t.initial.value));
}
const number = (c, s) => c.transform == "log" ? Math.log1p(Math.max(+s, 0)) : +s; // a missing one is 0
async function main() {
  const session = await ort.InferenceSession.create(path.join(dir, "model.onnx")), lines = fs.readFileSync(data, "utf8").split(/\r?\n/).filter((l) => l);
  const names = d.header ? lines.shift().split(d.separator) : d.columns.map((c) => c.name), unlabelled = lines[0].split(d.separator).length < d.columns.length;
  const columns = d.columns.filter((c) => !(unlabelled && c.kind == "label"));
  for (const fields of lines.map((l) => l.split(d.separator))) {
    const field = (c) => fields[(d.header ? names : columns.map((c) => c.name)).indexOf(c.name)], feeds = {};
    const keys = (input, t) => input.slots.map((n) => d.columns.find((c) => c.name == n)).map((c) => (field(c) ? c.separator ? field(c).split(c.separator) : [field(c)] : []).map((s) => at[t.index](t, c, s)));
    for (const input of d.inputs) {
      const t = d.tables.find((t) => t.name == input.table), none = input.missing === undefined ? [] : [BigInt(input.missing)];
      const bags = t && keys(input, t).map((b) => b.length ? b : none), add = (a, b) => a.map((v, i) => v + b[i]), zeros = t && Array(t.dim).fill(0);
      if (input.kind == "values") feeds.values = columns.filter((c) => c.kind == "number").map((c) => number(c, field(c)));
      else if (input.kind == "rows") feeds[input.name] = BigInt64Array.from(bags.map((b) => b[0]));
      else if (input.kind == "sums") feeds[input.name] = bags.flatMap((b) => b.map(t.row).reduce(add, zeros));
      else feeds[input.name] = bags.flatMap((b) => Array.from({ length: input.steps }, (_, i) => { const k = b.slice(-input.steps)[i]; return k === undefined ? zeros : t.row(k); }).flat());
    }
    for (const [n, v] of Object.entries(feeds)) feeds[n] = v instanceof BigInt64Array ? new ort.Tensor("int64", v, [1, v.length]) : new ort.Tensor("float32", Float32Array.from(v), [1, v.length]);
    const out = (await session.run(feeds))[d.output.name].data;
    console.log(1 / (1 + Math.exp(d.output.probability == "softmax" ? out[0] - out[1] : -out[0])));
  }
}
main();
