import argparse, os, stat, tempfile, unittest

import check


class Test(unittest.TestCase):
    def script(self, text):
        f = tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False)
        self.addCleanup(os.unlink, f.name)
        f.write("#!/bin/sh\n" + text)
        f.close()
        os.chmod(f.name, stat.S_IRWXU)
        return f.name

    def test_one_hash_is_wanted(self):
        one = "echo 'test accuracy 9 %; params sha256 abc'\n"
        self.assertEqual(check.parameters([self.script(one)], {}), "abc")
        self.assertEqual(check.parameters([self.script("echo \"params sha256 $HASH\" >&2\n")], {"HASH": "d"}), "d")
        for text in (one + one, "true\n", one + "exit 3\n"):  # ranks that train by themselves, none, and a failure
            with self.assertRaises(SystemExit):
                check.parameters([self.script(text)], {})

    def test_what_is_not_installed_is_left_out(self):
        with self.assertRaises(check.Left):
            check.tool("no-such-program")
        path, os.environ["PATH"] = os.environ["PATH"], ""
        try:
            for start in (check.openmpi, check.mpich, check.srun):
                with self.assertRaises(check.Left), tempfile.TemporaryDirectory() as folder:
                    next(start(argparse.Namespace(np=2, ringo="ringo"), folder))
        finally:
            os.environ["PATH"] = path

    def test_ports_differ(self):
        self.assertEqual(len(set(check.free_ports(3))), 3)


if __name__ == "__main__":
    unittest.main()
