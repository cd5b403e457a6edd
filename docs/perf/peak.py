#!/usr/bin/env python3
"""Runs a command and prints a JSON line: wall and CPU seconds, exit code, and peak memory in MiB.

anon_mib is the highest RssAnon seen in /proc/PID/status, read every 5 ms: what the process
allocated, without the files that it maps or that the kernel caches. hwm_mib is the kernel's own
high-water mark of everything resident (ru_maxrss, which is VmHWM at the end).

    peak.py LABEL COMMAND ARGUMENT...     the command's standard output goes to standard error
"""
import json
import os
import subprocess
import sys
import time


def anonymous_kib(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def main():
    label, command = sys.argv[1], sys.argv[2:]
    load = os.getloadavg()[0]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=sys.stderr)
    anon = samples = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        anon = max(anon, anonymous_kib(process.pid))
        samples += 1
        time.sleep(0.005)
    seconds = time.monotonic() - began
    print(json.dumps({
        "label": label, "seconds": round(seconds, 2), "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "exit": os.waitstatus_to_exitcode(status), "anon_mib": round(anon / 1024, 1),
        "hwm_mib": round(usage.ru_maxrss / 1024, 1), "samples": samples, "load_before": round(load, 2)}))
    return os.waitstatus_to_exitcode(status)


sys.exit(main())
