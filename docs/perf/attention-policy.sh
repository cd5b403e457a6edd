#!/bin/sh
# What steps lose that read some pages of keys and values, as JSON lines: long-llama on
# held-out text and on its questions, with what others choose beside it. NSTF_SHARED: the
# folder with the trained models; ATTENTION: a file of nstf calibrate --attention; MODEL: a
# model of the 1.1 B shape for times (nstf dev generate --shape 1.1b --blocks --ctx 32768).
set -e
cd "$(dirname "$0")/../.."
for what in Quality Needles Step; do
	go test ./runtime/exec -run xxx -bench "Policy$what" -benchtime 1x | grep '^{'
done
