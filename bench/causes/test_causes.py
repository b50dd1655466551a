import os, tempfile, unittest

import check


class Test(unittest.TestCase):
    def test_a_run_is_judged_by_all_that_was_said(self):
        slow = {"kind": "slow_rank", "rank": 1}
        for want, statuses, pages, right in (
            (("slow_rank", 1), [slow] * 2, ["x", "y"], True),
            (("slow_rank", None), [slow], ["x"], True),
            (("slow_rank", 0), [slow], ["x"], False),
            (("slow_disk", 1), [slow], ["x"], False),
            (("slow_rank", 1), [slow, None], ["x", "x"], False),
            (("slow_rank", 1), [slow], [""], False),
            (("slow_rank", 1), [], [], False),
            (None, [None], [""], True),
            (None, [slow], [""], False),
            (None, [None], ["x"], False),
        ):
            self.assertEqual(check.judge(want, statuses, pages), right, (want, statuses, pages))

    def test_rows_are_criteos(self):
        with tempfile.TemporaryDirectory() as folder:
            check.write_rows(folder, 10_000)
            with open(os.path.join(folder, "train.tsv")) as f:
                rows = f.readlines()
            self.assertEqual(len(rows), 10_000)
            self.assertTrue(all(len(r.split("\t")) == 40 for r in rows))
            check.evict(folder)

    def test_five_are_slowed_and_three_are_not(self):
        self.assertEqual([r[4] is not None for r in check.RUNS].count(True), 5)
        self.assertEqual([r[4] is not None for r in check.RUNS].count(False), 3)
        self.assertGreater(check.busy(), 0)


if __name__ == "__main__":
    unittest.main()
