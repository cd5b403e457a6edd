// Package doctor finds out what GPUs a machine has, what reaches them, and what
// is in the way.
//
// [Examine] loads the vendors' libraries, opens every device and has it run a
// small kernel; it reads what Linux says about AMD's cards, which it does even
// where no runtime is installed. The [Report] is plain data for a person or for
// JSON; its findings each say what is wrong and what to do about it.
//
// Invariants: nothing is written and nothing installed. A device that fails
// becomes a finding, never an error of the whole.
//
// Compatibility: fields are only added to the report.
package doctor
