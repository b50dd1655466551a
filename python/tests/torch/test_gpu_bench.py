"""The benchmark of a machine with a GPU, on a simulated device."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from test_start import run

SCRIPT = Path(__file__).parents[3] / "bench" / "gpu" / "gpu.py"


@unittest.skipUnless(shutil.which("ringo"), "there is no ringo")
class Bench(unittest.TestCase):
    def test_each_case_has_rows(self) -> None:
        cases = ["check", "allreduce", "select", "share", "embeddings", "architectures", "heter"]
        with tempfile.TemporaryDirectory() as folder:
            done = run(sys.executable, str(SCRIPT), "--cpu", "--out", folder, "--seconds", "180", "--only", *cases)
            self.assertEqual(done.returncode, 0, done.stdout)
            report = json.loads(Path(folder, "gpu.json").read_text(encoding="utf-8"))
            page = Path(folder, "gpu.md").read_text(encoding="utf-8")
        self.assertIn("simulated device", report["card"])
        self.assertIn("simulated device", page)
        self.assertEqual(list(report["cases"]), cases)
        for name, rows in report["cases"].items():
            self.assertTrue(rows and not any("skipped" in row or "failed" in row for row in rows), (name, rows))
            self.assertIn(f"## {name}", page)
        self.assertTrue(any(row["hit rate"] > 0 for row in report["cases"]["embeddings"]))


if __name__ == "__main__":
    unittest.main()
