import unittest

import compare


class LastEpoch(unittest.TestCase):
    def test_the_last_epoch_counts(self):
        lines = ["ringo: ranks are bound", '{"event":"epoch","step_median_ms":9.5}', '{"event":"epoch","step_median_ms":8.25}', '{"event":"summary","wall_s":3}']
        self.assertEqual(compare.last_epoch(lines), 8.25)

    def test_no_epoch_is_told(self):
        with self.assertRaises(SystemExit):
            compare.last_epoch(['{"event":"summary"}'])


class ByHand(unittest.TestCase):
    def test_ranks_that_fail_are_told(self):
        with self.assertRaises(SystemExit):
            compare.by_hand("/bin/false", 2)


if __name__ == "__main__":
    unittest.main()
