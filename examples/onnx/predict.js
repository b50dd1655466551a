// Predicts the rows of a CSV file with a table model of `ringo export RUN --format onnx --out model.onnx`.
//
//   npm install --ignore-scripts onnxruntime-node
//   node predict.js model.onnx rows.csv
//
// It prints a line of JSON for each row, as `ringo predict` does.
const fs = require("fs");
const ort = require(require.resolve("onnxruntime-node", { paths: [process.cwd()] }));

const missing = new Set(["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"]);

// parse returns the records of a CSV file: fields may be in quotes.
function parse(text) {
  const records = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r?\n|$)/g)) {
    records.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === "") break;
    if (end !== ",") records.push([]);
  }
  return records.filter((r) => r.length > 1 || r[0] !== "");
}

// number returns a number, or the seconds since 1970 of a date such as 2024-02-29 or 2024-02-29
// 17:30:00.
function number(word) {
  if (missing.has(word)) return NaN;
  const date = /^(\d{4}-\d\d-\d\d)(?:[ T](.+))?$/.exec(word);
  const x = date ? Date.parse(`${date[1]}T${date[2] ?? "00:00:00"}Z`) / 1000 : Number(word);
  if (!Number.isFinite(x)) throw new Error(`${word} is no finite number`);
  return x;
}

async function main([model, file]) {
  const session = await ort.InferenceSession.create(model);
  const [header, ...rows] = parse(fs.readFileSync(file, "utf8").replace(/^\ufeff/, ""));
  const feeds = {};
  for (const { name, type } of session.inputMetadata) {
    const at = header.indexOf(name);
    if (at < 0) throw new Error(`${file} has no column ${name}`);
    const words = rows.map((r) => r[at]);
    feeds[name] = new ort.Tensor(type, type === "string" ? words : Float64Array.from(words, number), [rows.length]);
  }
  const { prediction, probability } = await session.run(feeds);
  for (let row = 0; row < rows.length; row++) {
    console.log(JSON.stringify({ row, prediction: prediction.data[row], probability: probability?.data[row] }));
  }
}

main(process.argv.slice(2)).catch((e) => {
  console.error(String(e));
  process.exitCode = 1;
});
