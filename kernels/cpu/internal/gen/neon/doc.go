// Package neon holds the test of the instructions that kernels/cpu writes as
// words for arm64: each macro of neon_arm64.h against disassemblers. It lies in
// this module so that the project itself needs no disassembler.
package neon
