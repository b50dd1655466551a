#!/usr/bin/env python3
"""Writes 40,000 payments, of which 1 % are frauds, as the CSV file FILE: payments.py FILE [SEED]."""
import random
import sys


def rows(rnd, n=40000):
    for _ in range(n):
        fraud = rnd.random() < 0.01
        amount = rnd.lognormvariate(4.6 if fraud else 3.7, 0.8)
        hour = rnd.randrange(6) if fraud and rnd.random() < 0.45 else rnd.randrange(24)
        age = rnd.expovariate(1 / 120 if fraud else 1 / 500)
        country = "F" if rnd.random() < (0.4 if fraud else 0.03) else rnd.choice("ABCDE")
        refused = sum(rnd.random() < (0.25 if fraud else 0.06) for _ in range(6))
        yield f"{amount:.2f},{hour},{age:.1f},{country},{refused},{'fraud' if fraud else 'ok'}\n"


if __name__ == "__main__":
    rnd = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 11)
    with open(sys.argv[1], "w") as f:
        f.write("amount,hour,account_days,country,refused,kind\n")
        f.writelines(rows(rnd))
