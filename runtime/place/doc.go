// Package place knows the machine: what processor, caches and memory it has,
// and how fast they are; and it lays models out on devices.
//
// [Discover] asks the system and measures nothing; [Measure] times reading and
// multiplying; [Load] and [Save] keep what was measured, so that it is measured
// once per machine. [Reader] and [PeakRate] are the single measurements, for
// whoever wants them in the same run as something else.
//
//	bandwidth = bytes of a buffer far beyond the caches / time to read it once
//	peak      = multiplications and additions on registers alone / time
//
// [Cost] counts what a model reads for a token, [Split] finds the [Layout] of its blocks
// on several devices whose token takes the least time.
//
// A figure is a [Rate]: median and spread of several samples, since a machine
// that others share gives another one every time.
//
// Invariants: what the system says is checked before it is believed, and what it
// does not say is zero, not a guess. A stored profile that is damaged, of another
// version or of another machine is not used. [Machine.UsualTiles] is what is chosen by it, and
// Split is a function of its arguments alone.
//
// Compatibility: the stored profile carries a version and is no interchange
// format: another version measures again.
package place
