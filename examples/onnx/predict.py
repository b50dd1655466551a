"""Predicts the rows of a CSV file with a table model of `ringo export RUN --format onnx --out model.onnx`.

  pip install numpy onnxruntime
  python3 predict.py model.onnx rows.csv

It prints a line of JSON for each row, as `ringo predict` does.
"""
import csv
import json
import math
import sys
from datetime import datetime, timezone

import numpy as np
import onnxruntime

MISSING = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"}


def number(word):
    """A number, or the seconds since 1970 of a date such as 2024-02-29 or 2024-02-29 17:30:00."""
    if word in MISSING:
        return math.nan
    if word[4:5] == "-" and word[7:8] == "-":
        return datetime.fromisoformat(word).replace(tzinfo=timezone.utc).timestamp()
    return float(word)


def column(rows, name, kind):
    """One column as an array: numbers with NaN for missing ones, or words."""
    if kind == "tensor(string)":
        return np.array([row[name] for row in rows], dtype=object)
    return np.array([number(row[name]) for row in rows])


def main():
    model, path = sys.argv[1:]
    session = onnxruntime.InferenceSession(model)
    with open(path, newline="", encoding="utf-8-sig") as f:
        rows = list(csv.DictReader(f))
    feeds = {i.name: column(rows, i.name, i.type) for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, feeds)))
    for row in range(len(rows)):
        line = {"row": row, "prediction": outputs["prediction"][row]}
        if "probability" in outputs:
            line["probability"] = float(outputs["probability"][row])
        print(json.dumps(line))


main()
