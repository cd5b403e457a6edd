#!/usr/bin/env python3
"""What corrections by free factors could take off a plan's predicted loss at most; see decomposition.md.

    forms_bound.py PLAN.json RESIDUAL.md

PLAN.json is a plan of codes alone (`nstf plan MODEL --stats FILE --bpw 2.05 -o PLAN.json`), RESIDUAL.md the table
that BenchmarkResidual prints. A product of a rank takes the larger of two parts, of W itself and of what the codes
got wrong, and its bytes are paid for by coarser codes of the same tensor: with factors of 2 bits, of which nothing
is lost by coding them,

    loss' = loss * (1 - part) / (1 - bytes' worth)     for the best rank of those in the table, or loss
"""
import collections
import json
import sys


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as f:
        loss = {t["name"]: t.get("loss", 0) for t in json.load(f)["tensors"]}
    best = collections.defaultdict(lambda: 1.0)
    for line in open(sys.argv[2]):
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) < 8 or cells[0] not in loss:
            continue
        plain, residual, worth = float(cells[4]), float(cells[6]), float(cells[7])
        best[cells[0]] = min(best[cells[0]], (1 - max(plain, residual)) / (1 - worth))
    total = sum(loss.values())
    gain, share = collections.Counter(), collections.Counter()
    for name, v in loss.items():
        role = ".".join(name.split(".")[2:4]) if name.startswith("blocks.") else name
        share[role] += v / total
        gain[role] += v / total * (1 - best[name])
    print("| role | of the loss | free factors take at most |\n|---|---:|---:|")
    for role, part in share.most_common():
        if part:
            print(f"| {role} | {part:.3f} | {gain[role]:.3f} |")
    print(f"| all | 1 | {sum(gain.values()):.3f} |")


if __name__ == "__main__":
    main()
