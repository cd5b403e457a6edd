#!/usr/bin/env python3
"""Quantizes a model by N tasks of Ray, then merges here:

  docs/cluster/on_ray.py N WORK OUT.nstf MODEL [flags of nstf quantize]

All nodes see MODEL and the texts. WORK is a folder that they see too, or s3://BUCKET/PREFIX: then every node has
the AWS_ variables, a shared credentials file or a role. A task whose node is lost or whose process is killed is
started again; until then the others do what it left. NSTF names the program, CPUS the cores of a task.
"""
import os
import subprocess
import sys

import ray

n, work, out, *flags = sys.argv[1:]
nstf, cpus = os.environ.get("NSTF", "nstf"), int(os.environ.get("CPUS", 1))
command = [nstf, "quantize", *flags, "--work", work, "--threads", str(cpus)]


@ray.remote(num_cpus=cpus, max_retries=10, retry_exceptions=True)
def shard(i):
    subprocess.run([*command, "--shard", f"{i}/{n}"], check=True)


ray.init()
ray.get([shard.remote(i) for i in range(int(n))])
subprocess.run([*command, "--merge", "-o", out], check=True)
